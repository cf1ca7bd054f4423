/** Images that lie: nothing that a guest sends as an image may hurt the host or another session. */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { fatBinary } from '../cuda/fat_binary.js';
import { ROOT } from '../cuda/private_programs.js';
import { type Host, scratchDirectory, startHost } from '../shim_host.js';
import { freePort } from '../support/free_port.js';
import { CUDA, words } from '../wire/wire_client.js';
import { CONTEXT, Guest, OP, sha256 } from './code_guest.js';

const FIXTURES = path.join(ROOT, 'test/fixtures/code');
const PTX = readFileSync(path.join(FIXTURES, 'kernels.ptx'));
const CUBIN = readFileSync(path.join(FIXTURES, 'kernels.sm_90.cubin'));

const PORT = await freePort();

describe('a guest that lies about code', () => {
  const scratch = scratchDirectory();
  const socket = `${scratch.path}/s`;
  let host: Host;
  before(async () => {
    host = await startHost({
      listen: `unix:${socket}`,
      args: [
        '--listen',
        `tcp:127.0.0.1:${PORT}`,
        '--software-kernels',
        'skip',
        '--session-code',
        String(64 << 20),
        '--image-cache',
        String(4 << 20),
      ],
    });
  });
  after(async () => {
    await host.stop();
    scratch.remove();
  });

  it('gets "image missing" until the whole image with the right hash is stored', async () => {
    const guest = await Guest.begin(socket);
    const image = Buffer.concat([PTX, Buffer.from('// only here\n')]);
    const hash = sha256(image);
    assert.deepEqual(await guest.load(image), [0, true]);
    guest.upload(image, sha256(Buffer.from('something else')));
    assert.deepEqual(await guest.load(image), [0, true], 'a wrong hash');
    assert.deepEqual(await guest.load(image, sha256(Buffer.from('something else'))), [0, true]);
    const half = image.length >> 1;
    const size = words(BigInt(image.length));
    guest.post(OP.piece, Buffer.concat([hash, size, words(0n)]), image.subarray(0, half));
    assert.deepEqual(await guest.load(image), [0, true], 'half of it');
    guest.post(OP.piece, Buffer.concat([hash, size, words(BigInt(half + 1))]), image.subarray(half + 1));
    assert.deepEqual(await guest.load(image), [0, true], 'a gap');
    guest.upload(image);
    assert.deepEqual(await guest.load(image, hash, image.length - 1), [0, true], 'another size');
    guest.upload(image);
    assert.deepEqual(await guest.load(image), [0, false]);
    guest.close();
  });

  it('cannot make the host take memory for images without end', async () => {
    const guest = await Guest.begin(socket);
    for (const size of [0n, 1n << 40n, (1n << 64n) - 1n, 65n << 20n]) {
      guest.post(OP.piece, Buffer.concat([sha256(Buffer.from([1])), words(size, 0n)]), Buffer.alloc(16));
    }
    for (let i = 0; i < 200; i++) {
      guest.post(OP.piece, Buffer.concat([sha256(Buffer.from([i])), words(8n << 20n, 0n)]), Buffer.alloc(16));
    }
    assert.deepEqual(await guest.load(PTX, sha256(PTX)), [0, true]);
    const bomb = fatBinary([{ kind: 'elf', architecture: 90, payload: CUBIN, packed: 'lz4' }]);
    bomb.writeBigUInt64LE(1n << 29n, 16 + 56);
    const other = await Guest.begin(socket);
    other.upload(bomb);
    assert.deepEqual(await other.load(bomb), [2, false], 'more than a session may hold, unread');
    other.close();
    guest.close();
  });

  for (const [form, whole] of [
    ['a cubin', CUBIN],
    ['PTX text', PTX],
    [
      'a fat binary',
      fatBinary([
        { kind: 'elf', architecture: 90, payload: CUBIN, packed: 'lz4' },
        { kind: 'ptx', architecture: 75, payload: PTX, packed: 'zstd' },
      ]),
    ],
  ] as const) {
    it(`survives ${form} that is cut off anywhere`, async () => {
      const guest = await Guest.begin(socket);
      const results = new Set<number>();
      for (let length = 1; length < whole.length; length += length < 1024 ? 1 : 11) {
        const image = whole.subarray(0, length);
        guest.upload(image);
        const [result, missing] = await guest.load(image);
        assert.equal(missing, false);
        results.add(result);
      }
      for (const result of results) assert.ok([0, 2, 200, 209, 218].includes(result), `result ${result}`);
      assert.ok(results.has(form === 'PTX text' ? 218 : 200));
      guest.close();
      assert.doesNotMatch(host.log(), /killed by signal/);
    });

    it(`survives ${form} with any byte changed`, async () => {
      const guest = await Guest.begin(socket);
      let seed = 1;
      for (let round = 0; round < 1500; round++) {
        const image = Buffer.from(whole);
        for (let i = 0; i < 1 + (round % 4); i++) {
          seed = (Math.imul(seed, 1103515245) + 12345) >>> 0;
          // Headers, tables and the ends are where structure is; the middle gets its share too.
          const at =
            round % 3 === 0
              ? seed % 512
              : round % 3 === 1
                ? image.length - 1 - (seed % 4096)
                : seed % image.length;
          image[Math.max(0, at % image.length)] = (seed >>> 16) & 0xff;
        }
        guest.upload(image);
        const [result] = await guest.load(image);
        assert.ok([0, 2, 200, 209, 218].includes(result), `result ${result}`);
      }
      guest.close();
      assert.doesNotMatch(host.log(), /killed by signal/);
    });
  }

  it('cannot launch what is not there, or with parameters of another size', async () => {
    const guest = await Guest.begin(socket);
    guest.upload(CUBIN);
    const module = 4000n;
    const load = Buffer.concat([words(CONTEXT, module), sha256(CUBIN), words(BigInt(CUBIN.length))]);
    assert.equal((await guest.ask(OP.load, load))?.status, 0);
    const function_ = 5000n;
    const asked = await guest.ask(OP.getFunction, words(module, function_), Buffer.from('add'));
    assert.equal(asked?.status, 0);
    const launch = async (over: {
      readonly context?: bigint;
      readonly function?: bigint;
      readonly stream?: bigint;
      readonly parameters?: number;
      readonly attributes?: number;
      readonly bulk?: Buffer;
    }): Promise<number> => {
      const {
        context = CONTEXT,
        function: f = function_,
        stream = 0n,
        parameters = 28,
        attributes = 0,
      } = over;
      const body = words(context, f, stream, 1, 1, 1, 32, 1, 1, 0, parameters, attributes, 0);
      guest.post(OP.launch, body, over.bulk ?? Buffer.alloc(28));
      return (await guest.ask(57, words(CONTEXT)))?.deferred ?? -1;
    };
    assert.equal(await launch({}), 0);
    assert.equal(await launch({ function: module }), 400, 'a module is no function');
    assert.equal(await launch({ function: 77n }), 400);
    assert.equal(await launch({ context: 77n }), 201);
    assert.equal(await launch({ stream: 77n }), 400);
    assert.equal(await launch({ parameters: 27, bulk: Buffer.alloc(27) }), 1);
    assert.equal(await launch({ parameters: 0xffffffff }), 1);
    const refused = { parameters: 0xffffffff, bulk: Buffer.alloc(0) };
    assert.equal(await launch(refused), 1, 'the device does not refuse this kernel');
    assert.equal(await launch({ ...refused, function: module }), 400);
    assert.equal(await launch({ attributes: 0xffffffff }), 1);
    assert.equal(await launch({ attributes: 59652324, parameters: 28 }), 1, 'a product that would overflow');
    assert.equal(await launch({ bulk: Buffer.alloc(0) }), 1);
    const twice = await guest.ask(OP.getFunction, words(module, function_), Buffer.from('add'));
    assert.equal(twice?.status, 2, 'a number that is taken');
    const zero = await guest.ask(OP.getFunction, words(module, 5001n), Buffer.from('a\0b'));
    assert.equal(zero?.status, 1);
    guest.close();
  });

  it('cannot make a graph of what is no work on a stream, or launch what is not finished', async () => {
    const guest = await Guest.begin(socket);
    const node = (
      opcode: number,
      body: Buffer,
      bulk = Buffer.alloc(0),
      claim?: readonly [number, number],
    ): Buffer => {
      const data = Buffer.concat([body, bulk]);
      const padded = Buffer.alloc((data.length + 7) & ~7);
      data.copy(padded);
      return Buffer.concat([words(opcode, claim?.[0] ?? body.length, claim?.[1] ?? bulk.length, 0), padded]);
    };
    const fill = words(CONTEXT, 0n, 1n << 45n, 16n, 0, 0);
    const deferred = async (): Promise<number> => (await guest.ask(57, words(CONTEXT)))?.deferred ?? -1;
    const send = async (bulk: Buffer, exec = guest.handle()): Promise<number> => {
      guest.post(OP.graphNodes, words(CONTEXT, exec), bulk);
      return deferred();
    };
    assert.equal(await send(node(CUDA | 500, fill)), 0);
    for (const [what, bulk] of [
      ['an entry cut off', node(CUDA | 500, fill).subarray(0, 12)],
      ['a body cut off', node(CUDA | 500, fill).subarray(0, 40)],
      ['another size of body', node(CUDA | 500, fill.subarray(0, 32))],
      ['sizes that overflow', node(CUDA | 500, fill, Buffer.alloc(0), [0xffffffff, 0xffffffff])],
      ['bytes where there are none', node(CUDA | 500, fill, Buffer.alloc(8))],
      ['no such call', node(CUDA | 9999, fill)],
      ['a call that is waited for', node(CUDA | 597, words(CONTEXT, 0n))],
      ['a call without a stream', node(CUDA | 502, words(CONTEXT, 1n << 45n, 16n, 0, 0))],
      ['a launch of a graph', node(CUDA | 227, words(CONTEXT, 100n, 0n))],
      ['a control call', node(2, Buffer.alloc(0))],
    ] as const) {
      assert.equal(await send(bulk), 1, what);
    }
    const exec = guest.handle();
    assert.equal(await send(node(CUDA | 500, fill), exec), 0);
    guest.post(227, words(CONTEXT, exec, 0n));
    assert.equal(await deferred(), 400, 'not instantiated');
    guest.post(OP.graphNodeSet, words(CONTEXT, exec, 0, 0), node(CUDA | 500, fill));
    assert.equal(await deferred(), 1, 'not instantiated');
    assert.equal((await guest.ask(216, words(CONTEXT, exec, 0n, 2, 0)))?.status, 1, 'another count');
    assert.equal((await guest.ask(216, words(CONTEXT, exec, 0n, 1, 0)))?.status, 0);
    guest.post(OP.graphNodeSet, words(CONTEXT, exec, 1, 0), node(CUDA | 500, fill));
    assert.equal(await deferred(), 1, 'no such node');
    assert.equal(await send(node(CUDA | 500, fill), exec), 1, 'no more nodes after that');
    guest.post(227, words(CONTEXT, exec, 0n));
    assert.equal(await deferred(), 1, 'memory that is not there, found when it is launched');
    guest.post(227, words(CONTEXT, exec, 77n));
    assert.equal(await deferred(), 400, 'no such stream');
    for (let i = 0; i < 2; i++) guest.post(OP.graphNodeSet, words(CONTEXT, exec, 0, 0));
    guest.post(227, words(CONTEXT, exec, 0n));
    assert.equal(await deferred(), 0, 'a node replaced by nothing is not done');
    guest.post(OP.graphNodeSet, words(CONTEXT, exec, 0, 0), node(CUDA | 500, fill));
    guest.post(227, words(CONTEXT, exec, 0n));
    assert.equal(await deferred(), 1, 'and is done again when it is back');
    guest.close();
    assert.doesNotMatch(host.log(), /killed by signal/);
  });

  it('cannot slip another session code: what is cached is what its hash says', async () => {
    const first = await Guest.begin(socket);
    first.upload(PTX);
    assert.deepEqual(await first.load(PTX), [0, false]);
    first.close();
    const second = await Guest.begin(socket);
    assert.deepEqual(await second.load(PTX), [0, false], 'nothing sent: it is in the cache');
    assert.deepEqual(await second.load(PTX, sha256(CUBIN)), [0, true]);
    second.close();
  });

  it('does not get the image of another peer by its hash, nor learns that it is there', async () => {
    const image = Buffer.concat([PTX, Buffer.from('// of this user\n')]);
    const owner = await Guest.begin(socket);
    owner.upload(image);
    assert.deepEqual(await owner.load(image), [0, false]);
    const other = await Guest.begin(`tcp:${PORT}`, 'socket');
    assert.deepEqual(await other.load(image), [0, true], 'the host asks for it');
    other.close();
    owner.close();
  });

  it('pushes the oldest images out of a full cache', async () => {
    const guest = await Guest.begin(socket);
    const padded = (i: number): Buffer =>
      Buffer.concat([PTX, Buffer.alloc(700_000, 0x20), Buffer.from(`//${i}\n`)]);
    for (let i = 0; i < 8; i++) guest.upload(padded(i));
    assert.deepEqual(await guest.load(padded(7)), [0, false]);
    guest.close();
    const later = await Guest.begin(socket);
    assert.deepEqual(await later.load(padded(0)), [0, true], 'gone');
    assert.deepEqual(await later.load(padded(7)), [0, false], 'still there');
    later.close();
  });
});
