// A relay between a guest and a host that counts the frames the guest sends. For guests with VGPU_TRANSPORT=socket:
// a descriptor does not pass it, and one that offers rings greets twice.

import { connect, createServer } from 'node:net';

const HEADER = 40;
const ONEWAY = 2;

/** The frames that guests sent through a relay. */
export interface Counts {
  /** Frames that are answered, by opcode; the greeting is 1. */
  readonly waiting: readonly number[];
  /** Frames without an answer, by opcode. */
  readonly oneway: readonly number[];
}

export interface Relay {
  readonly address: string;
  /** Since the last time it was asked. */
  take(): Counts;
  /** Number of connected guests. All data of a guest is counted before this number drops. */
  guests(): number;
  close(): Promise<void>;
}

/** Listens at `listen` and passes all to the host at `upstream`, both paths of unix sockets. */
export async function startRelay(listen: string, upstream: string): Promise<Relay> {
  let waiting: number[] = [];
  let oneway: number[] = [];
  let guests = 0;
  const server = createServer((guest) => {
    guests++;
    guest.on('close', () => guests--);
    const host = connect(upstream);
    let rest = Buffer.alloc(0);
    guest.on('data', (chunk: Buffer) => {
      host.write(chunk);
      rest = Buffer.concat([rest, chunk]);
      while (rest.length >= HEADER && rest.length >= rest.readUInt32LE(0)) {
        ((rest.readUInt32LE(8) & ONEWAY) === 0 ? waiting : oneway).push(rest.readUInt32LE(4));
        rest = rest.subarray(rest.readUInt32LE(0));
      }
    });
    host.on('data', (chunk) => guest.write(chunk));
    for (const [one, other] of [
      [guest, host],
      [host, guest],
    ] as const) {
      one.on('close', () => other.destroy());
      one.on('error', () => other.destroy());
    }
  });
  await new Promise<void>((resolve) => server.listen(listen, resolve));
  return {
    address: `unix:${listen}`,
    take: () => {
      const taken = { waiting, oneway };
      waiting = [];
      oneway = [];
      return taken;
    },
    guests: () => guests,
    close: () => new Promise((resolve) => server.close(() => resolve())),
  };
}
