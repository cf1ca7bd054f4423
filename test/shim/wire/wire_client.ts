/**
 * Speaks the wire (shim-src/wire/frame.h) to vgpu-hostd from the outside, rightly or wrongly: over the
 * socket, or through the rings with the program ring_bridge, since Node cannot map memory.
 */
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import path from 'node:path';
import type { Readable, Writable } from 'node:stream';
import { ROOT } from '../cuda/private_programs.js';
import { builtFile } from '../shim_host.js';

/** VGPU_FEATURE_RING and VGPU_FEATURE_SHARED_REGION, of shim-src/wire/frame.h. */
const RINGS_AND_REGIONS = 0x8 | 0x2;

export const HEADER = 40;
export const ONEWAY = 2;
export const SHARED_REGION = 4;
export const CUDA = 0x10000;

/** Opcodes of the description, by symbol. */
const OPCODES = new Map(
  [...readFileSync(path.join(ROOT, 'shim-src/api/cuda.api'), 'utf8').matchAll(/^(\d{4}) (\w+) /gm)].map(
    ([, number, symbol]) => [symbol ?? '', CUDA | Number(number)],
  ),
);

/** The opcode of a call, as the description has it. Throws for one that it has not. */
export function op(symbol: string): number {
  const opcode = OPCODES.get(symbol);
  if (opcode === undefined) throw new Error(`no ${symbol} in the description`);
  return opcode;
}

export interface FrameFields {
  readonly opcode: number;
  readonly flags?: number;
  /** The guest's thread; 0: it does not matter. */
  readonly lane?: number;
  readonly sequence: bigint;
  readonly body?: Buffer;
  readonly bulk?: Buffer;
}

export function frame({
  opcode,
  flags = 0,
  lane = 0,
  sequence,
  body = Buffer.alloc(0),
  bulk = Buffer.alloc(0),
}: FrameFields): Buffer {
  const length = (HEADER + body.length + bulk.length + 7) & ~7;
  const out = Buffer.alloc(length);
  out.writeUInt32LE(length, 0);
  out.writeUInt32LE(opcode, 4);
  out.writeUInt32LE(flags, 8);
  out.writeUInt32LE(lane, 12);
  out.writeUInt32LE(body.length, 16);
  out.writeUInt32LE(bulk.length, 20);
  out.writeBigUInt64LE(sequence, 24);
  body.copy(out, HEADER);
  bulk.copy(out, HEADER + body.length);
  return out;
}

export function hello(
  library = 1,
  fields: {
    readonly major?: number;
    readonly magic?: string;
    readonly join?: bigint;
    readonly secret?: bigint;
    /** Of struct vgpu_resume, which is sent with it. */
    readonly received?: bigint;
    readonly features?: number;
  } = {},
): Buffer {
  const body = Buffer.alloc(112);
  body.write(fields.magic ?? 'VGPUWIRE', 0, 'latin1');
  body.writeUInt16LE(fields.major ?? 1, 8);
  body.writeUInt32LE(fields.features ?? 0, 12);
  body.writeUInt32LE(1024 * 1024 + 4096, 16);
  body.writeUInt32LE(library, 20);
  body.writeUInt32LE(4242, 24);
  body.writeBigUInt64LE(fields.join ?? 0n, 32);
  body.writeBigUInt64LE(fields.secret ?? 0n, 40);
  body.write('wire test', 48, 'latin1');
  const resume = fields.received === undefined ? Buffer.alloc(0) : words(fields.received, 0n);
  return frame({ opcode: 1, sequence: 0n, body: Buffer.concat([body, resume]) });
}

/** Little-endian numbers of 8 bytes (bigint) or 4 (number). */
export function words(...values: readonly (bigint | number)[]): Buffer {
  return Buffer.concat(
    values.map((value) => {
      const out = Buffer.alloc(typeof value === 'bigint' ? 8 : 4);
      if (typeof value === 'bigint') out.writeBigUInt64LE(BigInt.asUintN(64, value));
      else out.writeUInt32LE(value);
      return out;
    }),
  );
}

export interface Reply {
  readonly opcode: number;
  readonly flags: number;
  readonly sequence: bigint;
  readonly status: number;
  readonly deferred: number;
  readonly body: Buffer;
  readonly bulk: Buffer;
}

export type Over = 'socket' | 'ring';

/** The carrier of a client by default. attack_over_ring.test.ts runs whole files through the rings. */
export const OVER: Over = process.env['VGPU_TEST_OVER'] === 'ring' ? 'ring' : 'socket';

/** The commands of ring_bridge besides sending frames; see there. */
export const POKE = { tail: 1, head: 2, bell: 3, flicker: 4, sleeps: 5, pass: 6, deaf: 7 } as const;

interface Line {
  readonly input: Writable;
  readonly output: Readable;
  readonly pid: number;
  close(): void;
}

