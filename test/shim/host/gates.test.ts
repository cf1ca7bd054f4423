/**
 * Streams that wait for host functions of the program, on a device whose streams share one hardware channel and whose
 * driver waits for the device when memory is freed. The driver is the stand-in (programs/stand_in_driver.c).
 */
import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { runProgram } from '../cuda/private_programs.js';
import { builtFile, type Host, SHIM, scratchDirectory, VARIANT } from '../shim_host.js';
import { hello, op, type Reply, WireClient, words } from '../wire/wire_client.js';
import { startStandIn } from './stand_in.js';

const cases = [
  ['gate_calls', 'frees', 'and memory is freed beside sixteen of them'],
  ['gate_calls', 'maps', 'and memory is mapped where other memory was unmapped'],
  ['gate_calls', 'launches', 'and more kernels are launched than the queue of a channel holds'],
  ['gate_calls', 'contexts', 'and another thread begins a context that waits for freed memory'],
  ['gate_calls', 'graphs', 'and a graph is destroyed whose launch is behind one of them'],
  ['gate_calls', 'conditions', 'and a graph with conditional nodes is changed, destroyed and created again'],
  ['gate_calls', 'limits', 'and the stack limit of the device is changed'],
  ['gate_calls', 'first_uses', 'and code is loaded at its first use'],
  ['gate_calls', 'upload', 'and memory is uploaded to another stream'],
  ['gate_calls', 'upload_pinned', 'and pinned memory is uploaded'],
  ['gate_calls', 'uploads', 'and eight threads upload more than the host keeps'],
  ['gate_calls', 'uploads_elsewhere', 'and memory is uploaded after such uploads in another context'],
  ['gate_calls', 'allocates', 'and memory is allocated when little is left'],
  ['gate_calls', 'many_allocate', 'and twenty threads allocate memory'],
  ['gate_calls', 'ends', 'and a context ends in which a thread allocates memory'],
  ['gate_calls', 'local_memory', 'and a kernel needs more local memory than those before'],
  ['gate_calls', 'always_held', 'and such a kernel is launched beside one function after another'],
  ['gate_calls', 'deep_graph', 'and a graph has such a kernel'],
  [
    'gate_calls',
    'limit_again',
    'and such a kernel is launched after the program has set the stack limit back',
  ],
  [
    'gate_calls',
    'instantiated',
    'and a graph is instantiated until another thread has launched an earlier one',
  ],
  ['gate_calls', 'reads', 'and memory and an array are read'],
  ['gate_calls', 'exchanged', 'and such kernels come into an executable'],
  ['gate_calls', 'beside_capture', 'and such a kernel is launched beside a capture'],
  ['host_functions', 'queues_behind', 'and work is queued behind the function'],
  ['host_functions', 'many_in_a_row', 'and thousands of functions run in their order'],
] as const;

describe('streams that wait for host functions on hardware', () => {
  const scratch = scratchDirectory();
  let host: Host;
  before(async () => {
    host = await startStandIn('hardware', { listen: `unix:${scratch.path}/s` });
  });
  after(async () => {
    await host.stop();
    scratch.remove();
  });

  for (const [program, name, sentence] of cases) {
    it(`go on, ${sentence}`, () => check(host, program, name));
  }

  it(
    'leave no names of functions in the host that were asked for meanwhile',
    {
      skip: VARIANT !== 'shim' && 'sanitizers keep freed memory; they report what is not freed',
    },
    () => check(host, 'gate_calls', 'names'),
  );
});

describe('managed variables beside streams that wait for host functions on hardware', () => {
  const scratch = scratchDirectory();
  let host: Host;
  before(async () => {
    host = await startStandIn('hardware,maps', { listen: `unix:${scratch.path}/s` });
  });
  after(async () => {
    await host.stop();
    scratch.remove();
  });
  for (const [name, sentence] of [
    ['managed', 'move when a call waits'],
    ['managed_queries', 'move when a query says that a stream is idle'],
    ['managed_many', 'move when more pieces have changed than the queue of a channel holds'],
  ] as const) {
    it(sentence, () => check(host, 'gate_calls', name));
  }
});

for (const [fault, name, sentence] of [
  ['unrecorded', 'unrecorded', 'keeps the bytes of an upload whose event the driver did not record'],
  [
    'maps,unordered=1',
    'managed_unordered',
    'runs no kernel without the bytes of managed variables that the program has changed',
  ],
  ['maps,uncopied', 'managed_uncopied', 'copies changed bytes of managed variables again when a copy fails'],
  [
    'maps,uncopied',
    'managed_elsewhere',
    'launches a kernel when managed variables of another context cannot be copied',
  ],
  ['maps,unasked', 'managed_unasked', 'launches a kernel when another context has a fault'],
  ['maps,unordered=100', 'managed_rooms', 'has room again when uploads fail before they take their room'],
  ['uncurrent', 'uncurrent', 'stops counting memory when the driver does not make its context current'],
  ['pools', 'pool_ends', 'counts the memory of a destroyed pool until the driver has destroyed it'],
  ['threadless', 'ends', 'undoes an allocation whose context has ended, when no thread can be started'],
] as const) {
  const skip = fault === 'threadless' && VARIANT !== 'shim' && 'sanitizers need the memory that is refused';
  it(`the host ${sentence}`, { skip }, async (t) => {
    const scratch = scratchDirectory();
    t.after(() => scratch.remove());
    const listen = `unix:${scratch.path}/s`;
    const host = await startStandIn(`hardware,${fault}`, {
      listen,
      args: ['--session-memory', String(256 * MIB), '--session-outstanding', String(MIB)],
    });
    t.after(() => host.stop());
    await check(host, 'gate_calls', name);
  });
}

