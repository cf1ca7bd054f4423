/**
 * A driver that has failed or does not come back: its session ends or waits, and no other session does. The driver is the
 * stand-in (programs/stand_in_driver.c).
 */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { ROOT, runProgram } from '../cuda/private_programs.js';
import {
  askAll,
  builtFile,
  type Host,
  SHIM,
  type Shell,
  scratchDirectory,
  sessionsNow,
  startShell,
  until,
} from '../shim_host.js';
import { startStandIn } from './stand_in.js';

const ILLEGAL_ADDRESS = 700;
const PTX = path.join(ROOT, 'test/fixtures/code/kernels.ptx');

describe('a driver behind a host', () => {
  let scratch: ReturnType<typeof scratchDirectory>;
  let host: Host;
  let shells: Shell[] = [];
  const start = async (words: string): Promise<void> => {
    host = await startStandIn(words, {
      listen: `unix:${scratch.path}/s`,
      args: ['--control', `${scratch.path}/control`],
    });
  };
  const open = (program?: string): Shell => {
    const shell = startShell({ VGPU_HOST: host.address }, program);
    shells.push(shell);
    return shell;
  };
  const tell = (...words: string[]) =>
    runProgram(builtFile('vgpu-hostd'), [...words, '--control', `${scratch.path}/control`]);
  const lastWorker = async (): Promise<string> => {
    await host.logged(/worker \d+$/m);
    return [...host.log().matchAll(/worker (\d+)$/gm)].at(-1)?.[1] ?? '';
  };

  beforeEach(() => {
    scratch = scratchDirectory();
  });
  afterEach(async () => {
    for (const shell of shells) shell.kill();
    shells = [];
    await host.stop();
    scratch.remove();
  });

  it('that has a sticky error returns it to the calls of that session, and to no other session', async () => {
    await start('sticky');
    const [hurt, honest] = [open(), open()];
    await askAll(honest, ['init', 'ctx 0']);
    const memory = (await askAll(hurt, ['init', 'ctx 0', 'alloc 4096'])).values[0] ?? '';
    await hurt.ask(`free ${memory}`);
    assert.equal((await hurt.ask('sync')).result, ILLEGAL_ADDRESS);
    assert.equal((await hurt.ask('alloc 4096')).result, ILLEGAL_ADDRESS, 'for good');
    const kept = (await askAll(honest, ['alloc 4096'])).values[0] ?? '';
    await askAll(honest, [`trip ${kept} 4096 7`]);
    assert.equal(await hurt.end(), 0);
    await until('its session to end', () => sessionsNow(host) === 1, 20_000);
    const status = JSON.parse((await tell('status', '--json')).stdout);
    assert.ok(status.devices[0].used < 3 << 20, 'what it held is free');
    await askAll(open(), ['init', 'ctx 0', 'alloc 4096']);
    assert.equal(host.running(), true);
  });

  it('that is stuck in a call is found by the administrator, who ends that session', async () => {
    await start('stuck=600000');
    const [stuck, honest] = [open(), open()];
    await askAll(stuck, ['init', 'ctx 0', 'alloc 4096']);
    await askAll(honest, ['init', 'ctx 0', 'alloc 4096']);
    const waiting = stuck.ask('sync', 60_000);
    let busy: { readonly session: number; readonly busy: number }[] = [];
    // One question after the other: one that is still open at the end would meet a host that has stopped.
    for (const limit = Date.now() + 30_000; busy.length === 0 && Date.now() < limit; ) {
      const { sessions } = JSON.parse((await tell('status', '--json')).stdout);
      busy = sessions.filter((session: { readonly busy: number }) => session.busy > 2);
    }
    assert.equal(busy.length, 1, 'the honest one is not');
    const memory = (await askAll(honest, ['alloc 4096'])).values[0] ?? '';
    await askAll(honest, [`trip ${memory} 4096 7`]);
    assert.equal((await tell('end', String(busy[0]?.session))).code, 0);
    assert.notEqual((await waiting).result, 0, 'the guest is told');
    await until('the session to end', () => sessionsNow(host) === 1, 20_000);
    await askAll(honest, ['alloc 4096']);
  });

  it('that is stuck for a guest that has ended stops soon, with its worker', async () => {
    await start('stuck=600000');
    const stuck = open();
    await askAll(stuck, ['init', 'ctx 0', 'alloc 4096']);
    const worker = await lastWorker();
    stuck.ask('sync', 60_000).catch(() => undefined);
    await new Promise((resolve) => setTimeout(resolve, 500));
    stuck.kill();
    await until('the worker to end', () => !existsSync(`/proc/${worker}`), 30_000);
  });

  it('has the JIT options whose values are numbers, and no count without its table', async () => {
    await start('options');
    const shell = open('code_shell');
    await askAll(shell, ['begin', `load 0 ${PTX} options 24=1,29=1,34=2,35=3,19=5,26=5,28=5`]);
    await host.logged(/option 35=3/);
    assert.deepEqual(
      [...host.log().matchAll(/(?:^|wrote to stderr: )stand-in: option (\S+)$/gm)].map(
        ([, option]) => option,
      ),
      ['24=1', '29=1', '34=2', '35=3'],
    );
  });

  const run = async (program: string, argument: string): Promise<string> => {
    const ended = await runProgram(builtFile(`programs/${program}`), [argument], {
      env: { VGPU_HOST: host.address, LD_LIBRARY_PATH: SHIM },
      limit: 120_000,
    });
    assert.equal(ended.code, 0, ended.stdout + ended.stderr);
    await until('the session to end', () => sessionsNow(host) === 0, 20_000);
    return ended.stdout;
  };
  const said = (call: string): number => host.log().split(`stand-in: ${call}\n`).length - 1;

  it('has pinned memory registered, once and until it is given back, and copies from it are right', async () => {
    await start('calls');
    for (const name of ['lengths', 'in_order', 'behind_a_wait', 'many']) await run('pinned_calls', name);
    const pinned = said('pinned');
    assert.ok(pinned > 0, 'registered');
    assert.equal(said('unpinned'), pinned);
  });

  it('compiles for one thread of a guest while it serves another', async () => {
    await start('patient');
    await run('blocked_calls', 'load');
  });

  for (const [name, sentence] of [
    ['begins', 'a context'],
    ['primary_begins', 'the context of a device'],
  ] as const) {
    it(`begins ${sentence} for one thread of a guest while it serves another`, async () => {
      await start('context=100,begins');
      await run('blocked_calls', name);
    });
  }

  const ENDED: Readonly<Record<string, string>> = {
    freed: 'frees memory',
    needed: 'frees memory that is needed again',
    array: 'destroys an array',
    module: 'unloads code',
    ended: 'ends a context',
    reset: 'ends the context of a device',
    unpinned: 'gives back pinned memory',
    unmapped: 'unmaps memory',
    trimmed: 'trims a pool',
  };
  for (const [name, sentence] of Object.entries(ENDED)) {
    it(`${sentence} for one thread of a guest while it serves another`, async () => {
      await start('held');
      await run('blocked_calls', name);
    });
  }

  it('has memory for a read given back when the rest of the read cannot be had', async () => {
    await start('eventless,calls');
    await run('earlier_failures', 'unread');
    assert.equal(said('no event'), 1);
  });

  it("has a graph with the branches of the program's graph", async () => {
    await start('calls');
    await run('graph_edges', 'branches');
    assert.equal(said('graph of 6 nodes, 8 edges'), 1);
    assert.equal(said('graph of 5 nodes, 7 edges'), 1, 'of the nodes that are switched on');
  });

  it('launches a graph that is launched again as one of its own', async () => {
    await start('calls');
    assert.match(await run('graph_calls', PTX), /^failures 0$/m);
    assert.ok(said('graph launched') > 0);
    assert.ok(said('graph destroyed') > 0, 'one that changes is made again');
  });
});
