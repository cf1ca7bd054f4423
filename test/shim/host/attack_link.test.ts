/** Inputs of links that lie: nothing in them may hurt a host, with either kind of device. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { fatBinary } from '../cuda/fat_binary.js';
import { ROOT } from '../cuda/private_programs.js';
import { type Host, scratchDirectory, startChain, startHost } from '../shim_host.js';
import { words } from '../wire/wire_client.js';
import { CONTEXT, Guest, OP, sha256 } from './code_guest.js';

const FIXTURES = path.join(ROOT, 'test/fixtures/code');
const PTX = readFileSync(path.join(FIXTURES, 'kernels.ptx'));
const CUBIN = readFileSync(path.join(FIXTURES, 'kernels.sm_90.cubin'));
const OTHER = Buffer.from(
  '.version 7.0\n.target sm_75\n.address_size 64\n.visible .global .u32 other = 1;\n',
);

const TYPE = { cubin: 0, ptx: 1, fatbin: 2, object: 3, library: 4, nvvm: 5 } as const;

/** struct vgpu_link_input of wire/module.h, its name, its bytes and zeros. */
function input(type: number, bytes: Buffer, name = 'input'): Buffer {
  const size = (16 + name.length + 1 + bytes.length + 8) & ~7;
  const all = Buffer.alloc(size);
  words(type, name.length + 1, BigInt(bytes.length)).copy(all);
  all.write(name, 16);
  bytes.copy(all, 16 + name.length + 1);
  return all;
}

/** An archive with one member. */
function archive(member: Buffer, stated = member.length): Buffer {
  const header = `${'object.o/'.padEnd(16)}${'0'.padEnd(12)}${'0'.padEnd(6)}${'0'.padEnd(6)}${'644'.padEnd(8)}`;
  return Buffer.concat([Buffer.from(`!<arch>\n${header}${String(stated).padEnd(10)}\`\n`), member]);
}

interface Answer {
  readonly result: number;
  readonly number: bigint;
  readonly bytes: bigint;
}

async function link(guest: Guest, inputs: Buffer): Promise<Answer> {
  guest.upload(inputs);
  const body = Buffer.concat([words(CONTEXT), sha256(inputs), words(BigInt(inputs.length))]);
  let reply = await guest.ask(OP.linkImages, body);
  while (reply?.status === 600) reply = await guest.ask(OP.linkImages, body); // it is being linked
  if (reply === undefined) throw new Error('the host hung up');
  if (reply.status !== 0) return { result: reply.status, number: 0n, bytes: 0n };
  assert.equal(reply.body.readUInt32LE(4), 0, 'not missing');
  return {
    result: reply.body.readInt32LE(0),
    number: reply.body.readBigUInt64LE(16),
    bytes: reply.body.readBigUInt64LE(24),
  };
}

const GOOD = [
  Buffer.concat([input(TYPE.ptx, PTX), input(TYPE.ptx, OTHER, 'other')]),
  Buffer.concat([
    input(TYPE.fatbin, fatBinary([{ kind: 'ptx', architecture: 75, payload: PTX, packed: 'lz4' }])),
    input(TYPE.ptx, OTHER),
  ]),
  input(TYPE.cubin, CUBIN),
];
/** They are sound, but the software device cannot link them. */
const REFUSED = [
  Buffer.concat([input(TYPE.object, CUBIN), input(TYPE.ptx, OTHER)]),
  Buffer.concat([input(TYPE.library, archive(CUBIN)), input(TYPE.ptx, OTHER)]),
  Buffer.concat([input(TYPE.nvvm, PTX), input(TYPE.ptx, OTHER)]),
];
const KNOWN = [0, 1, 2, 200, 209, 218, 801, 999];

