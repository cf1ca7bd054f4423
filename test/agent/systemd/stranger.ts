/** A D-Bus daemon of the test's own, and a stranger on it who sends what no library would. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createConnection, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { TestContext } from 'node:test';

export interface Daemon {
  readonly socket: string;
  /** As connectBus() takes it. */
  readonly address: string;
  readonly process: ChildProcess;
}

/** Limits of the daemon, as dbus-daemon(1) names them. */
export async function startDaemon(
  t: TestContext,
  limits: Readonly<Record<string, number>> = {},
): Promise<Daemon> {
  const directory = mkdtempSync(path.join(tmpdir(), 'vgpu-bus-'));
  const socket = path.join(directory, 'bus');
  const config = path.join(directory, 'bus.conf');
  const given = Object.entries(limits).map(([name, value]) => `<limit name="${name}">${value}</limit>`);
  writeFileSync(
    config,
    `<busconfig><type>custom</type><listen>unix:path=${socket}</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy>
${given.join('\n')}</busconfig>`,
  );
  const child = spawn('dbus-daemon', [`--config-file=${config}`, '--nofork', '--print-address=1'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  t.after(() => {
    child.kill('SIGKILL');
    rmSync(directory, { recursive: true, force: true });
  });
  await once(child.stdout, 'data');
  return { socket, address: `unix:path=${socket}`, process: child };
}

/** A connection to the daemon that has not said who it is: the daemon waits for that, and counts it. */
export async function knock(t: TestContext, { socket }: Daemon): Promise<Socket> {
  const connection = createConnection(socket);
  t.after(() => connection.destroy());
  connection.on('error', () => {});
  await once(connection, 'connect');
  return connection;
}

export interface Message {
  /** 1: a method call. */
  readonly type?: number;
  readonly destination: string;
  readonly path: string;
  readonly interface: string;
  readonly member: string;
  readonly signature?: string;
  readonly body?: Buffer;
}

/** Says Hello; what the daemon and others answer is thrown away. */
export async function stranger(t: TestContext, daemon: Daemon): Promise<(message: Message) => Promise<void>> {
  const connection = await knock(t, daemon);
  connection.resume();
  const uid = Buffer.from(String(process.getuid?.() ?? 0)).toString('hex');
  connection.write(`\0AUTH EXTERNAL ${uid}\r\nBEGIN\r\n`);
  let serial = 0;
  const send = (message: Message): Promise<void> =>
    new Promise((resolve) => {
      serial += 1;
      connection.write(encode(message, serial), () => resolve());
    });
  const bus = 'org.freedesktop.DBus';
  await send({ destination: bus, path: '/org/freedesktop/DBus', interface: bus, member: 'Hello' });
  return send;
}

function encode(message: Message, serial: number): Buffer {
  const { type = 1, signature = '', body = Buffer.alloc(0) } = message;
  const text = (code: number, kind: string, value: string): Buffer => {
    const length = Buffer.alloc(4);
    length.writeUInt32LE(Buffer.byteLength(value));
    return Buffer.concat([Buffer.from([code, 1, kind.charCodeAt(0), 0]), length, Buffer.from(`${value}\0`)]);
  };
  const fields = Buffer.concat([
    padded(
      Buffer.concat([
        Buffer.from([8, 1, 'g'.charCodeAt(0), 0, signature.length]),
        Buffer.from(`${signature}\0`),
      ]),
    ),
    padded(text(1, 'o', message.path)),
    padded(text(2, 's', message.interface)),
    padded(text(3, 's', message.member)),
    text(6, 's', message.destination),
  ]);
  const header = Buffer.alloc(16);
  header.set([0x6c, type, 0, 1]);
  header.writeUInt32LE(body.length, 4);
  header.writeUInt32LE(serial, 8);
  header.writeUInt32LE(fields.length, 12);
  return Buffer.concat([padded(Buffer.concat([header, fields])), body]);
}

function padded(bytes: Buffer): Buffer {
  return Buffer.concat([bytes, Buffer.alloc((8 - (bytes.length % 8)) % 8)]);
}

/** `as` with so many empty strings: eight bytes each on the wire, and more in a program that reads them. */
export function manyStrings(count: number): Buffer {
  const body = Buffer.alloc(4 + count * 8);
  body.writeUInt32LE(count * 8 - 3, 0);
  return body.subarray(0, 4 + count * 8 - 3);
}
