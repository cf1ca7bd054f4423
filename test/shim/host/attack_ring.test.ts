/** Attacks that need rings: the guest writes the host's indexes, flags and frames while the host reads them. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readdirSync } from 'node:fs';
import { after, afterEach, before, describe, it } from 'node:test';
import {
  askAll,
  type Host,
  scratchDirectory,
  sessionsNow,
  startHost,
  startShell,
  until,
  workerOf,
} from '../shim_host.js';
import {
  frame,
  HEADER,
  hello,
  ONEWAY,
  op,
  POKE,
  SHARED_REGION,
  WireClient,
  words,
} from '../wire/wire_client.js';
import { startStandIn } from './stand_in.js';

const CONTEXT = 100n;
const PING = 2;
const SHARED_REGION_ADD = 6;
const SHARED_REGION_DROP = 7;
const MIB = 1n << 20n;
const SHARED = 256n * MIB;
const LIMIT = 30_000;

describe('a guest that misbehaves in shared memory', () => {
  const scratch = scratchDirectory();
  const socket = `${scratch.path}/s`;
  let host: Host;
  const clients: WireClient[] = [];

  const greeted = async (): Promise<WireClient> => {
    const client = await WireClient.greeted(socket, 1, 'ring');
    clients.push(client);
    return client;
  };
  const withMemory = async (): Promise<{ client: WireClient; address: bigint; region: number }> => {
    const client = await greeted();
    assert.equal((await client.call(op('cuCtxCreate_v2'), words(CONTEXT, 0, 0))).status, 0);
    const made = await client.call(op('cuMemAlloc_v2'), words(CONTEXT, 4n * MIB));
    const added = await client.call(SHARED_REGION_ADD, words(2n * MIB));
    assert.equal(added.status, 0);
    return { client, address: made.body.readBigUInt64LE(0), region: added.body.readUInt32LE(0) };
  };
  const violations = (): number => [...host.log().matchAll(/violation: the guest sent/g)].length;

  before(async () => {
    host = await startHost({
      listen: `unix:${socket}`,
      args: ['--sessions', '8', '--session-shared', String(SHARED)],
    });
  });
  afterEach(async () => {
    for (const client of clients.splice(0)) client.close();
    // Whatever a guest did, the next one is served.
    const shell = startShell({ VGPU_HOST: host.address });
    await askAll(shell, ['use 1']);
    assert.equal(await shell.end(), 0);
    await until('the sessions to end', () => sessionsNow(host) === 0, LIMIT);
    assert.equal(host.running(), true);
    assert.doesNotMatch(host.log(), /killed by signal|Sanitizer|runtime error/);
  });
  after(async () => {
    assert.equal(await host.stop(), 0);
    scratch.remove();
  });

  for (const [what, by] of [
    ['one byte on', 1n],
    ['a header that is not all there', 8n],
    ['further than the ring is long', (2n << 20n) + 8n],
    ['as far as numbers go', -8n],
    ['behind what was read', -4096n],
    ['half way around', 1n << 63n],
  ] as const) {
    it(`loses its session for a tail that moves ${what}`, async () => {
      const client = await greeted();
      assert.equal((await client.call(PING)).status, 0);
      const before = violations();
      client.poke(POKE.tail, words(by));
      assert.equal(await client.receive(LIMIT), undefined);
      await until('the violation to be logged', () => violations() === before + 1, LIMIT);
    });
  }

  for (const [what, by] of [
    ['before what was written', -(4n << 20n)],
    ['behind what was written', 1n << 30n],
    ['to an odd place', 3n],
  ] as const) {
    it(`loses its session for a head of the replies ${what}`, async () => {
      const client = await greeted();
      assert.equal((await client.call(PING)).status, 0);
      client.poke(POKE.head, words(by));
      // The host looks there when the replies have no more room that it knows of: 2 MiB of them later.
      const enough = 1 + (2 << 20) / 64;
      client.send(
        Buffer.concat(
          Array.from({ length: enough }, (_, i) => frame({ opcode: PING, sequence: 2n + BigInt(i) })),
        ),
      );
      let answers = 0;
      while ((await client.receive(LIMIT)) !== undefined) answers++;
      assert.ok(answers < enough, `${answers} answers`);
    });
  }

  it('loses its session for a frame that is longer than what was published', async () => {
    const client = await greeted();
    const long = frame({ opcode: PING, sequence: 1n, bulk: Buffer.alloc(4096) });
    client.send(long.subarray(0, HEADER + 8));
    assert.equal(await client.receive(LIMIT), undefined);
  });

  it('gains nothing by changing a frame while it is read', async () => {
    const body = words(CONTEXT, 0n, 0n, 0n);
    const sound = frame({ opcode: op('cuMemcpyHtoD_v2'), flags: ONEWAY, sequence: 1n, body });
    for (const [at, value] of [
      [0, 0xffff_fff8],
      [16, 0xffff_ffff],
      [20, 0xffff_ffff],
      [20, 1024 * 1024],
      [4, op('cuLaunchKernel')],
      [8, 4],
      [HEADER, 0xffff_ffff],
    ] as const) {
      for (let round = 0; round < 4; round++) {
        const client = await greeted();
        const other = Buffer.from(sound);
        other.writeUInt32LE(value, at);
        client.poke(POKE.flicker, Buffer.concat(round % 2 === 0 ? [sound, other] : [other, sound]));
        client.send(frame({ opcode: PING, sequence: 2n }));
        const reply = await client.receive(LIMIT);
        if (reply !== undefined) assert.ok([1n, 2n].includes(reply.sequence), 'it saw one of the two');
        client.close();
      }
    }
  });

  it('gains nothing by changing the names and parameters of a call while they are looked at', async () => {
    const client = await greeted();
    assert.equal((await client.call(op('cuCtxCreate_v2'), words(CONTEXT, 0, 0))).status, 0);
    const call = (name: Buffer): Buffer =>
      frame({ opcode: op('cuModuleGetGlobal_v2'), sequence: 2n, body: words(7n), bulk: name });
    client.poke(
      POKE.flicker,
      Buffer.concat([call(Buffer.from('abcdefgh'.repeat(400))), call(Buffer.alloc(3200, 0))]),
    );
    assert.notEqual((await client.receive(LIMIT))?.status, 0);
  });

  it('may ring without end, and set the flags of sleepers as it likes', async () => {
    const client = await greeted();
    for (const flags of [1, 2, 0xffff_ffff]) {
      client.poke(POKE.sleeps, words(flags));
      client.poke(POKE.bell, Buffer.alloc(100_000, flags & 0xff));
      for (let i = 0; i < 20; i++) {
        assert.equal((await client.call(PING)).status, 0);
        client.poke(POKE.sleeps, words(flags));
      }
    }
  });

  it('leaves no descriptor at the host that it passed', async () => {
    const client = await greeted();
    const worker = await workerOf(host, client.pid);
    const open = (): number => readdirSync(`/proc/${worker}/fd`).length;
    const before = open();
    client.poke(POKE.pass, Buffer.alloc(300));
    assert.equal((await client.call(PING)).status, 0);
    await until('all but one to be closed', () => open() <= before + 1, LIMIT);
    assert.equal((await client.call(PING)).status, 0);
  });

  it('that stops in the middle blocks no other session', async () => {
    const client = await greeted();
    assert.equal((await client.call(PING)).status, 0);
    process.kill(client.pid, 'SIGSTOP');
    const shell = startShell({ VGPU_HOST: host.address });
    await askAll(shell, ['use 3']);
    assert.equal(await shell.end(), 0);
    process.kill(client.pid, 'SIGCONT');
    assert.equal((await client.call(PING)).status, 0);
  });

  it('has its frames carried out that were in the ring when it went', async () => {
    const { client, address } = await withMemory();
    const before = (await client.call(op('cuMemGetInfo_v2'), words(CONTEXT))).body.readBigUInt64LE(0);
    for (let i = 0; i < 2000; i++) {
      client.post(op('cuMemsetD8_v2'), words(CONTEXT, address, 4n * MIB, 1, 0));
    }
    client.close();
    await until('the session to end', () => sessionsNow(host) === 0, LIMIT);
    const { client: next } = await withMemory();
    assert.equal(
      (await next.call(op('cuMemGetInfo_v2'), words(CONTEXT))).body.readBigUInt64LE(0),
      before,
      'and all that it held is free',
    );
  });

  it('reads and writes through a shared region only what lies in it', async () => {
    const { client, address, region } = await withMemory();
    const span = (number: number, offset: bigint, length: bigint): Buffer => words(number, 0, offset, length);
    const read = async (bulk: Buffer, bytes: bigint): Promise<number> =>
      (await client.call(op('cuMemcpyDtoH_v2'), words(CONTEXT, address, bytes), bulk, SHARED_REGION)).status;
    const write = async (bulk: Buffer): Promise<number> => {
      client.post(op('cuMemcpyHtoD_v2'), words(CONTEXT, address), bulk, SHARED_REGION);
      return (await client.call(PING)).deferred;
    };
    const most = 0xffff_ffff_ffff_ffffn;
    for (const [what, bulk] of [
      ['no shared region', span(0, 0n, 8n)],
      ['a shared region that is not there', span(region + 1, 0n, 8n)],
      ['a number beyond all', span(0xffff_ffff, 0n, 8n)],
      ['nothing', span(region, 0n, 0n)],
      ['one byte over the end', span(region, 2n * MIB, 1n)],
      ['over the end', span(region, 8n, 2n * MIB)],
      ['more than a span may have', span(region, 0n, 65n * MIB)],
      ['a sum that wraps around', span(region, most, 8n)],
      ['a length that wraps around', span(region, 8n, most)],
      ['no whole span', span(region, 0n, 8n).subarray(0, 16)],
      ['more than a span', Buffer.concat([span(region, 0n, 8n), Buffer.alloc(8)])],
    ] as const) {
      assert.equal(await write(bulk), 1, `written from ${what}`);
      assert.equal(await read(bulk, 8n), 1, `read into ${what}`);
    }
    assert.equal(await write(span(region, MIB, MIB)), 0);
    assert.equal(await read(span(region, 0n, 4096n), 4096n), 0);
    assert.equal(await read(span(region, 0n, 4096n), 4097n), 1, 'more than there is room for');
    const filled = await client.call(
      op('cuMemcpyDtoH_v2'),
      words(CONTEXT, address, 100n),
      span(region, 8n, 4096n),
      SHARED_REGION,
    );
    assert.equal(filled.flags & SHARED_REGION, SHARED_REGION);
    assert.deepEqual(filled.bulk, span(region, 8n, 100n), 'told how much of it is filled');
  });

  it('makes device memory only of a shared region as it is, where no other memory can be, and keeps it so long', async () => {
    const { client, address, region } = await withMemory();
    const map = async (at: bigint, bytes: bigint, which = region): Promise<number> =>
      (await client.call(op('shared_region_map'), words(CONTEXT, at, bytes, which, 0))).status;
    const unmap = async (at: bigint): Promise<number> =>
      (await client.call(op('shared_region_unmap'), words(CONTEXT, at))).status;
    const mine = 0x7f00_0000_0000n;
    for (const [what, at, bytes, which] of [
      ['another shared region', mine, 2n * MIB, region + 1],
      ['no shared region', mine, 2n * MIB, 0],
      ['less than all of it', mine, MIB, region],
      ['more than all of it', mine, 4n * MIB, region],
      ['address 0', 0n, 2n * MIB, region],
      ['no page', mine + 8n, 2n * MIB, region],
      ['a device allocation', address, 2n * MIB, region],
      ["the devices' addresses", 0x2010_0000_0000n, 2n * MIB, region],
      ['their last page', 0x2000_0000_0000n - MIB, 2n * MIB, region],
      ["the reservations' addresses", 0x4ff0_0000_0000n, 2n * MIB, region],
      ["a kernel's shared memory", 0x7000_0000_0000n, 2n * MIB, region],
      ["a kernel's functions", 0x7300_0000_0000n, 2n * MIB, region],
      ['beyond a program', 0x8000_0000_0000n - MIB, 2n * MIB, region],
      ['a sum that wraps around', 0xffff_ffff_fff0_0000n, 2n * MIB, region],
    ] as const) {
      assert.equal(await map(at, bytes, which), 1, what);
    }
    assert.equal(await map(mine, 2n * MIB), 0);
    assert.equal(await map(mine + 8n * MIB, 2n * MIB), 1, 'it is device memory already');
    assert.equal(
      (await client.call(SHARED_REGION_DROP, words(region, 0))).status,
      3,
      'not while it is device memory',
    );
    client.post(op('cuMemFree_v2'), words(CONTEXT, mine));
    const read = await client.call(op('cuMemcpyDtoH_v2'), words(CONTEXT, mine, 4096n), Buffer.alloc(0));
    assert.deepEqual([read.status, read.deferred], [0, 1], 'nor is it freed as what it is not');
    client.post(op('cuMemcpyDtoD_v2'), words(CONTEXT, mine + MIB, address, MIB));
    assert.equal(await unmap(mine + MIB), 1);
    assert.equal(await unmap(mine), 0);
    assert.equal(await unmap(mine), 1);
    client.post(op('cuMemcpyDtoD_v2'), words(CONTEXT, mine, address, MIB)); // it is gone
    const dropped = await client.call(SHARED_REGION_DROP, words(region, 0));
    assert.deepEqual([dropped.status, dropped.deferred], [0, 1]);
  });

  it('moves managed variables only from memory that is still theirs', async () => {
    const { client, region } = await withMemory();
    const [module, lent, end] = [17n, 0x7f00_0000_0000n, 0x2100_0000_0000n];
    const image = Buffer.from(`.version 6.0
.target sm_60
.address_size 64
.visible .global .attribute(.managed) .align 4 .u32 word = 5;
.visible .global .align 4 .b8 rest[1048576];
`);
    const hash = createHash('sha256').update(image).digest();
    const size = words(BigInt(image.length));
    client.post(op('image_piece'), Buffer.concat([hash, size, words(0n)]), image);
    const loaded = await client.call(
      op('cuModuleLoadDataEx'),
      Buffer.concat([words(CONTEXT, module), hash, size]),
    );
    assert.deepEqual([loaded.status, loaded.body.readInt32LE(0)], [0, 0]);
    const told = await client.call(op('cuModuleGetGlobal_v2'), words(module), Buffer.from('word'));
    const data = told.body.readBigUInt64LE(0);
    const take = async (bytes: bigint): Promise<bigint> => {
      const made = await client.call(op('cuMemAlloc_v2'), words(CONTEXT, bytes));
      assert.equal(made.status, 0);
      return made.body.readBigUInt64LE(0);
    };
    const free = (at: bigint): void => client.post(op('cuMemFree_v2'), words(CONTEXT, at));
    free(data);
    // Addresses are given out in a circle: once around, so that something small comes to lie there.
    for (let left = end - data, step = 1n << 35n; left > 0n; ) {
      const bytes = left > step ? step : left / MIB > 0n ? (left / (2n * MIB)) * 2n * MIB : left;
      const at = await take(bytes);
      left = end - at - bytes;
      free(at);
    }
    assert.equal(await take(512n), data);
    const map = words(CONTEXT, lent, 2n * MIB, region, 0);
    assert.equal((await client.call(op('shared_region_map'), map)).status, 0);
    assert.equal((await client.call(op('managed_place'), words(CONTEXT, module, lent))).status, 1);
  });

  it('has no shared region for a call that looks into its bulk, nor for one without', async () => {
    const { client, address, region } = await withMemory();
    const bulk = words(region, 0, 0n, 64n);
    for (const [name, body] of [
      ['cuModuleGetGlobal_v2', words(7n)],
      ['read_fetch', words(CONTEXT)],
      ['cuMemGetInfo_v2', words(CONTEXT)],
      ['cuMemAlloc_v2', words(CONTEXT, 64n)],
    ] as const) {
      assert.equal((await client.call(op(name), body, bulk, SHARED_REGION)).status, 1, name);
    }
    assert.equal((await client.call(PING, Buffer.alloc(0), bulk, SHARED_REGION)).status, 4);
    client.post(op('cuMemsetD8_v2'), words(CONTEXT, address, 8n, 1, 0), bulk, SHARED_REGION);
    assert.equal((await client.call(PING)).deferred, 1);
  });

  it('shares no more than the limit, and what it gives back is free again', async () => {
    const { client, region } = await withMemory();
    const add = async (bytes: bigint): Promise<number> =>
      (await client.call(SHARED_REGION_ADD, words(bytes))).status;
    for (const bytes of [0n, SHARED, 0xffff_ffff_ffff_ffffn, 1n << 63n]) assert.equal(await add(bytes), 2);
    assert.equal(await add(SHARED - 2n * MIB), 0);
    assert.equal(await add(4096n), 2);
    assert.equal((await client.call(SHARED_REGION_DROP, words(region, 0))).status, 0);
    assert.equal((await client.call(SHARED_REGION_DROP, words(region, 0))).status, 3);
    assert.equal((await client.call(SHARED_REGION_DROP, words(0, 0))).status, 3);
    assert.equal((await client.call(SHARED_REGION_DROP, words(0xffff_ffff, 0))).status, 3);
    assert.equal(await add(2n * MIB), 0);
    for (let i = 0; i < 4; i++) {
      const { client: small } = await withMemory();
      let refused = 0;
      for (let made = 0; made < 8300; made++) {
        if ((await small.call(SHARED_REGION_ADD, words(4096n))).status !== 0) refused++;
      }
      assert.equal(refused, 8300 - 8191);
      small.close();
      if (process.env['VGPU_TEST_LONG'] !== '1') break;
    }
  });

  it('gets rings over a unix socket only if it asks, and the host gives them', async () => {
    for (const features of [0, 1, 2, 4, 0xffff_fff4]) {
      const client = await WireClient.open(socket, 'socket');
      clients.push(client);
      client.send(hello(1, { features }));
      const taken = (await client.receive())?.body.readUInt32LE(12) ?? 0;
      assert.equal(taken & 0x1a, 0, `rings, shared regions or mapped ones of features ${features}`);
      client.close(); // one peer does not get all sessions
    }
  });
});

describe('a guest that repeats a call beside managed variables', () => {
  const scratch = scratchDirectory();
  let host: Host;
  before(async () => {
    host = await startStandIn('maps,slow', { listen: `unix:${scratch.path}/s` });
  });
  after(async () => {
    await host.stop();
    scratch.remove();
  });

  it('gets no more bytes than its repeated call has room for', async () => {
    const [module, stream, NON_BLOCKING, NOT_READY] = [17n, 101n, 1, 600];
    const [WAIT_32, AT_LEAST] = [1, 0];
    const [bytes, room] = [64n << 10n, 8n];
    const client = await WireClient.greeted(`${scratch.path}/s`, 1, 'ring');
    const add = async (size: bigint): Promise<number> => {
      const made = await client.call(SHARED_REGION_ADD, words(size));
      assert.equal(made.status, 0);
      return made.body.readUInt32LE(0);
    };
    const take = async (size: bigint): Promise<bigint> =>
      (await client.call(op('cuMemAlloc_v2'), words(CONTEXT, size))).body.readBigUInt64LE(0);
    assert.equal((await client.call(op('cuCtxCreate_v2'), words(CONTEXT, 0, 0))).status, 0);
    client.post(op('cuStreamCreate'), words(CONTEXT, stream, NON_BLOCKING, 0));
    const image = Buffer.from(`.version 6.0
.target sm_60
.address_size 64
.visible .global .attribute(.managed) .align 4 .b8 table[16777216];
`);
    const hash = createHash('sha256').update(image).digest();
    const size = words(BigInt(image.length));
    client.post(op('image_piece'), Buffer.concat([hash, size, words(0n)]), image);
    const load = Buffer.concat([words(CONTEXT, module), hash, size]);
    assert.equal((await client.call(op('cuModuleLoadDataEx'), load)).body.readInt32LE(0), 0);
    const told = await client.call(op('cuModuleGetGlobal_v2'), words(module), Buffer.from('table'));
    const table = told.body.readBigUInt64LE(0);
    const page = table - (table % 4096n);
    const pages = await add(16n * MIB + 4096n);
    assert.equal((await client.call(op('managed_mirror'), words(CONTEXT, table, page, pages, 0))).status, 0);
    const [source, copy, region] = [await take(bytes), await take(bytes), await add(2n * MIB)];
    client.post(op('cuMemsetD8_v2'), words(CONTEXT, source, bytes, 0xab, 0));
    assert.equal((await client.call(op('cuCtxSynchronize'), words(CONTEXT))).status, 0);
    // The value is there already. From now on the host parks a call whose copies are not done.
    client.post(op('memory_op'), words(CONTEXT, stream, copy, 0n, WAIT_32, AT_LEAST));

    const body = words(CONTEXT, stream, source, bytes);
    /** Reads as thread 1. The next frame is there already, so the host does not wait for the copies. */
    const read = async (bulk?: Buffer): Promise<number> => {
      const call = { opcode: op('cuMemcpyDtoHAsync_v2'), lane: 1, body };
      client.send(
        Buffer.concat([
          client.frame(bulk === undefined ? call : { ...call, bulk, flags: SHARED_REGION }),
          client.frame({ opcode: PING, lane: 2 }),
        ]),
      );
      const [reply, ping] = [await client.receive(LIMIT), await client.receive(LIMIT)];
      assert.equal(ping?.opcode, PING);
      return reply?.status ?? -1;
    };
    assert.equal(await read(), NOT_READY, 'its bytes are there, and those of the variable are not');
    let status = NOT_READY;
    while (status === NOT_READY) status = await read(words(region, 0, 0n, room));
    const beyond = words(region, 0, room, bytes - room);
    client.post(op('cuMemcpyHtoD_v2'), words(CONTEXT, copy), beyond, SHARED_REGION);
    const found = await client.call(op('cuMemcpyDtoH_v2'), words(CONTEXT, copy, bytes - room));
    assert.ok(found.bulk.equals(Buffer.alloc(Number(bytes - room))), 'nothing is written beyond its room');
    assert.equal(status, 1, 'it is another call, which has no room');
    client.close();
    await until('the session to end', () => sessionsNow(host) === 0, LIMIT);
    assert.doesNotMatch(host.log(), /killed by signal|Sanitizer|runtime error/);
  });
});
