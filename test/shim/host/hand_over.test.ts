/** An upgrade by hand-over: the program that is now at the daemon's path takes the sockets, and no guest notices. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { copyFileSync, existsSync, readdirSync, renameSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { connect } from 'node:net';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { type Ended, runProgram } from '../cuda/private_programs.js';
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

describe('a hand-over', () => {
  let scratch: ReturnType<typeof scratchDirectory>;
  let host: Host;
  let shells: Shell[] = [];
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
    [...host.log().matchAll(/process (\d+) serves now/g)].map((match) => Number(match[1]));
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
    shells = [];
    for (const pid of successors()) signalOther(pid, scratch.path, 'SIGTERM');
    await host.stop();
    scratch.remove();
  });

  it('leaves old sessions to the old daemon and gives new ones to the new, which has the same files', async () => {
    const old = open();
    await askAll(old, ['init', 'ctx 0', 'alloc 4096']);
    upgrade();
    assert.equal((await tell('hand-over')).code, 0);
    const [pid = 0] = successors();
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
    for (let i = 0; i < 3; i += 1) {
      upgrade();
      assert.equal((await tell('hand-over')).code, 0);
    }
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
    assert.match(host.log(), /the new program is broken[\s\S]*the successor did not start/);
    put((to) => writeFileSync(to, 'no program', { mode: 0o644 }));
    assert.match((await tell('hand-over')).stderr, /cannot be executed: Permission denied/);
    assert.equal(await sessions(), 1);
    await askAll(open(), ['init', 'ctx 0']);
    await askAll(shell, ['alloc 4096']);
    assert.match(await metrics(file('metrics')), /^vgpu_hostd_sessions 2$/m);
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
