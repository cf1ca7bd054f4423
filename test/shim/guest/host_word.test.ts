/** The problems that our libcuda met on its way to the host, through vgpu-probe and the agent's contract: as codes. */

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import path from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { type HostWord, type ProbeReport, parseProbeReport } from '../../../agent/contracts/probe.js';
import { runProgram } from '../cuda/private_programs.js';
import { builtFile, scratchDirectory, startHost } from '../shim_host.js';
import { freePort } from '../support/free_port.js';
import { frame } from '../wire/wire_client.js';

const library = builtFile('libcuda.so.1');
/** Of no other test file. */
const port = await freePort();

async function probe(
  host: string | undefined,
  args: readonly string[] = ['--library', library],
  env: Readonly<Record<string, string>> = {},
): Promise<ProbeReport> {
  const ended = await runProgram(builtFile('vgpu-probe'), [...args, '--timeout', '8'], {
    env: host === undefined ? env : { ...env, VGPU_HOST: host },
    limit: 20_000,
  });
  assert.equal(ended.stderr, '');
  const report = parseProbeReport(ended.stdout);
  if ('problem' in report) return assert.fail(report.problem);
  return report;
}

describe("the state of the host connection, as the guest's libcuda reports it", () => {
  let scratch: ReturnType<typeof scratchDirectory>;
  let socket = '';
  let server: Server | null = null;
  let taken: Socket[] = [];
  beforeEach(() => {
    scratch = scratchDirectory();
    socket = path.join(scratch.path, 's');
  });
  afterEach(async () => {
    for (const one of taken) one.destroy();
    taken = [];
    if (server !== null) await new Promise((resolve) => server?.close(resolve));
    server = null;
    scratch.remove();
  });

  /** Something listens and does `answer` to each client. */
  const listen = async (answer: (connection: Socket) => void): Promise<void> => {
    server = createServer((connection) => {
      taken.push(connection);
      connection.on('error', () => undefined).resume();
      answer(connection);
    }).listen(socket);
    await once(server, 'listening');
  };
  const word = async (host: string | undefined = `unix:${socket}`): Promise<HostWord | null> =>
    (await probe(host)).host;
  /** An answer to the greeting, refused with `status`; `major`: what it says it speaks, if it does. */
  const refusal = (status: number, major: number | null): Buffer => {
    const welcome = Buffer.alloc(160);
    welcome.write('VGPUWIRE', 0, 'latin1');
    welcome.writeUInt16LE(major ?? 0, 8);
    welcome.write('vgpu-hostd 9.9.9 software', 96, 'latin1');
    const reply = frame({ opcode: 1, flags: 1, sequence: 0n, ...(major === null ? {} : { body: welcome }) });
    reply.writeInt32LE(status, 32);
    return reply;
  };

  it('a session: both versions, and the name of the host', async () => {
    const host = await startHost({ listen: `unix:${socket}`, args: [] });
    try {
      const { ok, host: met, error } = await probe(`unix:${socket}`);
      assert.deepEqual([ok, error], [true, null]);
      assert.match(met?.host ?? '', /^vgpu-hostd \d+\.\d+\.\d+ software$/);
      const { code, errno, status, guestWire, hostWire } = met ?? {};
      assert.deepEqual([code, errno, status], ['ok', null, null]);
      assert.ok(typeof guestWire === 'number' && guestWire === hostWire);
    } finally {
      await host.stop();
    }
  });

  it('the transport of a session: rings, or the socket without them', async () => {
    const tcp = `tcp:127.0.0.1:${port}`;
    const carriers = [
      [`unix:${socket}`, {}, 'rings'],
      [`unix:${socket}`, { VGPU_TRANSPORT: 'socket' }, 'unix'],
      [tcp, {}, 'tcp'],
    ] as const;
    for (const [listen, env, carrier] of carriers) {
      const host = await startHost({ listen, args: [] });
      try {
        assert.equal((await probe(listen, undefined, env)).host?.carrier, carrier);
      } finally {
        await host.stop();
      }
    }
    assert.equal((await word())?.carrier, undefined, 'there is no session');
  });

  it('without a listener: the errno of the attempt', async () => {
    const { code, errno, hostWire, message } = (await word()) ?? {};
    assert.deepEqual([code, errno, hostWire], ['unreachable', 'ENOENT', null]);
    assert.match(message ?? '', /^cannot connect to unix:/);
    await listen(() => undefined);
    chmodSync(socket, 0o600);
    const child = spawnSync(
      'setpriv',
      ['--reuid=65534', '--clear-groups', '--', builtFile('vgpu-probe'), '--library', library],
      { env: { VGPU_HOST: `unix:${socket}` }, encoding: 'utf8' },
    );
    const denied = parseProbeReport(child.stdout);
    assert.equal('problem' in denied ? denied.problem : denied.host?.errno, 'EACCES');
  });

  it('an address that is none, and none at all', async () => {
    assert.equal((await word('nonsense'))?.code, 'bad-address');
    assert.equal((await word('   '))?.code, 'bad-address');
    assert.equal((await word(`unix:/${'x'.repeat(300)}`))?.code, 'bad-address');
  });

  it('something that takes the connection and is silent, closes it, or is no host', async () => {
    await listen(() => undefined);
    assert.equal((await word())?.code, 'timeout');
    server?.removeAllListeners('connection');
    server?.on('connection', (connection: Socket) => connection.on('error', () => undefined).destroy());
    assert.equal((await word())?.code, 'closed');
    server?.removeAllListeners('connection');
    server?.on('connection', (connection: Socket) => {
      connection.on('error', () => undefined).resume();
      connection.end('HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n');
    });
    assert.equal((await word())?.code, 'foreign');
  });

  it('a refusal: the status, whatever the sentence', async () => {
    await listen((connection) => connection.end(refusal(7, null)));
    const { code, status, hostWire } = (await word()) ?? {};
    assert.deepEqual([code, status, hostWire], ['refused', 'busy', null]);
  });

  it('another version: both numbers, from a host that says its own and from one that does not', async () => {
    let answer = refusal(1, 0);
    await listen((connection) => connection.end(answer));
    for (const [major, older] of [
      [0, 'host'],
      [9, 'guest'],
    ] as const) {
      answer = refusal(1, major);
      const { code, status, guestWire, hostWire, host, message } = (await word()) ?? {};
      assert.deepEqual(
        [code, status, guestWire, hostWire, host],
        ['version', 'version', 1, major, 'vgpu-hostd 9.9.9 software'],
      );
      assert.match(message ?? '', new RegExp(`the ${older} is older, upgrade it$`));
    }
    answer = refusal(1, null);
    const silent = await word();
    assert.deepEqual([silent?.code, silent?.hostWire], ['version', null]);
  });

  it('another library has no word, and a failure has a kind', async () => {
    const missing = await probe(undefined, ['--library', path.join(scratch.path, 'libcuda.so.1')]);
    assert.deepEqual([missing.host, missing.error?.kind], [null, 'library']);
    const other = await probe(undefined, ['--library', builtFile('libnvidia-ml.so.1')]);
    assert.deepEqual([other.host, other.error?.kind], [null, 'symbol']);
    const none = await probe(`unix:${socket}`);
    assert.deepEqual([none.error?.kind, none.error?.code], ['call', 100]);
  });
});