for (const device of ['software', 'cuda'] as const) {
  describe(`a guest that lies about what is to be linked, with --device ${device}`, () => {
    const scratch = scratchDirectory();
    let host: Host;
    before(async () => {
      const args = ['--software-kernels', 'skip', '--session-code', String(1 << 20)];
      host =
        device === 'software'
          ? await startHost({ listen: `unix:${scratch.path}/s`, args })
          : await startChain(scratch.path, args, ['--session-code', String(1 << 20)]);
    });
    after(async () => {
      await host.stop();
      scratch.remove();
    });
    const begin = (): Promise<Guest> => Guest.begin(`${scratch.path}/s`);

    it('links what is sound, and refuses what needs another linker', async () => {
      const guest = await begin();
      for (const inputs of GOOD) assert.equal((await link(guest, inputs)).result, 0);
      for (const inputs of REFUSED) assert.equal((await link(guest, inputs)).result, 801);
      guest.close();
    });

    it('survives inputs that are cut off anywhere', async () => {
      for (const whole of [...GOOD, ...REFUSED]) {
        const guest = await begin();
        for (let length = 1; length < whole.length; length += length < 128 ? 1 : 97) {
          const { result } = await link(guest, whole.subarray(0, length));
          assert.ok([1, 200, 801].includes(result), `result ${result} of ${length} bytes`);
        }
        guest.close();
      }
      assert.doesNotMatch(host.log(), /killed by signal/);
    });

    it('survives inputs with any byte changed', async () => {
      let seed = 1;
      for (const whole of [...GOOD, ...REFUSED]) {
        const guest = await begin();
        for (let round = 0; round < 200; round++) {
          const inputs = Buffer.from(whole);
          for (let i = 0; i < 1 + (round % 4); i++) {
            seed = (Math.imul(seed, 1103515245) + 12345) >>> 0;
            const at = round % 2 === 0 ? seed % 160 : seed % inputs.length;
            inputs[at] = (seed >>> 16) & 0xff;
          }
          const { result, number, bytes } = await link(guest, inputs);
          assert.ok(KNOWN.includes(result), `result ${result}`);
          if (result === 0) await read(guest, number, bytes);
        }
        guest.close();
      }
      assert.doesNotMatch(host.log(), /killed by signal/);
    });

    it('cannot state more members of a library than there are', async () => {
      const guest = await begin();
      for (const stated of [CUBIN.length + 1, 0xffffffff, -1, '', '99x']) {
        const inputs = Buffer.concat([
          input(TYPE.library, archive(CUBIN, stated as number)),
          input(TYPE.ptx, OTHER),
        ]);
        assert.equal((await link(guest, inputs)).result, device === 'cuda' ? 200 : 801, `${stated}`);
      }
      guest.close();
    });

    it('can link without reading the results until its memory for code is full, and then reads them', async () => {
      const guest = await begin();
      const kept: Answer[] = [];
      let last = await link(guest, GOOD[0] as Buffer);
      for (; last.result === 0 && kept.length < 1000; last = await link(guest, GOOD[0] as Buffer))
        kept.push(last);
      assert.equal(last.result, 2, 'CUDA_ERROR_OUT_OF_MEMORY');
      assert.ok(kept.length > 10);
      for (const { number, bytes } of kept) await read(guest, number, bytes);
      assert.equal((await link(guest, GOOD[0] as Buffer)).result, 0);
      guest.close();
    });

    it('reads each result once, and nothing beyond it', async () => {
      const guest = await begin();
      const { number, bytes } = await link(guest, GOOD[0] as Buffer);
      assert.equal((await guest.ask(OP.imageRead, words(number + 1n, 0n)))?.status, 1);
      assert.equal((await guest.ask(OP.imageRead, words(number, bytes)))?.status, 1);
      assert.equal((await guest.ask(OP.imageRead, words(number, (1n << 64n) - 1n)))?.status, 1);
      await read(guest, number, bytes);
      assert.equal((await guest.ask(OP.imageRead, words(number, 0n)))?.status, 1);
      guest.close();
    });
  });
}

async function read(guest: Guest, number: bigint, bytes: bigint): Promise<Buffer> {
  const parts: Buffer[] = [];
  for (let have = 0n; have < bytes; have += BigInt(parts.at(-1)?.length ?? 0)) {
    const reply = await guest.ask(OP.imageRead, words(number, have));
    assert.equal(reply?.status, 0);
    assert.ok((reply?.bulk.length ?? 0) > 0);
    parts.push(reply?.bulk ?? Buffer.alloc(0));
  }
  return Buffer.concat(parts);
}
