/** Speaks the wire (shim-src/wire/frame.h) to vgpu-hostd from the outside, rightly or wrongly. */
import { connect, type Socket } from 'node:net';

export const HEADER = 40;
export const ONEWAY = 2;
export const CUDA = 0x10000;

export interface FrameFields {
  readonly opcode: number;
  readonly flags?: number;
  readonly sequence: bigint;
  readonly body?: Buffer;
  readonly bulk?: Buffer;
}

export function frame({
  opcode,
  flags = 0,
  sequence,
  body = Buffer.alloc(0),
  bulk = Buffer.alloc(0),
}: FrameFields): Buffer {
  const length = (HEADER + body.length + bulk.length + 7) & ~7;
  const out = Buffer.alloc(length);
  out.writeUInt32LE(length, 0);
  out.writeUInt32LE(opcode, 4);
  out.writeUInt32LE(flags, 8);
  out.writeUInt32LE(body.length, 16);
  out.writeUInt32LE(bulk.length, 20);
  out.writeBigUInt64LE(sequence, 24);
  body.copy(out, HEADER);
  bulk.copy(out, HEADER + body.length);
  return out;
}

export function hello(
  library = 1,
  fields: { readonly major?: number; readonly magic?: string; readonly join?: bigint } = {},
): Buffer {
  const body = Buffer.alloc(112);
  body.write(fields.magic ?? 'VGPUWIRE', 0, 'latin1');
  body.writeUInt16LE(fields.major ?? 1, 8);
  body.writeUInt32LE(1024 * 1024 + 4096, 16);
  body.writeUInt32LE(library, 20);
  body.writeUInt32LE(4242, 24);
  body.writeBigUInt64LE(fields.join ?? 0n, 32);
  body.write('wire test', 48, 'latin1');
  return frame({ opcode: 1, sequence: 0n, body });
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
  readonly sequence: bigint;
  readonly status: number;
  readonly deferred: number;
  readonly body: Buffer;
  readonly bulk: Buffer;
}

export class WireClient {
  readonly #socket: Socket;
  #pending: Buffer = Buffer.alloc(0);
  #sequence = 1n;
  #closed = false;
  #wake: () => void = () => undefined;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.on('data', (chunk: Buffer) => {
      this.#pending = Buffer.concat([this.#pending, chunk]);
      this.#wake();
    });
    socket.on('error', () => undefined);
    socket.on('close', () => {
      this.#closed = true;
      this.#wake();
    });
  }

  static async open(path: string): Promise<WireClient> {
    const socket = connect(path);
    await new Promise<void>((resolve, reject) => {
      socket.once('connect', resolve);
      socket.once('error', reject);
    });
    return new WireClient(socket);
  }

  /** Connected and welcomed. */
  static async greeted(path: string, library = 1): Promise<WireClient> {
    const client = await WireClient.open(path);
    client.send(hello(library));
    const reply = await client.receive();
    if (reply?.status !== 0) throw new Error(`not welcomed: ${reply?.status}`);
    return client;
  }

  send(bytes: Buffer): void {
    if (!this.#closed) this.#socket.write(bytes);
  }

  /** The next reply; undefined when the host closed. Throws after `limit` milliseconds. */
  async receive(limit = 5000): Promise<Reply | undefined> {
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

  /** Sends a waiting call and gives its reply; throws if the session ends instead. */
  async call(opcode: number, body: Buffer = Buffer.alloc(0), bulk: Buffer = Buffer.alloc(0)): Promise<Reply> {
    this.send(frame({ opcode, sequence: this.#sequence++, body, bulk }));
    const reply = await this.receive();
    if (reply === undefined) throw new Error(`the session ended at opcode ${opcode.toString(16)}`);
    return reply;
  }

  post(opcode: number, body: Buffer, bulk: Buffer = Buffer.alloc(0)): void {
    this.send(frame({ opcode, flags: ONEWAY, sequence: this.#sequence++, body, bulk }));
  }

  close(): void {
    this.#socket.destroy();
  }
}
