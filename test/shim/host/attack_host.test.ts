import assert from 'node:assert/strict';
import { after, afterEach, before, describe, it } from 'node:test';
import {
  askAll,
  type Host,
  scratchDirectory,
  sessionsNow,
  startHost,
  startShell,
  until,
} from '../shim_host.js';
import {
  CUDA,
  frame,
  HEADER,
  hello,
  noise,
  ONEWAY,
  OVER,
  op,
  WireClient,
  words,
} from '../wire/wire_client.js';

const CONTEXT = 100n;

describe('a guest that misbehaves', () => {
  const scratch = scratchDirectory();
  const socket = `${scratch.path}/s`;
  let host: Host;
  const clients: WireClient[] = [];

  const open = async (): Promise<WireClient> => {
    const client = await WireClient.open(socket);
    clients.push(client);
    return client;
  };
  const greeted = async (): Promise<WireClient> => {
    const client = await WireClient.greeted(socket);
    clients.push(client);
    return client;
  };
  const withContext = async (): Promise<WireClient> => {
    const client = await greeted();
    assert.equal((await client.call(op('cuCtxCreate_v2'), words(CONTEXT, 0, 0))).status, 0);
    return client;
  };

  before(async () => {
    host = await startHost({
      listen: `unix:${socket}`,
      args: ['--session-handles', '200', '--sessions', '20'],
    });
  });
  afterEach(async () => {
    for (const client of clients.splice(0)) client.close();
    // Whatever a guest did, the next one is served.
    const shell = startShell({ VGPU_HOST: host.address });
    try {
      await askAll(shell, ['use 1']);
      assert.equal(await shell.end(), 0);
    } finally {
      shell.kill();
    }
    await until('the sessions to end', () => sessionsNow(host) === 0);
    assert.equal(host.running(), true);
    assert.doesNotMatch(host.log(), /killed by signal|Sanitizer|runtime error/);
  });
  after(async () => {
    assert.equal(await host.stop(), 0);
    scratch.remove();
  });

  it('is let go when it does not greet as it must', async () => {
    const bad: readonly Buffer[] = [
      Buffer.from('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n'.padEnd(200, 'x')),
      Buffer.alloc(400),
      Buffer.alloc(400, 0xff),
      frame({ opcode: 2, sequence: 0n }),
      frame({ opcode: 1, sequence: 0n, body: Buffer.alloc(20) }),
      frame({ opcode: 1, sequence: 5n, body: Buffer.alloc(112) }),
    ];
    for (const bytes of bad) {
      const client = await open();
      client.send(bytes);
      assert.equal(await client.receive(), undefined);
    }
  });

  it('gets the reason when version, library or magic do not match', async () => {
    for (const [bytes, status] of [
      [hello(1, { major: 2 }), 1],
      [hello(1, { magic: 'VGPUWIRX' }), 1],
      [hello(7), 2],
      [hello(1, { join: 5n }), 2],
    ] as const) {
      const client = await open();
      client.send(bytes);
      assert.equal((await client.receive())?.status, status);
      assert.equal(await client.receive(), undefined);
    }
  });

  it('loses its session for a frame whose sizes do not agree or are too large', async () => {
    const sound = frame({ opcode: 2, sequence: 1n });
    const spoiled = (change: (bytes: Buffer) => void): Buffer => {
      const bytes = Buffer.from(sound);
      change(bytes);
      return bytes;
    };
    for (const bytes of [
      spoiled((b) => b.writeUInt32LE(0, 0)),
      spoiled((b) => b.writeUInt32LE(HEADER - 8, 0)),
      spoiled((b) => b.writeUInt32LE(0xffff_fff8, 0)),
      spoiled((b) => b.writeUInt32LE(0xffff_ffff, 16)),
      spoiled((b) => b.writeUInt32LE(0xffff_ffff, 20)),
      spoiled((b) => {
        b.writeUInt32LE(HEADER + 64 * 1024 * 1024, 0);
        b.writeUInt32LE(64 * 1024 * 1024, 20);
      }),
      spoiled((b) => b.writeUInt32LE(0x8000_0000, 8)),
      // With rings a span is agreed upon, and a call that can have none refuses it.
      ...(OVER === 'socket' ? [spoiled((b) => b.writeUInt32LE(4, 8))] : []),
      spoiled((b) => b.writeUInt32LE(1, 8)),
      spoiled((b) => b.writeBigUInt64LE(9n, 24)),
    ]) {
      const client = await greeted();
      client.send(bytes);
      assert.equal(await client.receive(), undefined, bytes.subarray(0, HEADER).toString('hex'));
    }
  });

  it('gets an error for calls that do not exist, and continues', async () => {
    const client = await withContext();
    assert.equal((await client.call(CUDA | 0xffff)).status, 801);
    assert.equal((await client.call(op('cuLaunchKernel'))).status, 801);
    assert.equal((await client.call(0x20001)).status, 3);
    assert.equal((await client.call(0x30001)).status, 4);
    assert.equal((await client.call(77)).status, 4);
    assert.equal((await client.call(op('cuMemGetInfo_v2'))).status, 1, 'no body');
    assert.equal((await client.call(op('cuMemGetInfo_v2'), Buffer.alloc(64))).status, 1, 'body too long');
    assert.equal(
      (await client.call(op('cuMemGetInfo_v2'), words(CONTEXT), Buffer.alloc(8))).status,
      1,
      'bulk',
    );
    assert.equal(
      (await client.call(op('cuMemFree_v2'), words(CONTEXT, 1n))).status,
      1,
      'a one-way call waited for',
    );
    assert.equal((await client.call(op('cuMemGetInfo_v2'), words(CONTEXT))).status, 0);
  });

  it('cannot use handles that are none or of another type', async () => {
    const client = await withContext();
    client.post(op('cuStreamCreate'), words(CONTEXT, 200n, 0, 0));
    for (const context of [0n, 1n, 200n, 0xffff_ffff_ffff_ffffn]) {
      assert.equal((await client.call(op('cuMemGetInfo_v2'), words(context))).status, 201);
      assert.equal((await client.call(op('cuMemAlloc_v2'), words(context, 4096n))).status, 201);
    }
    assert.equal((await client.call(op('cuStreamSynchronize'), words(CONTEXT, CONTEXT))).status, 400);
    assert.equal((await client.call(op('cuEventQuery'), words(200n))).status, 400);
    assert.equal((await client.call(op('cuCtxCreate_v2'), words(CONTEXT, 0, 0))).status, 1, 'number taken');
    assert.equal((await client.call(op('cuCtxCreate_v2'), words(0n, 0, 0))).status, 2);
    assert.equal((await client.call(op('cuCtxCreate_v2'), words(101n, 32, 0))).status, 101);
    assert.equal((await client.call(op('cuCtxCreate_v2'), words(101n, 0xffff_ffff, 0))).status, 101);
    assert.equal((await client.call(4, words(32, 0))).status, 3, 'usage of a device that is not there');
    assert.equal((await client.call(3, words(0xffff_ffff, 0xffff_ffff))).status, 3);
  });

  it('cannot copy boxes, wait for values, fetch reads or map memory that are not its own', async () => {
    const client = await withContext();
    const address = (await client.call(op('cuMemAlloc_v2'), words(CONTEXT, 4096n))).body.readBigUInt64LE(0);
    const most = 0xffff_ffff_ffff_ffffn;
    const GRAIN = 2n << 20n;
    const denied = async (what: string, opcode: number, body: Buffer, status: number, bulk?: Buffer) => {
      client.post(opcode, body, bulk);
      const told = await client.call(op('cuCtxSynchronize'), words(CONTEXT));
      assert.equal(told.deferred, status, what);
      assert.equal(told.status, 0, what);
    };
    const box = (...values: bigint[]) => words(CONTEXT, 0n, ...values);
    for (const [what, values] of [
      ['endless rows', [address, 1n, 0n, address, 1n, 0n, 1n, most, 1n]],
      ['rows on top of each other', [address, 1n, 0n, address, 1n, 0n, 64n, 8n, 1n]],
      ['endless slices', [address, 64n, 64n, address, 64n, 64n, 64n, 1n, most]],
      ['a width of nothing', [address, 64n, 64n, address, 64n, 64n, 0n, 1n, 1n]],
      ['a step over the end', [address, 4096n, 0n, address, 64n, 0n, 64n, 2n, 1n]],
      ['a sum that wraps around', [address, most, 0n, address, most, 0n, 64n, 3n, 1n]],
    ] as const) {
      await denied(what, op('copy_box'), box(...values), 1);
    }
    await denied(
      'rows that are not there',
      op('write_rows'),
      box(address, 64n, 64n, 4n),
      1,
      Buffer.alloc(64),
    );
    await denied('too many rows', op('write_rows'), box(address, 64n, 64n, 65n), 1, Buffer.alloc(64 * 65));
    assert.equal((await client.call(op('read_rows'), box(address, 1n, 1n, most))).status, 1);
    assert.equal((await client.call(op('read_rows'), box(address, 64n, most, 64n))).status, 1);
    const fill = (pitch: bigint, width: bigint, height: bigint, element: number) =>
      words(CONTEXT, 0n, address, pitch, width, height, 0, element);
    await denied('a fill of odd elements', op('cuMemsetD2D8Async'), fill(64n, 4n, 4n, 3), 1);
    await denied('a fill without end', op('cuMemsetD2D8Async'), fill(64n, 4n, most, 4), 1);
    await denied('an unknown operation', op('memory_op'), words(CONTEXT, 0n, address, 0n, 77, 0), 1);
    await denied('a value elsewhere', op('memory_op'), words(CONTEXT, 0n, address - 4n, 0n, 2, 0), 1);
    await denied('a value across the end', op('memory_op'), words(CONTEXT, 0n, address + 4094n, 0n, 2, 0), 1);
    await denied('a read elsewhere', op('read_later'), words(CONTEXT, 0n, 0n, 8n, 1n), 1);
    await denied('a read too long', op('read_later'), words(CONTEXT, 0n, address, most, 1n), 1);
    assert.equal((await client.call(op('read_fetch'), words(CONTEXT), Buffer.alloc(7))).status, 1);
    const unknown = await client.call(op('read_fetch'), words(CONTEXT), words(99n));
    assert.equal(unknown.status, 0);
    assert.equal(unknown.bulk.readBigUInt64LE(0), most, 'a ticket that was not given out');
    for (const [size, alignment] of [
      [0n, 0n],
      [4096n, 0n],
      [GRAIN, 3n],
      [most - GRAIN + 1n, 0n],
      [GRAIN, 1n << 63n],
    ] as const) {
      const body = words(size, alignment, 0n);
      assert.equal((await client.call(op('cuMemAddressReserve'), body)).status, 1, `${size} ${alignment}`);
    }
    const reserved = await client.call(op('cuMemAddressReserve'), words(GRAIN, 0n, 0n));
    const base = reserved.body.readBigUInt64LE(0);
    assert.equal((await client.call(op('cuMemCreate'), words(7n, GRAIN, 99, 0))).status, 101);
    assert.equal((await client.call(op('cuMemCreate'), words(0n, GRAIN, 0, 0))).status, 1);
    assert.equal((await client.call(op('cuMemCreate'), words(7n, GRAIN, 0, 0))).status, 0);
    assert.equal((await client.call(op('cuMemCreate'), words(7n, GRAIN, 0, 0))).status, 1, 'taken');
    assert.equal(
      (await client.call(op('cuMemMap'), words(base + GRAIN, GRAIN, 0n, 7n))).status,
      1,
      'a mapping beyond',
    );
    assert.equal(
      (await client.call(op('cuMemMap'), words(address, GRAIN, 0n, 7n))).status,
      1,
      'a mapping over memory',
    );
    assert.equal(
      (await client.call(op('cuMemMap'), words(base, GRAIN, 0n, 8n))).status,
      1,
      'a mapping of nothing',
    );
    assert.equal((await client.call(op('cuMemMap'), words(base, GRAIN, GRAIN, 7n))).status, 1, 'an offset');
    await denied('nothing to unmap', op('cuMemUnmap'), words(base, GRAIN), 1);
    await denied('access to nothing', op('cuMemSetAccess'), words(base, GRAIN, 0, 3), 1);
    assert.equal((await client.call(op('cuMemMap'), words(base, GRAIN, 0n, 7n))).status, 0);
    assert.equal((await client.call(op('cuMemcpyDtoH_v2'), words(CONTEXT, base, 8n))).status, 1, 'no access');
    await denied('a reservation in use', op('cuMemAddressFree'), words(base, GRAIN), 1);
    await denied('a reservation freed as memory', op('cuMemFree_v2'), words(CONTEXT, base), 1);
    client.post(op('cuMemSetAccess'), words(base, GRAIN, 0, 3));
    assert.equal((await client.call(op('cuMemcpyDtoH_v2'), words(CONTEXT, base, 8n))).status, 0);
    assert.equal((await client.call(op('cuMemcpyDtoH_v2'), words(CONTEXT, base + GRAIN - 4n, 8n))).status, 1);
  });

  it('cannot name devices, contexts, pools and tokens that it does not have', async () => {
    const client = await withContext();
    const [POOL, OPENED] = [60n, 61n];
    assert.equal((await client.call(op('cuMemPoolCreate'), words(POOL, 0n, 0, 0))).status, 0);
    for (const [name, body, status] of [
      ['cuDeviceGetP2PAttribute', words(2, 0, 0, 0), 101],
      ['cuDeviceGetP2PAttribute', words(2, 0, 32, 0), 101],
      ['cuDeviceGetP2PAttribute', words(2, 0xffff_ffff, 0, 0), 101],
      ['cuCtxEnablePeerAccess', words(CONTEXT, CONTEXT), 217],
      ['cuCtxEnablePeerAccess', words(CONTEXT, 9999n), 201],
      ['cuCtxEnablePeerAccess', words(9999n, CONTEXT), 201],
      ['cuCtxDisablePeerAccess', words(CONTEXT, CONTEXT), 705],
      ['cuCtxDisablePeerAccess', words(CONTEXT, POOL), 201],
      ['cuMemPoolSetAccess', words(POOL, 1, 3), 101],
      ['cuMemPoolSetAccess', words(POOL, 0xffff_ffff, 3), 101],
      ['cuMemPoolSetAccess', words(POOL, 0, 2), 1],
      ['cuMemPoolSetAccess', words(9999n, 0, 3), 1],
      ['open_memory', words(CONTEXT, 1n, 2n, 512n, 0n, 32, 0), 1],
      ['share_pool', words(POOL), 801],
      ['share_pool', words(9999n), 1],
      ['open_pool', words(OPENED, 1n, 2n, 0, 0), 801],
    ] as const) {
      assert.equal((await client.call(op(name), body)).status, status, `${name} ${body.toString('hex')}`);
    }
  });

  it('cannot open gates outside of its own words, nor have more words than there are gates', async () => {
    const client = await withContext();
    const made = await client.call(op('cuMemAlloc_v2'), words(CONTEXT, 4096n));
    const memory = made.body.readBigUInt64LE(0);
    assert.notEqual((await client.call(op('gate_words'), words(CONTEXT, 0, 0))).status, 0);
    assert.notEqual((await client.call(op('gate_words'), words(CONTEXT, 0xffff_ffff, 0))).status, 0);
    const gates = (await client.call(op('gate_words'), words(CONTEXT, 4, 0))).body.readBigUInt64LE(0);
    for (const [address, status] of [
      [gates, 0],
      [gates + 1n, 1],
      [1n << 60n, 1],
    ] as const) {
      client.post(op('gate_open'), words(CONTEXT, address, 1, 0));
      assert.equal((await client.call(op('cuCtxSynchronize'), words(CONTEXT))).deferred, status);
    }
    assert.equal((await client.call(op('cuMemcpyDtoH_v2'), words(CONTEXT, memory, 8n))).status, 0);
  });

  it('cannot read or write outside its own memory', async () => {
    const client = await withContext();
    const made = await client.call(op('cuMemAlloc_v2'), words(CONTEXT, 4096n));
    const address = made.body.readBigUInt64LE(0);
    const other = await withContext();
    for (const [at, bytes] of [
      [address, 4097n],
      [address - 1n, 1n],
      [address + 4096n, 1n],
      [0n, 8n],
      [address, 0xffff_ffff_ffff_ffffn],
      [0xffff_ffff_ffff_fff0n, 32n],
      [address + 8n, -8n],
    ] as const) {
      assert.equal(
        (await client.call(op('cuMemcpyDtoH_v2'), words(CONTEXT, at, bytes))).status,
        1,
        `${at} ${bytes}`,
      );
      client.post(op('cuMemcpyDtoD_v2'), words(CONTEXT, address, at, bytes));
      assert.equal((await client.call(2)).deferred, 1, 'told with the next reply');
      assert.equal((await client.call(2)).deferred, 0, 'told once');
    }
    client.post(op('cuMemsetD32_v2'), words(CONTEXT, address, 0x4000_0000_0000_0001n, 7, 0));
    assert.equal((await client.call(2)).deferred, 1, 'a count that overflows');
    client.post(op('cuMemcpyHtoD_v2'), words(CONTEXT, address + 4090n), Buffer.alloc(7, 1));
    assert.equal((await client.call(2)).deferred, 1);
    assert.equal(
      (await other.call(op('cuMemcpyDtoH_v2'), words(CONTEXT, address, 16n))).status,
      1,
      "another's",
    );
    const read = await client.call(op('cuMemcpyDtoH_v2'), words(CONTEXT, address, 4096n));
    assert.deepEqual(read.bulk, Buffer.alloc(4096), 'nothing of all that was written');
  });

  it('cannot make more handles or sessions than the limits', async () => {
    const client = await withContext();
    for (let i = 0n; i < 250n; i++) client.post(op('cuEventCreate'), words(CONTEXT, 1000n + i, 0, 0));
    assert.equal((await client.call(2)).deferred, 2, 'CUDA_ERROR_OUT_OF_MEMORY');
    assert.equal((await client.call(op('cuMemAlloc_v2'), words(CONTEXT, 64n))).status, 2);
    client.post(op('cuCtxDestroy_v2'), words(CONTEXT));
    assert.equal(
      (await client.call(op('cuCtxCreate_v2'), words(5n, 0, 0))).status,
      0,
      'all gone with the context',
    );
    const more: WireClient[] = [];
    for (let i = 0; i < 9; i++) more.push(await greeted()); // half of them are for other peers
    const late = await open();
    late.send(hello());
    assert.equal((await late.receive())?.status, 7, 'told that it has as many as it may');
    assert.equal(await late.receive(), undefined);
    await until('the refusal to be logged', () =>
      host.log().includes('it has 10 sessions, half of --sessions'),
    );
  });

  it('may send any bytes at all', async () => {
    const random = noise(20_260_101);
    for (let round = 0; round < 60; round++) {
      const client = round % 2 === 0 ? await greeted() : await withContext();
      const start = round % 2 === 0 ? 1n : 2n;
      for (let i = 0n; i < 30n; i++) {
        // Sound frames with random contents, so that they reach the handlers; now and then an unsound one.
        const opcode = random() % 3 === 0 ? random() : CUDA | (random() % 900);
        const body = Buffer.alloc((random() % 6) * 8);
        for (let at = 0; at < body.length; at += 4)
          body.writeUInt32LE(random() % 2 === 0 ? random() : random() % 300, at);
        const bytes = frame({
          opcode,
          flags: random() % 2 === 0 ? ONEWAY : 0,
          sequence: start + i,
          body,
          bulk: Buffer.alloc(random() % 100, random() & 0xff),
        });
        if (random() % 200 === 0) bytes[random() % bytes.length] = random() & 0xff;
        client.send(bytes);
      }
      client.close();
    }
  });

  it('that goes away in the middle of a frame leaves nothing behind', async () => {
    const client = await withContext();
    assert.equal((await client.call(op('cuMemAlloc_v2'), words(CONTEXT, 1n << 30n))).status, 0);
    const whole = frame({
      opcode: op('cuMemcpyHtoD_v2'),
      flags: ONEWAY,
      sequence: 3n,
      body: words(CONTEXT, 0n),
      bulk: Buffer.alloc(100_000),
    });
    client.send(whole.subarray(0, 50_000));
    client.close();
    await until('the session to end', () => sessionsNow(host) === 0);
    const next = await withContext();
    const info = await next.call(op('cuMemGetInfo_v2'), words(CONTEXT));
    assert.equal(info.body.readBigUInt64LE(0), info.body.readBigUInt64LE(8), 'all memory is free');
  });
});