/** VGPU_FEATURE_PARK, of shim-src/wire/frame.h. */
const PARK = 0x8000;
const PING = 2;
const CONTEXT = 10n;
const STREAM = 100n;
const NON_BLOCKING = 1;
const MIB = 1 << 20;
/** A session has room for this many uploads of 1 MiB. */
const UPLOADS = 64;
/** Bytes of a read that needs twice as much memory at the host. */
const READ = 129 << 10;
/** An operation of memory_op, and CU_STREAM_WAIT_VALUE_GEQ. */
const [WAIT_32, AT_LEAST] = [1, 0];

describe('the room for uploads beside a stream that waits', () => {
  const scratch = scratchDirectory();
  let host: Host;
  let client: WireClient;
  let memory: bigint;
  let word: bigint;

  before(async () => {
    host = await startStandIn('hardware', { listen: `unix:${scratch.path}/s` });
  });
  beforeEach(async () => {
    client = await WireClient.open(`${scratch.path}/s`, 'socket');
    client.send(hello(1, { features: PARK }));
    assert.equal((await next()).status, 0);
    assert.equal((await client.call(op('cuCtxCreate_v2'), words(CONTEXT, 0, 0))).status, 0);
    client.post(op('cuStreamCreate'), words(CONTEXT, STREAM, NON_BLOCKING, 0));
    word = (await client.call(op('gate_words'), words(CONTEXT, 1, 0))).body.readBigUInt64LE(0);
    memory = (await client.call(op('cuMemAlloc_v2'), words(CONTEXT, BigInt(MIB)))).body.readBigUInt64LE(0);
  });
  afterEach(() => client.close());
  after(async () => {
    await host.stop();
    scratch.remove();
  });

  const next = async (): Promise<Reply> => {
    const reply = await client.receive();
    assert.ok(reply !== undefined, 'the host closed');
    return reply;
  };
  const close = (): void => client.post(op('memory_op'), words(CONTEXT, STREAM, word, 1n, WAIT_32, AT_LEAST));
  const open = (): void => client.post(op('gate_open'), words(CONTEXT, word, 1, 0));
  const ask = (lane: number): void => client.ask(lane, op('upload_room'), words(CONTEXT, BigInt(MIB)));
  const upload = (lane: number, to = memory): void =>
    client.post(op('cuMemcpyHtoD_v2'), words(CONTEXT, to), Buffer.alloc(MIB, 7), 0, lane);
  const takeAll = async (): Promise<void> => {
    for (let lane = 1; lane <= UPLOADS; lane++) {
      ask(lane);
      assert.equal((await next()).status, 0);
    }
  };

  it('is free again when the uploads that use it fail, also if their threads make no further call', async () => {
    close();
    await takeAll();
    for (let lane = 1; lane <= UPLOADS; lane++) upload(lane, 1n);
    ask(UPLOADS + 1);
    assert.equal((await next()).status, 0);
    open();
    assert.equal((await client.call(op('cuStreamSynchronize'), words(CONTEXT, STREAM))).status, 0);
  });

  for (const size of [MIB, 256 << 10]) {
    it(`is not that of reads that a program posts, beside uploads of ${size >> 10} KiB`, async () => {
      const read = async (tickets: readonly bigint[]): Promise<void> => {
        for (const ticket of tickets)
          client.post(op('read_later'), words(CONTEXT, STREAM, memory, BigInt(READ), ticket));
        const { status, deferred } = await client.call(PING);
        assert.deepEqual([status, deferred], [0, 0]);
      };
      const bring = async (tickets: readonly bigint[]): Promise<void> => {
        assert.equal((await client.call(op('cuStreamSynchronize'), words(CONTEXT, STREAM))).status, 0);
        for (const ticket of tickets) {
          const { status, bulk } = await client.call(op('read_fetch'), words(CONTEXT), words(ticket));
          assert.equal(status, 0);
          assert.equal(bulk.readBigUInt64LE(0), BigInt(READ));
        }
      };
      const tickets = Array.from({ length: Math.floor((8 * MIB) / READ) }, (_, i) => BigInt(i + 1));
      await read(tickets); // leaves spare memory, which uploads must not take
      await bring(tickets);
      close();
      const uploads = (UPLOADS * MIB) / size;
      for (let lane = 1; lane <= uploads; lane++) {
        client.ask(lane, op('upload_room'), words(CONTEXT, BigInt(size)));
        assert.equal((await next()).status, 0);
        client.post(
          op('cuMemcpyHtoDAsync_v2'),
          words(CONTEXT, STREAM, memory),
          Buffer.alloc(size, 7),
          0,
          lane,
        );
      }
      await read(tickets);
      open();
      await bring(tickets);
    });
  }

  it('is reserved before the stream waits, too', async () => {
    await takeAll();
    ask(UPLOADS + 1);
    client.ask(UPLOADS + 2, PING, Buffer.alloc(0));
    assert.equal((await next()).opcode, PING, 'there is no room yet');
    close();
    for (let lane = 1; lane <= UPLOADS; lane++) upload(lane);
    open();
    assert.equal((await next()).status, 0);
    upload(UPLOADS + 1);
    assert.equal((await client.call(op('cuCtxSynchronize'), words(CONTEXT))).status, 0);
  });
});

async function check(host: Host, program: string, name: string): Promise<void> {
  const ended = await runProgram(builtFile(`programs/${program}`), [name], {
    env: { VGPU_HOST: host.address, LD_LIBRARY_PATH: SHIM, HOST_PID: String(host.pid) },
    limit: 60_000,
  });
  assert.equal(ended.code, 0, ended.stdout + ended.stderr);
}