/** `path`: of a unix socket, or tcp:PORT of this machine. */
async function overSocket(path: string): Promise<Line> {
  const tcp = /^tcp:(\d+)$/.exec(path)?.[1];
  const socket = tcp === undefined ? connect(path) : connect(Number(tcp), '127.0.0.1');
  await new Promise<void>((resolve, reject) => {
    socket.once('connect', resolve);
    socket.once('error', reject);
  });
  return { input: socket, output: socket, pid: 0, close: () => socket.destroy() };
}

function overRing(path: string): Line {
  const child = spawn(builtFile('programs/ring_bridge'), [path], { stdio: ['pipe', 'pipe', 'inherit'] });
  return {
    input: child.stdin,
    output: child.stdout,
    pid: child.pid ?? 0,
    close: () => {
      child.kill('SIGKILL');
    },
  };
}

/** Deterministic, so that a failure can be run again. */
export function noise(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state;
  };
}

export class WireClient {
  readonly #line: Line;
  readonly over: Over;
  #pending: Buffer = Buffer.alloc(0);
  #sequence = 1n;
  #closed = false;
  #wake: () => void = () => undefined;

  private constructor(line: Line, over: Over) {
    this.#line = line;
    this.over = over;
    line.output.on('data', (chunk: Buffer) => {
      this.#pending = Buffer.concat([this.#pending, chunk]);
      this.#wake();
    });
    line.input.on('error', () => undefined);
    line.output.on('error', () => undefined);
    line.output.on('close', () => {
      this.#closed = true;
      this.#wake();
    });
  }

  static async open(path: string, over: Over = OVER): Promise<WireClient> {
    return new WireClient(over === 'socket' ? await overSocket(path) : overRing(path), over);
  }

  /** Connected and welcomed. */
  static async greeted(path: string, library = 1, over: Over = OVER): Promise<WireClient> {
    const client = await WireClient.open(path, over);
    client.send(hello(library, { features: over === 'ring' ? RINGS_AND_REGIONS : 0 }));
    const reply = await client.receive();
    if (reply?.status !== 0) throw new Error(`not welcomed: ${reply?.status}`);
    if (over === 'ring' && reply.body.readUInt32LE(12) !== RINGS_AND_REGIONS)
      throw new Error('the host gave no rings');
    return client;
  }

  /** Of the process at this end; 0 over a socket. */
  get pid(): number {
    return this.#line.pid;
  }

  send(bytes: Buffer): void {
    if (this.over === 'socket') {
      if (!this.#closed) this.#line.input.write(bytes);
    } else {
      this.poke(0, bytes);
    }
  }

  /** Does something to the rings. */
  poke(what: number, bytes: Buffer): void {
    if (!this.#closed) this.#line.input.write(Buffer.concat([words(what, bytes.length), bytes]));
  }

  /** The next reply; undefined when the host closed. Throws after `limit` milliseconds. */
  async receive(limit = 20_000): Promise<Reply | undefined> {
    const end = performance.now() + limit;
    for (;;) {
      if (this.#pending.length >= HEADER) {
        const length = this.#pending.readUInt32LE(0);
        if (this.#pending.length >= length) {
          const bytes = this.#pending.subarray(0, length);
          this.#pending = this.#pending.subarray(length);
          const body = HEADER + bytes.readUInt32LE(16);
          return {
            opcode: bytes.readUInt32LE(4),
            flags: bytes.readUInt32LE(8),
            sequence: bytes.readBigUInt64LE(24),
            status: bytes.readInt32LE(32),
            deferred: bytes.readInt32LE(36),
            body: bytes.subarray(HEADER, body),
            bulk: bytes.subarray(body, body + bytes.readUInt32LE(20)),
          };
        }
      }
      if (this.#closed) return undefined;
      const left = end - performance.now();
      if (left <= 0) throw new Error(`no reply within ${limit} ms`);
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, left);
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
  }

  /** The next frame of this client, for send(). */
  frame(fields: Omit<FrameFields, 'sequence'>): Buffer {
    return frame({ ...fields, sequence: this.#sequence++ });
  }

  /** Sends a waiting call and gives its reply; throws if the session ends instead. */
  async call(
    opcode: number,
    body: Buffer = Buffer.alloc(0),
    bulk: Buffer = Buffer.alloc(0),
    flags = 0,
  ): Promise<Reply> {
    this.send(frame({ opcode, flags, sequence: this.#sequence++, body, bulk }));
    const reply = await this.receive();
    if (reply === undefined) throw new Error(`the session ended at opcode ${opcode.toString(16)}`);
    return reply;
  }

  /** Sends a waiting call of one of the guest's threads; receive() has the answer, in the order of the calls. */
  ask(lane: number, opcode: number, body: Buffer): void {
    this.send(frame({ opcode, lane, sequence: this.#sequence++, body }));
  }

  post(opcode: number, body: Buffer, bulk: Buffer = Buffer.alloc(0), flags = 0, lane = 0): void {
    this.send(frame({ opcode, flags: ONEWAY | flags, lane, sequence: this.#sequence++, body, bulk }));
  }

  close(): void {
    this.#line.close();
  }
}
