/** Guests that take what the host can run out of: each has a share, and leaves one to others. */

import assert from 'node:assert/strict';
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, rmSync, writeFileSync } from 'node:fs';
import type { Readable } from 'node:stream';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { runProgram } from '../cuda/private_programs.js';
import {
  askAll,
  builtFile,
  type Host,
  type HostOptions,
  SHIM,
  type Shell,
  scratchDirectory,
  sessionsNow,
  startHost,
  startShell,
  until,
} from '../shim_host.js';
import { freePort } from '../support/free_port.js';
import { hello, op, POKE, WireClient, words } from '../wire/wire_client.js';

const MIB = 1 << 20;
const PORT = await freePort();
/** VGPU_OP_SHARED_REGION_ADD */
const REGION_ADD = 6;

interface Status {
  readonly sessions: readonly {
    readonly session: number;
    readonly memory: number;
    readonly hostMemory: number;
  }[];
}

describe('a guest that takes all that it can', () => {
  let scratch: ReturnType<typeof scratchDirectory>;
  let hosts: Host[] = [];
  let shells: Shell[] = [];
  let clients: WireClient[] = [];
  let children: ChildProcessByStdio<null, Readable, null>[] = [];
  const start = async (args: readonly string[] = [], more: Partial<HostOptions> = {}): Promise<Host> => {
    const control = ['--control', `${scratch.path}/control`];
    const host = await startHost({ listen: `unix:${scratch.path}/s`, args: [...control, ...args], ...more });
    hosts.push(host);
    return host;
  };
  const open = (): Shell => {
    const shell = startShell({ VGPU_HOST: `unix:${scratch.path}/s` });
    shells.push(shell);
    return shell;
  };
  const greeted = async (over: 'socket' | 'ring'): Promise<WireClient> => {
    const client = await WireClient.greeted(`${scratch.path}/s`, 1, over);
    clients.push(client);
    return client;
  };
  const status = async (): Promise<Status> => {
    const ended = await runProgram(builtFile('vgpu-hostd'), [
      ...['status', '--json', '--control', `${scratch.path}/control`],
    ]);
    assert.equal(ended.code, 0, ended.stderr);
    return JSON.parse(ended.stdout) as Status;
  };
  const conf = (text: string): string[] => {
    writeFileSync(`${scratch.path}/conf`, text);
    return ['--config', `${scratch.path}/conf`];
  };

  beforeEach(() => {
    scratch = scratchDirectory();
  });
  afterEach(async () => {
    for (const child of children) child.kill('SIGKILL');
    for (const shell of shells) shell.kill();
    for (const client of clients) client.close();
    for (const host of hosts) await host.stop();
    [hosts, shells, clients, children] = [[], [], [], []];
    scratch.remove();
  });

  it('that never takes its descriptors leaves those that other guests need', async () => {
    const few = `${scratch.path}/few`;
    writeFileSync(few, `#!/bin/sh\nulimit -n 512 && exec ${builtFile('vgpu-hostd')} "$@"\n`);
    chmodSync(few, 0o755);
    const host = await start([], { program: few });
    for (let i = 0; i < 4; i++) {
      const client = await greeted('ring');
      client.poke(POKE.deaf, Buffer.alloc(0));
      let refused = 0;
      for (let asked = 0; asked < 200 && refused === 0; asked++) {
        const answer = await client.call(REGION_ADD, words(4096n));
        if (answer.status !== 0) refused++;
      }
      assert.equal(refused, 1, 'refused at some time');
    }
    await host.logged(/session \d+: no shared memory: the guest does not read the descriptors/);
    await host.logged(/only 512 descriptors \(RLIMIT_NOFILE/);
    const shell = open();
    await askAll(shell, ['init', 'ctx 0', 'pinned']);
    assert.doesNotMatch(host.log(), /too many descriptors are on their way/);
  });

  it('counts pinned and managed memory to the limit of its peer', async () => {
    const host = await start(conf('allow unix memory=32M\n'));
    const child = spawn(builtFile('programs/stranger'), ['pin', '48'], {
      env: { ...process.env, VGPU_HOST: `unix:${scratch.path}/s`, LD_LIBRARY_PATH: SHIM },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    children.push(child);
    const [told] = (await once(child.stdout, 'data')) as [Buffer];
    const [pinned, managed, heir = 0] = told.toString().trim().split(' ').map(Number);
    try {
      const [session] = (await status()).sessions;
      const held = session?.hostMemory ?? 0;
      assert.ok(held > 24 * MIB, `${held} bytes of ${pinned} + ${managed} MiB`);
      assert.ok(held + (session?.memory ?? 0) <= 32 * MIB, `${held} + ${session?.memory} bytes`);
      child.kill('SIGKILL');
      await until('its session to end', () => sessionsNow(host) === 0);
    } finally {
      process.kill(heir, 'SIGKILL');
    }
  });

  it('leaves sessions to others, however many peers take them', async () => {
    const host = await start(['--sessions', '8', '--listen', `tcp:127.0.0.1:${PORT}`]);
    const most = async (path: string): Promise<number> => {
      for (let had = 0; had < 9; had++) {
        const client = await WireClient.open(path, 'socket');
        clients.push(client);
        client.send(hello());
        if ((await client.receive())?.status !== 0) return had;
      }
      return 9;
    };
    assert.equal(await most(`${scratch.path}/s`), 4);
    assert.equal(await most(`tcp:${PORT}`), 2);
    await host.logged(/it has 2 sessions, and the 2 that are free are kept for other peers/);
  });

  it('leaves places for shared memory to others', async () => {
    await start(['--listen', `tcp:127.0.0.1:${PORT}`]);
    const share = async (path: string): Promise<number> => {
      const client = await WireClient.greeted(path, 1, 'socket');
      clients.push(client);
      const context = 16n;
      assert.equal((await client.call(op('cuCtxCreate_v2'), words(context, 0, 0))).status, 0);
      for (let shared = 0; ; shared++) {
        const made = await client.call(op('cuMemAlloc_v2'), words(context, 4096n));
        const told = await client.call(op('share_memory'), words(context, made.body.readBigUInt64LE(0), 0n));
        if (told.status !== 0) return shared;
      }
    };
    const mine: number[] = [];
    for (let i = 0; i < 4; i++) mine.push(await share(`${scratch.path}/s`));
    assert.deepEqual(mine, [64, 64, 0, 0]);
    assert.equal(await share(`tcp:${PORT}`), 64);
  });

  it('keeps its rules while its hostd.conf is rewritten', async () => {
    const file = `${scratch.path}/conf`;
    const host = await start(conf('allow unix\n'));
    for (const [text, why] of [
      ['', /the file is empty; "deny any" denies everybody/],
      ['# rules\n', /no line allows or denies any peer/],
      ['deny unix uid=1', /the last line has no newline: the file may be incomplete/],
      [undefined, /conf: No such file or directory/],
    ] as const) {
      if (text === undefined) rmSync(file);
      else writeFileSync(file, text);
      host.signal('SIGHUP');
      await host.logged(new RegExp(`not reloaded, the former rules stay in force: .*${why.source}`));
      (await greeted('socket')).close();
    }
    writeFileSync(file, 'deny any\n');
    host.signal('SIGHUP');
    await host.logged(/hostd.conf was read again/);
    await assert.rejects(greeted('socket'), /not welcomed/);
  });
});
