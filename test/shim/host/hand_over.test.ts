/** An upgrade by hand-over: the program that is now at the daemon's path takes the sockets, and no guest notices. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, existsSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { connect } from 'node:net';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { buildProgram, type Ended, runProgram } from '../cuda/private_programs.js';
import {
  askAll,
  builtFile,
  type Host,
  type Shell,
  scratchDirectory,
  signalOther,
  startHost,
  startShell,
  until,
} from '../shim_host.js';
import { type CuttingRelay, startCuttingRelay } from '../wire/cutting_relay.js';
import { hello, WireClient } from '../wire/wire_client.js';

/** VGPU_FEATURE_RESUME. */
const RESUME = 0x800;
const REFUSED = 2;
const BUSY = 7;
const SYSTEM_NOT_READY = 802;

describe('a hand-over', () => {
  let scratch: ReturnType<typeof scratchDirectory>;
  let host: Host;
  let shells: Shell[] = [];
  let relays: CuttingRelay[] = [];
  const file = (name: string): string => `${scratch.path}/${name}`;
  /** As a package manager does: beside, then renamed. */
  const put = (fill: (file: string) => void): void => {
    fill(file('new'));
    renameSync(file('new'), file('vgpu-hostd'));
  };
  const upgrade = (): void => put((to) => copyFileSync(builtFile('vgpu-hostd'), to));
  const open = (): Shell => {
    const shell = startShell({ VGPU_HOST: `unix:${file('s')}` });
    shells.push(shell);
    return shell;
  };
  const tell = (...words: string[]): Promise<Ended> =>
    runProgram(builtFile('vgpu-hostd'), [...words, '--control', file('control')], { limit: 60_000 });
  const sessions = async (control = 'control'): Promise<number> => {
    const told = await runProgram(builtFile('vgpu-hostd'), ['status', '--json', '--control', file(control)]);
    assert.equal(told.code, 0, told.stderr);
    return (JSON.parse(told.stdout) as { sessions: unknown[] }).sessions.length;
  };
  const successors = (): readonly number[] =>
    [...host.log().matchAll(/the successor, process (\d+), serves now/g)].map((match) => Number(match[1]));
  const handOver = async (): Promise<number> => {
    const before = successors().length;
    upgrade();
    const { code, stderr } = await tell('hand-over');
    assert.equal(code, 0, stderr);
    await until('the successor in the log', () => successors().length > before);
    return successors().at(-1) ?? 0;
  };
  /** Over a relay that can cut its connection. It calls once for each line: `call RESULT LAUNCHED COUNTED`. */
  const returning = async (transport: 'socket' | 'auto'): Promise<{ shell: Shell; cut: () => void }> => {
    let address = file('s');
    let cut = (): void => {
      spawnSync(builtFile('programs/cut_line'), [String(shell.pid), '0']);
    };
    if (transport === 'socket') {
      const relay = await startCuttingRelay(file(`relay${relays.length}`), file('s'));
      relays.push(relay);
      address = file(`relay${relays.length - 1}`);
      cut = () => relay.cut();
    }
    const env = { VGPU_HOST: `unix:${address}`, CASE: 'by_line', VGPU_LOG: file('log') };
    const shell = startShell(
      { ...env, ...(transport === 'socket' ? { VGPU_TRANSPORT: transport } : {}) },
      'reconnecting',
    );
    shells.push(shell);
    await until('the program to begin', () => shell.extra().includes('there 0'), 20_000);
    return { shell, cut };
  };
  const counts = async (shell: Shell, times: number): Promise<void> => {
    const { result, values } = await shell.ask('call', 40_000);
    assert.deepEqual([result, ...values], [0, String(times), String(times)], host.log());
  };
  const question = (): Promise<Ended> =>
    runProgram(builtFile('vgpu-probe'), ['--sessions', '--host', `unix:${file('s')}`]);
  const listed = async (): Promise<readonly number[]> => {
    const told = await question();
    assert.equal(told.code, 0, told.stdout);
    const { sessions } = JSON.parse(told.stdout) as { sessions: { claimed: { pid: number } }[] };
    return sessions.map(({ claimed }) => claimed.pid);
  };
  const lives = (pid: number): boolean => existsSync(`/proc/${pid}/exe`);

  beforeEach(async () => {
    scratch = scratchDirectory();
    upgrade();
    host = await startHost({
      listen: `unix:${file('s')}`,
      args: ['--control', file('control'), '--metrics', file('metrics')],
      program: file('vgpu-hostd'),
    });
  });
  afterEach(async () => {
    for (const shell of shells) shell.kill();
    for (const relay of relays) await relay.close();
    [shells, relays] = [[], []];
    for (const pid of successors()) signalOther(pid, scratch.path, 'SIGTERM');
    await host.stop();
    scratch.remove();
  });

  it('leaves old sessions to the old daemon and gives new ones to the new, which has the same files', async () => {
    const old = open();
    await askAll(old, ['init', 'ctx 0', 'alloc 4096']);
    const pid = await handOver();
    assert.equal(await sessions(), 0);
    assert.equal(await sessions(`control.${host.pid}`), 1);
    const fresh = open();
    await askAll(fresh, ['init', 'ctx 0']);
    assert.equal(await sessions(), 1);
    await askAll(old, ['alloc 4096']);
    assert.equal(await old.end(), 0);
    await until('the old daemon to end', () => !host.running());
    assert.deepEqual(readdirSync(scratch.path).sort(), ['control', 'metrics', 's', 'vgpu-hostd']);
    await askAll(fresh, ['alloc 4096']);
    assert.equal(await fresh.end(), 0);
    process.kill(pid);
    await until('the new daemon to end', () => !lives(pid));
    assert.deepEqual(readdirSync(scratch.path), ['vgpu-hostd']);
  });

  it('refuses no session: programs that start meanwhile, one after the other, all find their GPU', async () => {
    let going = true;
    const guests = async (): Promise<number> => {
      let served = 0;
      for (; going; served += 1) {
        const shell = open();
        await askAll(shell, ['init', 'ctx 0']);
        assert.equal(await shell.end(), 0);
      }
      return served;
    };
    const running = [guests(), guests()];
    for (let i = 0; i < 3; i += 1) await handOver();
    going = false;
    const served = await Promise.all(running);
    assert.ok(
      served.every((one) => one > 0),
      String(served),
    );
    assert.equal(new Set(successors()).size, 3);
  });

  it('keeps the old daemon when the new program cannot serve, and says so', async () => {
    const shell = open();
    await askAll(shell, ['init', 'ctx 0']);
    put((to) =>
      writeFileSync(to, '#!/bin/sh\necho the new program is broken >&2; exit 3\n', { mode: 0o755 }),
    );
    const failed = await tell('hand-over');
    assert.equal(failed.code, 1);
    assert.match(failed.stderr, /the successor did not start; the former daemon continues/);
    await host.logged(/the new program is broken[\s\S]*the successor did not start/);
    put((to) => writeFileSync(to, 'no program', { mode: 0o644 }));
    assert.match((await tell('hand-over')).stderr, /cannot be executed: Permission denied/);
    assert.equal(await sessions(), 1);
    await askAll(open(), ['init', 'ctx 0']);
    await askAll(shell, ['alloc 4096']);
    assert.match(await metrics(file('metrics')), /^vgpu_hostd_sessions 2$/m);
  });

  for (const [transport, over] of [
    ['socket', 'a stream'],
    ['auto', 'rings'],
  ] as const) {
    it(`keeps sessions that survive their connection: ${over}, after two hand-overs in a row`, async () => {
      const { shell, cut } = await returning(transport);
      await counts(shell, 1);
      await handOver();
      cut();
      await counts(shell, 2);
      const middle = await handOver();
      assert.equal(await sessions(`control.${host.pid}`), 1);
      cut();
      await counts(shell, 3);
      // The daemon logs a connection after it has passed it on.
      const returns = (): number =>
        (host.log().match(/the guest continues over a new connection: unix, pid/g) ?? []).length;
      await until('both returns in the log', () => returns() >= 2);
      assert.equal(returns(), 2);
      await until('the daemon between to end, without a session', () => !lives(successors()[0] ?? 0));
      cut();
      await counts(shell, 4);
      assert.equal(await shell.end(), 0);
      await until('the first daemon to end', () => !host.running());
      assert.ok(lives(middle));
    });
  }

  it('leads each guest to its own daemon: three with a session each', async () => {
    const guests = [await returning('socket')];
    for (let i = 0; i < 2; i += 1) {
      await handOver();
      guests.push(await returning('socket'));
    }
    for (let round = 1; round < 4; round += 1) {
      for (const { shell, cut } of guests) {
        await counts(shell, round);
        cut();
      }
    }
    for (const control of ['control', `control.${host.pid}`, `control.${successors()[0]}`])
      assert.equal(await sessions(control), 1, control);
  });

  it('tells a guest all of its sessions, oldest first, at whichever daemon they are', async () => {
    const guests: Shell[] = [];
    const add = async (): Promise<void> => {
      const shell = open();
      await askAll(shell, ['init', 'ctx 0', 'alloc 4096']);
      guests.push(shell);
    };
    await add();
    for (let i = 0; i < 2; i += 1) {
      await handOver();
      assert.deepEqual(
        await listed(),
        guests.map(({ pid }) => pid),
        'none has ended',
      );
      await add();
    }
    assert.deepEqual(
      await listed(),
      guests.map(({ pid }) => pid),
    );
    const [first] = guests;
    assert.equal(await first?.end(), 0);
    await until('the first daemon to end', () => !host.running());
    assert.deepEqual(
      await listed(),
      guests.slice(1).map(({ pid }) => pid),
    );
  });

  it('tells a guest, when a daemon before the upgrade is frozen, that its answer is missing', async () => {
    const shell = open();
    await askAll(shell, ['init', 'ctx 0']);
    await handOver();
    const missing =
      /"code":"refused","status":8,.*the vgpu-hostd before it may have sessions and does not answer/;
    signalOther(host.pid, scratch.path, 'SIGSTOP');
    // More than the daemon keeps, and than the socket between the two takes.
    for (let round = 0; round < 3; round += 1) {
      const asked = await Promise.all(Array.from({ length: 15 }, question));
      for (const { code, stdout } of asked) {
        assert.equal(code, 1);
        assert.match(stdout, missing);
      }
    }
    await askAll(shell, ['alloc 4096']);
    signalOther(host.pid, scratch.path, 'SIGCONT');
    assert.deepEqual(await listed(), [shell.pid]);
    await handOver();
    const [middle = 0] = successors();
    await until('the daemon between to end, without a session', () => !lives(middle));
    signalOther(host.pid, scratch.path, 'SIGSTOP');
    assert.match((await question()).stdout, missing);
    signalOther(host.pid, scratch.path, 'SIGCONT');
  });

  it('answers no message of a daemon of another version, and tells its guest so', async () => {
    const shell = open();
    await askAll(shell, ['init', 'ctx 0']);
    const program = await buildProgram({
      name: 'strange_successor',
      sources: [
        'test/shim/programs/strange_successor.c',
        ...['stream', 'address'].map((name) => `shim-src/wire/${name}.c`),
      ],
      sanitize: 'none',
    });
    put((to) => copyFileSync(program, to));
    assert.equal((await tell('hand-over')).code, 0);
    await host.logged(/before: status -?\d+/);
    assert.match(host.log(), /next: status 8\n[\s\S]*before: status 8\n/);
    assert.match(host.log(), /refused a connection that a vgpu-hostd of another version has passed on/);
    await askAll(shell, ['alloc 4096']);
  });

  it('ends a session with its daemon, and says so once', async () => {
    const { shell, cut } = await returning('socket');
    await counts(shell, 1);
    await handOver();
    const fresh = await returning('socket');
    signalOther(host.pid, scratch.path, 'SIGKILL');
    await until('its end', () => !host.running());
    cut();
    assert.equal((await shell.ask('call', 40_000)).result, SYSTEM_NOT_READY);
    assert.equal((readFileSync(file('log'), 'utf8').match(/session \d+ is lost/g) ?? []).length, 1);
    await counts(fresh.shell, 1);
  });

  for (const [transport, over] of [
    ['socket', 'a stream'],
    ['auto', 'rings'],
  ] as const) {
    // Nobody tells a daemon that was started by itself where a former one is.
    it(`serves the sessions of a former daemon when the new one crashed and was started again, until their connection ends: ${over}`, async () => {
      const { shell, cut } = await returning(transport);
      await counts(shell, 1);
      signalOther(await handOver(), scratch.path, 'SIGKILL');
      const again = await startHost({
        listen: `unix:${file('s')}`,
        args: ['--control', file('control'), '--metrics', file('metrics')],
        program: file('vgpu-hostd'),
      });
      try {
        await counts(shell, 2);
        const fresh = open();
        await askAll(fresh, ['init', 'ctx 0']);
        cut();
        assert.equal((await shell.ask('call', 40_000)).result, SYSTEM_NOT_READY);
        const lost =
          /session \d+ is lost: the connection broke, and the host does not know the session any more/g;
        assert.equal((readFileSync(file('log'), 'utf8').match(lost) ?? []).length, 1);
        await askAll(fresh, ['alloc 4096']);
        assert.equal(await sessions(), 1);
      } finally {
        await again.stop();
      }
    });
  }

  it('gives no session to a wrong secret, and is not held up by many that try', async () => {
    const { shell, cut } = await returning('socket');
    await counts(shell, 1);
    await handOver();
    const attempts = Array.from({ length: 100 }, async () => {
      const client = await WireClient.open(file('s'), 'socket');
      client.send(hello(1, { features: RESUME, join: 1n, secret: 4711n, received: 0n }));
      const answer = await client.receive();
      client.close();
      return answer?.status;
    });
    cut();
    await counts(shell, 2);
    // A connection beyond the limits of one peer is closed without an answer.
    const answers = new Set(await Promise.all(attempts));
    answers.delete(undefined);
    // A predecessor with many to read has the guest try again.
    answers.delete(BUSY);
    assert.deepEqual([...answers], [REFUSED]);
  });

  it('loses one connection, and not the way to the predecessor, when that has no free descriptor', async () => {
    const program = await buildProgram({
      name: 'reconnects_limit',
      sources: ['test/shim/programs/reconnects_limit.c', 'shim-src/host/daemon/reconnects.c'],
      sanitize: 'address,undefined',
    });
    const { code, stdout, stderr } = await runProgram(program, []);
    const lines = [
      'full: passed 1, received 0, open 1',
      'free: passed 1, received 1, open 1',
      'ended: received 0, open 0',
    ];
    assert.deepEqual([code, stdout.trim().split('\n'), stderr], [0, lines, '']);
  });

  it('knows a successor that serves, whenever it reads the report', async () => {
    const program = await buildProgram({
      name: 'hand_over_news',
      sources: [
        'test/shim/programs/hand_over_news.c',
        'shim-src/host/daemon/hand_over.c',
        'shim-src/host/daemon/reconnects.c',
      ],
    });
    const { code, stdout, stderr } = await runProgram(program, [], { limit: 600_000 });
    assert.deepEqual([code, stdout.trim(), stderr], [0, '2000 of 2000 serve', '']);
  });

  it('serves its metrics over HTTP to every client, and waits for none', async () => {
    assert.match(await metrics(file('metrics')), /^vgpu_hostd_info\{.*simulated="1"\} 1$/m);
    const silent = Array.from({ length: 20 }, () => connect(file('metrics')).on('error', () => {}));
    await once(silent[0] ?? assert.fail(), 'close');
    assert.match(await metrics(file('metrics')), /^vgpu_hostd_sessions 0$/m, 'beside many that ask nothing');
    for (const one of silent) one.destroy();
  });
});

function metrics(socketPath: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const asking = request({ socketPath, path: '/metrics' }, (answer) => {
      let text = '';
      answer.on('data', (chunk: Buffer) => {
        text += chunk.toString();
      });
      answer.on('end', () => resolve(text));
    });
    asking.on('error', reject);
    asking.end();
  });
}
