// A host that misbehaves, as a program of its own:
//   node fault-host.js --listen PATH --mode MODE [--upstream PATH] [--seconds N] [--bytes N]
// MODE:
//   silent   accepts connections and never answers
//   garbage  answers everything with meaningless bytes
//   slow     passes everything to the real host at --upstream, answers N seconds late
//   dies     passes everything on; after N bytes of answers it exits: connections closed, socket file left behind
//   speaks   passes everything on, but greets with the wire version --version
//   stalls   passes everything on; after N bytes of answers it sends no further byte, connections stay open
// Prints "listening" when it listens. Ends on SIGTERM.

import { chmodSync, rmSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { parseArgs } from 'node:util';

const MODES = ['silent', 'garbage', 'slow', 'dies', 'speaks', 'stalls'] as const;
type Mode = (typeof MODES)[number];

interface Settings {
  readonly mode: Mode;
  readonly upstream: string | undefined;
  readonly seconds: number;
  readonly bytes: number;
  readonly version: number;
}

function serve(client: Socket, settings: Settings): void {
  client.on('error', () => client.destroy());
  switch (settings.mode) {
    case 'silent':
      client.resume();
      return;
    case 'garbage':
      client.on('data', (chunk) => client.write(noise(Math.max(64, chunk.length))));
      return;
    case 'slow':
    case 'dies':
    case 'speaks':
    case 'stalls':
      relay(client, settings);
  }
}

/** Bytes without a pattern, the same in every run (a linear congruential generator's high bytes). */
function noise(length: number): Buffer {
  const bytes = Buffer.alloc(length);
  let state = 0x5eed;
  for (let index = 0; index < length; index++) {
    state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff;
    bytes[index] = state >>> 16;
  }
  return bytes;
}

function relay(client: Socket, settings: Settings): void {
  if (settings.upstream === undefined) throw new Error(`mode ${settings.mode} needs --upstream`);
  const host = connect(settings.upstream);
  let answered = 0;
  host.on('error', () => client.destroy());
  host.on('close', () => {
    if (settings.mode !== 'stalls') client.end();
  });
  client.on('close', () => host.destroy());
  client.on('data', (chunk) => host.write(chunk));
  host.on('data', (chunk) => {
    if (settings.mode === 'slow') {
      setTimeout(() => client.write(chunk), settings.seconds * 1000);
      return;
    }
    if (settings.mode === 'speaks') {
      client.write(withVersion(chunk, settings.version));
      return;
    }
    const rest = Math.max(0, settings.bytes - answered);
    answered += chunk.length;
    client.write(chunk.subarray(0, rest), () => {
      // ends like a process that was killed: without a goodbye, and its socket stays in the file system
      if (settings.mode === 'dies' && answered >= settings.bytes) process.kill(process.pid, 'SIGKILL');
    });
  });
}

/** The version follows the magic bytes of the greeting. */
function withVersion(chunk: Buffer, version: number): Buffer {
  const at = chunk.indexOf('VGPUWIRE');
  if (at !== -1) chunk.writeUInt16LE(version, at + 8);
  return chunk;
}

const { values } = parseArgs({
  options: {
    listen: { type: 'string' },
    mode: { type: 'string' },
    upstream: { type: 'string' },
    seconds: { type: 'string', default: '0' },
    bytes: { type: 'string', default: '0' },
    version: { type: 'string', default: '0' },
  },
});
const mode = MODES.find((known) => known === values.mode);
if (mode === undefined || values.listen === undefined) {
  process.stderr.write(`fault-host: wants --listen PATH --mode ${MODES.join('|')}\n`);
  process.exit(2);
}
const settings: Settings = {
  mode,
  upstream: values.upstream,
  seconds: Number(values.seconds),
  bytes: Number(values.bytes),
  version: Number(values.version),
};
const path = values.listen;
rmSync(path, { force: true });
const server = createServer((client) => serve(client, settings));
server.listen(path, () => {
  chmodSync(path, 0o666); // a consumer runs as a user of its own
  process.stdout.write('listening\n');
});
process.on('SIGTERM', () => {
  rmSync(path, { force: true });
  process.exit(0);
});
