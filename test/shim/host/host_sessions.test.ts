/** The host's answer to a guest about the guest's own sessions, and the cost of silent connections for the others. */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import path from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { runProgram } from '../cuda/private_programs.js';
import {
  askAll,
  builtFile,
  type Host,
  type Shell,
  scratchDirectory,
  sessionsNow,
  startHost,
  startShell,
  until,
} from '../shim_host.js';
import { freePort } from '../support/free_port.js';
import { frame, hello, WireClient } from '../wire/wire_client.js';

const MIB = 1 << 20;
const SESSIONS = 3;
const PORT = await freePort();

interface Told {
  readonly ok: boolean;
  readonly simulated?: boolean;
  readonly host?: string;
  readonly turnedAway?: { readonly count: number; readonly status: number; readonly age: number };
  readonly refusedKernels?: {
    readonly count: number;
    readonly age: number;
    readonly program: string;
    readonly kernel: string;
  };
  readonly memory?: {
    readonly limit: number;
    readonly by: string;
    readonly line: number;
    readonly refused: {
      readonly count: number;
      readonly age: number;
      readonly program: string;
      readonly bytes: number;
      readonly limit: number;
      readonly free: number;
      readonly by: string;
    };
  } | null;
  readonly error: { readonly code: string; readonly status: number; readonly message: string } | null;
  readonly sessions: readonly {
    readonly session: number;
    readonly age: number;
    readonly memory: number;
    readonly launches: number;
    readonly calls: number;
    readonly refused: number;
    readonly lastRefusal: number;
    readonly carrier: string;
    readonly claimed: {
      readonly library: string;
      readonly pid: number;
      readonly pidNamespace: number;
      readonly program: string;
    };
  }[];
}

