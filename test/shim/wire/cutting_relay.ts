// A relay between a guest and a host that cuts its connections, at any byte.

import { connect, createServer, type Socket } from 'node:net';

export interface Cuts {
  /** After how many bytes, in both directions together, a connection is cut; Infinity: it is not. */
  next(): number;
  /** The form of a cut on TCP: `end` is the end of a process in between, `reset` a router's. */
  readonly how?: 'end' | 'reset';
}

export interface CuttingRelay {
  /** For VGPU_HOST. */
  readonly address: string;
  /** Connections that were cut, by bytes or by cut(). */
  cuts(): number;
  /** Connections that guests have made. */
  made(): number;
  /** The bytes that guests have sent, separate for each connection. */
  sent(): readonly Buffer[];
  /** Cuts what is there now. */
  cut(): void;
  /** Passes nothing on and cuts nothing: a path that leads nowhere. */
  freeze(frozen: boolean): void;
  /** Takes no connection until it is opened again. */
  shut(): Promise<void>;
  open(): Promise<void>;
  close(): Promise<void>;
}

interface Pair {
  readonly guest: Socket;
  readonly host: Socket;
}

/** Listens at `listen`, the path of a unix socket or a port of this machine, and passes all to `upstream`, likewise. */
export async function startCuttingRelay(
  listen: string | number,
  upstream: string | number,
  cuts: Cuts = { next: () => Number.POSITIVE_INFINITY },
  record = false,
): Promise<CuttingRelay> {
  const pairs = new Set<Pair>();
  const sent: Buffer[] = [];
  let count = 0;
  let made = 0;
  let frozen = false;
  const end = (pair: Pair, counts: boolean): void => {
    if (!pairs.delete(pair)) return;
    if (counts) count++;
    for (const socket of [pair.guest, pair.host]) {
      if (cuts.how === 'reset' && typeof listen === 'number') socket.resetAndDestroy();
      else socket.destroySoon();
    }
  };
  const serve = (guest: Socket): void => {
    made++;
    const host =
      typeof upstream === 'string' ? connect(upstream) : connect(upstream, '127.0.0.1').setNoDelay();
    const pair = { guest, host };
    let left = cuts.next();
    const recorded = record ? sent.push(Buffer.alloc(0)) - 1 : -1;
    pairs.add(pair);
    const pass = (from: Socket, to: Socket): void => {
      from.on('data', (chunk: Buffer) => {
        if (!pairs.has(pair)) return;
        const part = chunk.subarray(0, Math.min(chunk.length, left));
        left -= part.length;
        if (from === guest && recorded >= 0)
          sent[recorded] = Buffer.concat([sent[recorded] ?? Buffer.alloc(0), part]);
        if (!to.write(part)) {
          from.pause();
          to.once('drain', () => frozen || from.resume());
        }
        if (left === 0) end(pair, true);
      });
      from.on('end', () => end(pair, false));
      from.on('close', () => end(pair, false));
      from.on('error', () => end(pair, false));
      if (frozen) from.pause();
    };
    pass(guest, host);
    pass(host, guest);
  };
  const make = (): ReturnType<typeof createServer> => createServer({ noDelay: true }, serve);
  let server = make();
  const start = (): Promise<void> =>
    new Promise((resolve) => {
      if (typeof listen === 'string') server.listen(listen, resolve);
      else server.listen(listen, '127.0.0.1', resolve);
    });
  const cut = (): void => {
    for (const pair of [...pairs]) end(pair, true);
  };
  const shut = (): Promise<void> =>
    new Promise((resolve) => {
      server.close(() => resolve());
      cut();
    });
  await start();
  return {
    address: typeof listen === 'string' ? `unix:${listen}` : `tcp:127.0.0.1:${listen}`,
    cuts: () => count,
    made: () => made,
    sent: () => sent,
    cut,
    freeze: (now) => {
      frozen = now;
      for (const pair of pairs) {
        for (const socket of [pair.guest, pair.host]) {
          if (now) socket.pause();
          else socket.resume();
        }
      }
    },
    shut,
    open: () => {
      server = make();
      return start();
    },
    close: shut,
  };
}
