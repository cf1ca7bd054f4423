/**
 * Calls that wait are parked at the host (host/session/parking.h): other frames are served meanwhile, and each call is
 * answered once, when it is done. A guest without VGPU_FEATURE_PARK is told NOT_READY, and makes the call again.
 */
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, it } from 'node:test';
import { runProgram } from '../cuda/private_programs.js';
import {
  builtFile,
  type Host,
  isIdle,
  SHIM,
  scratchDirectory,
  sessionsNow,
  startChain,
  startHost,
  until,
} from '../shim_host.js';
import { freePort } from '../support/free_port.js';
import { frame, hello, ONEWAY, op, type Reply, WireClient, words } from './wire_client.js';

/** VGPU_FEATURE_RESUME and _PARK. */
const RESUME = 0x800;
const PARK = 0x8000;
const PING = 2;
const OUT_OF_MEMORY = 2;
const NOT_READY = 600;
const CONTEXT = 1n;
const [STREAM, OTHER] = [100n, 101n];
const NON_BLOCKING = 1;
/** As struct vgpu_parking of the host has it. */
const MOST_PARKED = 4096;

/** The operations of memory_op, and CU_STREAM_WAIT_VALUE_GEQ. */
const [WAIT_32, WRITE_32, AT_LEAST] = [1, 2, 0];

/** A session with two streams and a word of device memory, which is 0. */
class Guest {
  #sequence = 1n;
  word = 0n;
  readonly client: WireClient;
  readonly session: bigint;
  readonly secret: bigint;
  constructor(client: WireClient, session: bigint, secret: bigint) {
    this.client = client;
    this.session = session;
    this.secret = secret;
  }

  static async greeted(path: string, features: number): Promise<Guest> {
    const client = await WireClient.open(path, 'socket');
    client.send(hello(1, { features, received: 0n }));
    const welcome = await client.receive();
    assert.equal(welcome?.status, 0);
    const agreed = welcome?.body.readUInt32LE(12) ?? 0;
    assert.equal(agreed & PARK, features & PARK);
    const guest = new Guest(
      client,
      welcome?.body.readBigUInt64LE(32) ?? 0n,
      welcome?.body.readBigUInt64LE(40) ?? 0n,
    );
    assert.equal((await guest.call(op('cuCtxCreate_v2'), words(CONTEXT, 0, 0))).status, 0);
    for (const stream of [STREAM, OTHER])
      guest.post(op('cuStreamCreate'), words(CONTEXT, stream, NON_BLOCKING, 0));
    const allocated = await guest.call(op('cuMemAlloc_v2'), words(CONTEXT, 4n));
    assert.deepEqual([allocated.status, allocated.deferred], [0, 0]);
    guest.word = allocated.body.readBigUInt64LE(0);
    guest.post(op('cuMemsetD8_v2'), words(CONTEXT, guest.word, 4n, 0, 0));
    return guest;
  }

  /** Goes on over another connection. */
  over(client: WireClient): Guest {
    const guest = new Guest(client, this.session, this.secret);
    guest.word = this.word;
    guest.#sequence = this.#sequence;
    return guest;
  }