describe("the host's report of its sessions", () => {
  let scratch: ReturnType<typeof scratchDirectory>;
  let socket = '';
  let hosts: Host[] = [];
  let shells: Shell[] = [];
  let clients: WireClient[] = [];
  let silent: Socket[] = [];
  const start = async (args: readonly string[] = []): Promise<Host> => {
    const host = await startHost({ listen: `unix:${socket}`, args });
    hosts.push(host);
    return host;
  };
  const open = (env: Readonly<Record<string, string>> = {}): Shell => {
    const shell = startShell({ VGPU_HOST: `unix:${socket}`, ...env });
    shells.push(shell);
    return shell;
  };
  const ask = async (host = `unix:${socket}`): Promise<Told> => {
    const ended = await runProgram(builtFile('vgpu-probe'), ['--sessions', '--host', host], {
      limit: 20_000,
    });
    const told = JSON.parse(ended.stdout) as Told;
    assert.equal(ended.code, told.ok ? 0 : 1, ended.stderr);
    return told;
  };

  /** Asks until the answer is as wanted. */
  const askUntil = async (good: (told: Told) => boolean, host?: string): Promise<void> => {
    const end = performance.now() + 20_000;
    for (;;) {
      const told = await ask(host);
      if (good(told)) return;
      if (performance.now() > end) throw new Error(`still: ${JSON.stringify(told)}`);
    }
  };

  beforeEach(() => {
    scratch = scratchDirectory();
    socket = `${scratch.path}/s`;
  });
  afterEach(async () => {
    for (const shell of shells) shell.kill();
    for (const client of clients) client.close();
    for (const one of silent) one.destroy();
    for (const host of hosts) await host.stop();
    [hosts, shells, clients, silent] = [[], [], [], []];
    scratch.remove();
  });

  it('tells what carries the calls of each session', async () => {
    await start();
    for (const [env, carrier] of [
      [{}, 'rings'],
      [{ VGPU_TRANSPORT: 'socket' }, 'unix'],
    ] as const) {
      const shell = open(env);
      await askAll(shell, ['init', 'ctx 0']);
      assert.deepEqual(
        (await ask()).sessions.map((session) => session.carrier),
        [carrier],
      );
      shell.kill();
      await askUntil((now) => now.sessions.length === 0);
    }
  });

  it('lists the sessions of the guest that asks, with what each has done', async () => {
    await start();
    assert.deepEqual((await ask()).sessions, []);
    const shell = open();
    await askAll(shell, ['init', 'ctx 0', `alloc ${3 * MIB}`]);
    const told = await ask();
    assert.equal(told.ok, true);
    assert.equal(told.simulated, true);
    assert.match(told.host ?? '', /^vgpu-hostd \d+\.\d+\.\d+ software$/);
    assert.deepEqual(told.turnedAway, { count: 0, status: 0, age: 0 });
    const [session] = told.sessions;
    assert.equal(told.sessions.length, 1);
    assert.deepEqual(session?.claimed, {
      library: 'libcuda',
      pid: shell.pid,
      pidNamespace: statSync('/proc/self/ns/pid').ino,
      program: 'driver_shell',
    });
    assert.ok((session?.memory ?? 0) >= 3 * MIB && (session?.memory ?? 0) < 64 * MIB, `${session?.memory}`);
    assert.ok((session?.calls ?? 0) > 0);
    assert.equal(session?.launches, 0);
    assert.equal(session?.refused, 0);
    assert.equal(session?.lastRefusal, 0);
    // An allocation beyond the limit is refused, and is the last refusal that is told.
    assert.equal((await shell.ask(`alloc ${2 ** 50}`)).result, 2);
    const [after] = (await ask()).sessions;
    assert.deepEqual([after?.refused, after?.lastRefusal], [1, 2]);
    assert.ok((after?.age ?? 0) >= (session?.age ?? 0) && (after?.age ?? 0) < 600_000);
    shell.kill();
    await askUntil((now) => now.sessions.length === 0);
  });

  it('counts the kernels that ran', async () => {
    await start();
    // The session stays until it was asked: a program that ends by itself can be gone before the first answer.
    const text = '.version 7.0\n.target sm_75\n.address_size 64\n.visible .entry nothing() { ret; }\n';
    writeFileSync(`${scratch.path}/k.ptx`, text);
    const shell = startShell({ VGPU_HOST: `unix:${socket}` }, 'code_shell');
    shells.push(shell);
    await askAll(shell, ['begin', `load 0 ${scratch.path}/k.ptx`, 'function 1 0 nothing']);
    for (const launches of [1, 2]) {
      await askAll(shell, ['launch 1 1 1 1 1 1 1 0 -', 'sync']);
      assert.deepEqual(
        (await ask()).sessions.map((session) => session.launches),
        [launches],
      );
    }
  });

  it('names the last kernel that it could not run, also of a session that is over', async () => {
    const host = await start(['--software-kernels', 'refuse', '--listen', `tcp:127.0.0.1:${PORT}`]);
    assert.deepEqual((await ask()).refusedKernels, { count: 0, age: 0, program: '', kernel: '' });
    const long = `k${'x'.repeat(300)}`;
    const text = `.version 7.0\n.target sm_75\n.address_size 64\n.visible .entry first() { ret; }\n.visible .entry ${long}() { ret; }\n`;
    writeFileSync(`${scratch.path}/k.ptx`, text);
    const shell = startShell({ VGPU_HOST: `unix:${socket}` }, 'code_shell');
    shells.push(shell);
    await askAll(shell, [
      'begin',
      `load 0 ${scratch.path}/k.ptx`,
      'function 1 0 first',
      `function 2 0 ${long}`,
    ]);
    await shell.ask('launch 1 1 1 1 1 1 1 0 -');
    await shell.ask('sync');
    const { refusedKernels } = await ask();
    assert.deepEqual([refusedKernels?.count, refusedKernels?.program], [1, 'code_shell']);
    assert.equal(refusedKernels?.kernel, 'first');
    await shell.ask('launch 2 1 1 1 1 1 1 0 -');
    await shell.ask('sync');
    shell.kill();
    await askUntil((now) => now.sessions.length === 0);
    const after = (await ask()).refusedKernels;
    assert.deepEqual([after?.count, after?.kernel], [2, long.slice(0, 239)], 'and is cut where it is long');
    assert.ok((after?.age ?? 60) < 60);
    // The slot's next session begins with none.
    await askAll(open(), ['init', 'ctx 0']);
    const { refusedKernels: next } = await ask();
    assert.deepEqual([next?.count, next?.program], [2, 'code_shell']);
    // No other peer sees it.
    assert.equal((await ask(`tcp:127.0.0.1:${PORT}`)).refusedKernels?.count, 0);
    await host.stop();
  });

  it('remembers the last memory that it refused, with the limit, until the limits are read again', async () => {
    const conf = `${scratch.path}/hostd.conf`;
    writeFileSync(conf, '# one guest\nlimits connects=none\nallow unix memory=64M\nallow any\n');
    const listen = `tcp:127.0.0.1:${PORT}`;
    const host = await start(['--config', conf, '--listen', listen, '--session-memory', `${256 * MIB}`]);
    const nothing = { count: 0, age: 0, program: '', bytes: 0, limit: 0, free: 0, by: 'none' };
    assert.deepEqual((await ask()).memory, { limit: 64 * MIB, by: 'guest', line: 3, refused: nothing });
    const shell = open();
    await askAll(shell, ['init', 'ctx 0', `alloc ${16 * MIB}`]);
    assert.equal((await shell.ask(`alloc ${60 * MIB}`)).result, 2);
    const told = (await ask()).memory?.refused;
    assert.deepEqual(
      [told?.count, told?.program, told?.bytes, told?.limit, told?.by],
      [1, 'driver_shell', 60 * MIB, 64 * MIB, 'guest'],
    );
    assert.ok((told?.free ?? 0) <= 48 * MIB && (told?.free ?? 0) > 40 * MIB, `${told?.free}`);
    assert.ok((told?.age ?? 60) < 60);
    // The count outlives its session and continues.
    assert.equal((await shell.ask(`alloc ${61 * MIB}`)).result, 2);
    shell.kill();
    await askUntil((now) => now.sessions.length === 0);
    const after = (await ask()).memory?.refused;
    assert.deepEqual([after?.count, after?.bytes], [2, 61 * MIB]);
    // Another peer has other limits, and hears nothing of this one.
    assert.deepEqual((await ask(listen)).memory, {
      limit: 256 * MIB,
      by: 'session',
      line: 4,
      refused: nothing,
    });
    const other = open({ VGPU_HOST: listen });
    await askAll(other, ['init', 'ctx 0']);
    assert.equal((await other.ask(`alloc ${257 * MIB}`)).result, 2);
    const session = (await ask(listen)).memory?.refused;
    assert.deepEqual([session?.bytes, session?.limit, session?.by], [257 * MIB, 256 * MIB, 'session']);
    // The slot's next session begins with none.
    await askAll(open(), ['init', 'ctx 0']);
    assert.equal((await ask()).memory?.refused.count, 2);
    writeFileSync(conf, 'limits connects=none\nallow any\n');
    host.signal('SIGHUP');
    await host.logged(/hostd.conf was read again/);
    const { memory } = await ask();
    assert.deepEqual(memory, { limit: 256 * MIB, by: 'session', line: 2, refused: nothing });
  });

  it('tells that the device is full', async () => {
    await start();
    const shell = open();
    await askAll(shell, ['init', 'ctx 0']);
    assert.equal((await shell.ask(`alloc ${2 ** 37}`)).result, 2);
    const { memory } = await ask();
    assert.deepEqual([memory?.limit, memory?.by, memory?.line], [0, 'none', 0]);
    assert.deepEqual([memory?.refused.bytes, memory?.refused.by], [2 ** 37, 'device']);
    assert.ok((memory?.refused.limit ?? 0) >= (memory?.refused.free ?? 0));
  });

  it('is asked by older guests, which hear what they know', async () => {
    await start();
    for (const [features, bytes] of [
      [0, 0],
      [0x80, 120],
    ] as const) {
      const client = await WireClient.open(socket, 'socket');
      clients.push(client);
      client.send(hello(SESSIONS, { features }));
      const reply = await client.receive();
      assert.deepEqual([reply?.body.length, reply?.bulk.length], [504, bytes]);
      assert.equal(reply?.body.readUInt32LE(12), features, 'the welcome says which');
    }
  });

  it('reads the shorter answer of an older host', async () => {
    const server = createServer((connection) => {
      connection.on('error', () => undefined);
      connection.once('data', () => {
        const body = Buffer.alloc(184);
        body.write('VGPUWIRE');
        body.writeUInt32LE(1, 160); // count, behind the welcome
        body.writeUInt32LE(128, 164); // element_size
        const bulk = Buffer.alloc(128);
        bulk.writeBigUInt64LE(7n); // its session
        bulk.write('old', 64);
        connection.end(frame({ opcode: 1, flags: 1, sequence: 0n, body, bulk }));
      });
    });
    await new Promise<void>((resolve) => server.listen(socket, resolve));
    const told = await ask();
    assert.equal(told.ok, true, JSON.stringify(told));
    assert.deepEqual(told.refusedKernels, { count: 0, age: 0, program: '', kernel: '' });
    assert.equal(told.memory, null);
    const sessions = told.sessions.map(({ session, carrier, claimed }) => [
      session,
      carrier,
      claimed.program,
    ]);
    assert.deepEqual(sessions, [[7, 'none', 'old']]);
    await new Promise((resolve) => server.close(resolve));
  });

  it('tells a guest nothing of another one', async () => {
    const host = await start(['--listen', `tcp:127.0.0.1:${PORT}`]);
    await askAll(open(), ['init', 'ctx 0']);
    // A client over TCP is another peer than this user.
    assert.deepEqual((await ask(`tcp:127.0.0.1:${PORT}`)).sessions, []);
    await askAll(open({ VGPU_HOST: `tcp:127.0.0.1:${PORT}` }), ['init', 'ctx 0']);
    await until('both sessions in the log', () => sessionsNow(host) === 2);
    const [here, there] = [await ask(), await ask(`tcp:127.0.0.1:${PORT}`)];
    assert.deepEqual([here.sessions.length, there.sessions.length], [1, 1]);
    assert.notEqual(here.sessions[0]?.session, there.sessions[0]?.session);
  });

  it('answers though every slot is taken, and takes none', async () => {
    const host = await start(['--sessions', '2']);
    await askAll(open(), ['init']);
    const refused = open({ VGPU_LOG: 'stderr' });
    assert.equal((await refused.ask('init')).result, 100, 'half of the two is one');
    const told = await ask();
    assert.equal(told.sessions.length, 1);
    assert.deepEqual([told.turnedAway?.count, told.turnedAway?.status], [1, 7]);
    assert.ok((told.turnedAway?.age ?? 60) < 60);
    await until('the session in the log', () => sessionsNow(host) === 1);
    assert.doesNotMatch(host.log(), /session 3: unix/);
  });

  it('has a clear error when the connection is refused, the question is refused, or the host is too old', async () => {
    assert.equal((await ask()).error?.code, 'unreachable');
    assert.equal((await ask('nonsense')).error?.code, 'bad-address');
    const old = createServer((connection) => {
      // As an older host answers what it does not know: VGPU_STATUS_REFUSED.
      const reply = frame({ opcode: 1, flags: 1, sequence: 0n });
      reply.writeInt32LE(2, 32);
      connection
        .on('error', () => undefined)
        .resume()
        .end(reply);
    }).listen(socket);
    await once(old, 'listening');
    const { error } = await ask();
    assert.equal(error?.code, 'too-old');
    assert.match(error?.message ?? '', /upgrade vgpu-hostd/);
    await new Promise((resolve) => old.close(resolve));
  });

  it('makes a program name of a guest plain text', async () => {
    await start();
    const bytes = hello(1);
    bytes.write('a"\n\x1b[31m\xff', 40 + 48, 'latin1');
    const client = await WireClient.open(socket, 'socket');
    clients.push(client);
    client.send(bytes);
    assert.equal((await client.receive())?.status, 0);
    assert.equal((await ask()).sessions[0]?.claimed.program, 'a"??[31m?');
  });

  it('reads a question that comes in pieces, and one that is longer than it knows', async () => {
    await start();
    for (const step of [1, 7, 39, 41]) {
      const client = await WireClient.open(socket, 'socket');
      clients.push(client);
      const bytes = hello(SESSIONS);
      for (let at = 0; at < bytes.length; at += step) {
        client.send(bytes.subarray(at, at + step));
        if (at % (8 * step) === 0) await new Promise((resolve) => setImmediate(resolve));
      }
      const reply = await client.receive();
      assert.deepEqual([reply?.status, reply?.body.length, reply?.bulk.length], [0, 504, 0]);
      assert.equal(await client.receive(), undefined, 'it hangs up');
    }
    const client = await WireClient.open(socket, 'socket');
    clients.push(client);
    const longer = Buffer.concat([hello(SESSIONS).subarray(40), Buffer.alloc(400, 7)]);
    client.send(frame({ opcode: 1, sequence: 0n, body: longer }));
    assert.equal((await client.receive())?.status, 0);
  });

  it('serves one who greets beside a thousand connections that say nothing, and buries the dead', async () => {
    const host = await start(['--listen', `tcp:127.0.0.1:${PORT}`]);
    // All over TCP, so they are one peer; more than there are slots, again and again.
    for (let i = 0; i < 1000; i++) {
      silent.push(connect(PORT, '127.0.0.1').on('error', () => undefined));
      if (i % 50 === 0) await new Promise((resolve) => setTimeout(resolve, 5));
    }
    for (let i = 0; i < 5; i++) {
      const shell = open();
      await askAll(shell, ['init', 'ctx 0']);
      assert.equal(await shell.end(), 0);
    }
    // The same peer, too: it greets at once, and what says nothing makes room for it.
    await askUntil(({ ok }) => ok, `tcp:127.0.0.1:${PORT}`);
    await until('all to be buried', () => sessionsNow(host) === 0);
    const children = readFileSync(
      path.join('/proc', `${host.pid}`, 'task', `${host.pid}`, 'children'),
      'utf8',
    );
    assert.equal(children.trim(), '', 'no zombies');
    const began = performance.now();
    assert.equal(await host.stop(), 0);
    assert.ok(performance.now() - began < 10_000, `${performance.now() - began} ms to stop`);
  });

  it('keeps half of the sessions for others, whatever one peer does', async () => {
    await start(['--listen', `tcp:127.0.0.1:${PORT}`, '--sessions', '6']);
    const greedy = await Promise.all(
      Array.from({ length: 12 }, async () => {
        const client = await WireClient.open(`tcp:${PORT}`, 'socket');
        clients.push(client);
        client.send(hello());
        return (await client.receive())?.status;
      }),
    );
    assert.deepEqual(
      greedy.toSorted(),
      [0, 0, 0, 7, 7, 7, 7, 7, 7, 7, 7, 7],
      'VGPU_STATUS_BUSY beyond three',
    );
    await askAll(open(), ['init', 'ctx 0']);
  });
});
