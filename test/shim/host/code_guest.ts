/** A guest that sends images and loads them, for tests of hosts that are lied to. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { CUDA, frame, ONEWAY, type Over, type Reply, WireClient, words } from '../wire/wire_client.js';

export const OP = {
  primary: 92,
  launch: 299,
  getFunction: 510,
  load: 519,
  piece: 930,
  graphNodes: 931,
  graphNodeSet: 932,
  linkImages: 939,
  imageRead: 940,
} as const;
/** The number of the primary context that a guest begins with. */
export const CONTEXT = 16n;

/** A guest on the wire, without the library: it can send whatever it likes. */
export class Guest {
  readonly #client: WireClient;
  #sequence = 1n;
  #next = 100n;
  private constructor(client: WireClient) {
    this.#client = client;
  }
  static async begin(socket: string, over?: Over): Promise<Guest> {
    const guest = new Guest(await WireClient.greeted(socket, 1, over));
    assert.equal((await guest.ask(OP.primary, words(CONTEXT, 0, 0)))?.status, 0);
    return guest;
  }
  post(opcode: number, body: Buffer, bulk?: Buffer): void {
    this.#client.send(
      frame({
        opcode: CUDA | opcode,
        flags: ONEWAY,
        sequence: this.#sequence++,
        body,
        ...(bulk ? { bulk } : {}),
      }),
    );
  }
  async ask(opcode: number, body: Buffer, bulk?: Buffer): Promise<Reply | undefined> {
    this.#client.send(
      frame({ opcode: CUDA | opcode, sequence: this.#sequence++, body, ...(bulk ? { bulk } : {}) }),
    );
    return this.#client.receive(30_000);
  }
  handle(): bigint {
    return this.#next++;
  }
  upload(image: Buffer, hash = sha256(image)): void {
    for (let at = 0; at < image.length; at += 1 << 20) {
      this.post(
        OP.piece,
        Buffer.concat([hash, words(BigInt(image.length), BigInt(at))]),
        image.subarray(at, at + (1 << 20)),
      );
    }
  }
  /** [CUresult of the load or of the call, whether the host lacks the image] */
  async load(image: Buffer, hash = sha256(image), size = image.length): Promise<[number, boolean]> {
    const body = Buffer.concat([words(CONTEXT, this.handle()), hash, words(BigInt(size))]);
    const reply = await this.ask(OP.load, body);
    if (reply === undefined) throw new Error('the host hung up');
    if (reply.status !== 0) return [reply.status, false];
    return [reply.body.readInt32LE(0), reply.body.readUInt32LE(4) === 1];
  }
  close(): void {
    this.#client.close();
  }
}

export function sha256(bytes: Buffer): Buffer {
  return createHash('sha256').update(bytes).digest();
}