  post(opcode: number, body: Buffer): void {
    this.client.send(frame({ opcode, flags: ONEWAY, sequence: this.#sequence++, body }));
  }
  /** Sends a waiting call, and gives its sequence. */
  ask(opcode: number, body: Buffer = Buffer.alloc(0), lane = 1): bigint {
    this.client.send(frame({ opcode, sequence: this.#sequence, lane, body }));
    return this.#sequence++;
  }
  async next(): Promise<Reply> {
    const reply = await this.client.receive();
    assert.ok(reply !== undefined, 'the host closed');
    return reply;
  }
  async call(opcode: number, body: Buffer = Buffer.alloc(0), lane = 1): Promise<Reply> {
    const sequence = this.ask(opcode, body, lane);
    const reply = await this.next();
    assert.equal(reply.sequence, sequence);
    return reply;
  }

  waitFor(value: number): void {
    this.post(op('memory_op'), words(CONTEXT, STREAM, this.word, BigInt(value), WAIT_32, AT_LEAST));
  }
  write(value: number): void {
    this.post(op('memory_op'), words(CONTEXT, OTHER, this.word, BigInt(value), WRITE_32, 0));
  }
  synchronize(lane = 1): bigint {
    return this.ask(op('cuStreamSynchronize'), words(CONTEXT, STREAM), lane);
  }
}

describe('a call that waits', () => {
  const scratch = scratchDirectory();
  const path = `${scratch.path}/h`;
  let host: Host;
  let guests: Guest[] = [];
  before(async () => {
    host = await startHost({ listen: `unix:${path}` });
  });
  afterEach(async () => {
    for (const guest of guests) guest.client.close();
    guests = [];
    await until('the sessions to end', () => sessionsNow(host) === 0);
    assert.doesNotMatch(host.log(), /violation|Sanitizer|runtime error|killed by signal/);
  });
  after(async () => {
    await host.stop();
    scratch.remove();
  });
  const greeted = async (features: number): Promise<Guest> => {
    const guest = await Guest.greeted(path, features);
    guests.push(guest);
    return guest;
  };

  it('is answered after later calls of other threads, and each when its own work is done', async () => {
    const guest = await greeted(PARK);
    guest.waitFor(1);
    const first = guest.synchronize(1);
    guest.waitFor(2);
    const second = guest.synchronize(2);
    for (let i = 0; i < 20; i++) assert.equal((await guest.call(PING, undefined, 3)).status, 0);
    guest.write(1);
    const one = await guest.next();
    assert.deepEqual([one.sequence, one.status], [first, 0], 'later work of the stream does not delay it');
    assert.equal((await guest.call(PING, undefined, 1)).status, 0);
    guest.write(2);
    const other = await guest.next();
    assert.deepEqual([other.sequence, other.status], [second, 0]);
  });

  it('ends with its error when its stream is destroyed', async () => {
    const guest = await greeted(PARK);
    guest.waitFor(1);
    const sequence = guest.synchronize();
    assert.equal((await guest.call(PING, undefined, 2)).status, 0);
    guest.post(op('cuCtxDestroy_v2'), words(CONTEXT));
    const reply = await guest.next();
    assert.equal(reply.sequence, sequence);
    assert.notEqual(reply.status, 0);
  });

  it('gets NOT_READY and keeps its turn when the guest cannot take answers out of order', async () => {
    const guest = await greeted(0);
    guest.waitFor(1);
    const first = guest.synchronize();
    const ping = guest.ask(PING, undefined, 2);
    const told = await guest.next();
    assert.deepEqual([told.sequence, told.status], [first, NOT_READY]);
    assert.equal((await guest.next()).sequence, ping);
    guest.waitFor(2); // later work, which the call that is made again does not wait for
    const again = guest.synchronize();
    guest.write(1);
    let reply = await guest.next();
    assert.equal(reply.sequence, again);
    while (reply.status === NOT_READY) {
      guest.synchronize();
      reply = await guest.next();
    }
    assert.equal(reply.status, 0);
  });

  it('gets NOT_READY after about a second when no other frame arrives', async () => {
    const guest = await greeted(0);
    guest.waitFor(1);
    guest.synchronize();
    assert.equal((await guest.next()).status, NOT_READY);
  });

  it('is refused when the limit of parked calls is reached, and the others are still answered', async () => {
    const guest = await greeted(PARK);
    guest.waitFor(1);
    for (let i = 0; i < MOST_PARKED; i++) guest.synchronize(i + 1);
    const late = guest.synchronize(MOST_PARKED + 1);
    const refused = await guest.next();
    assert.deepEqual([refused.sequence, refused.status], [late, OUT_OF_MEMORY]);
    guest.write(1);
    for (let i = 0; i < MOST_PARKED; i++) assert.equal((await guest.next()).status, 0);
  });

  it('is answered once over the next connection, and earlier replies are not sent again', async () => {
    const port = await freePort();
    const tcp = await startHost({ listen: `tcp:127.0.0.1:${port}` });
    const one = await Guest.greeted(`tcp:${port}`, PARK | RESUME);
    const resume = async (received: bigint, from: Guest): Promise<Guest> => {
      const client = await WireClient.open(`tcp:${port}`, 'socket');
      client.send(hello(1, { features: RESUME, join: one.session, secret: one.secret, received }));
      assert.equal((await client.receive())?.status, 0);
      return from.over(client);
    };
    one.waitFor(1);
    const first = one.synchronize();
    const ping = await one.call(PING, undefined, 2);
    one.client.close();
    const other = await resume(ping.sequence, one);
    other.write(1);
    const reply = await other.next();
    assert.deepEqual([reply.sequence, reply.status], [first, 0], 'its first answer over this connection');
    // As if the answer had been lost. It has a lower sequence than the last one that has come, and was sent later.
    other.client.close();
    const third = await resume(ping.sequence, other);
    assert.equal((await third.next()).sequence, first, 'again');
    third.client.close();
    const last = await resume(first, third);
    assert.equal((await last.call(PING, undefined, 2)).status, 0, 'nothing is sent again');
    last.client.close();
    await tcp.stop();
  });
});

// A call of the second passes two hosts.
for (const [device, calls, start] of [
  ['the simulated GPU', 300, (path: string) => startHost({ listen: `unix:${path}/h` })],
  ['--device cuda', 20, startChain],
] as const) {
  describe(`a thread that waits for long beside one that calls often, with ${device}`, () => {
    const scratch = scratchDirectory();
    let host: Host;
    before(async () => {
      host = await start(scratch.path);
    });
    after(async () => {
      await host.stop();
      scratch.remove();
    });
    for (const transport of ['ring', 'socket']) {
      for (const what of ['stream', 'context', 'event', 'read']) {
        it(`takes no naps: ${what}, over a ${transport}`, async (t) => {
          const env = { VGPU_HOST: host.address, LD_LIBRARY_PATH: SHIM, CALLS: String(calls) };
          const { code, stdout, stderr } = await runProgram(builtFile('programs/beside_waiter'), [what], {
            env: transport === 'socket' ? { ...env, VGPU_TRANSPORT: 'socket' } : env,
            limit: 120_000,
          });
          assert.deepEqual({ code, stderr }, { code: 0, stderr: '' }, stdout);
          const [, ratio, naps] = /^([\d.]+) (\d+) [\d.]+ [\d.]+\n$/.exec(stdout) ?? [];
          t.diagnostic(`rate beside the waiting thread, of that without it: ${ratio}`);
          assert.equal(naps, '0');
          await until('the session to end', () => isIdle(host), 20_000);
        });
      }
    }
  });
}
