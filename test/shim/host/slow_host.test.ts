/**
 * A host whose driver takes its time: what works is waited for, what is frozen is found. The driver is the stand-in
 * (programs/stand_in_driver.c), whose calls take longer than the limit in which a host must be heard.
 */

import assert from 'node:assert/strict';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { ROOT } from '../cuda/private_programs.js';
import {
  askAll,
  type Host,
  type Shell,
  scratchDirectory,
  sessionsBegun,
  startShell,
  until,
} from '../shim_host.js';
import { freePort } from '../support/free_port.js';
import { startStandIn } from './stand_in.js';

/** VGPU_CALL_LIMIT_MS is 10 s. */
const SLOW = 12_500;
const PORT = await freePort();
const SYSTEM_NOT_READY = 802;
const PTX = path.join(ROOT, 'test/fixtures/code/kernels.ptx');

describe('a host whose driver takes longer than a host may be silent', () => {
  const scratch = scratchDirectory();
  const shells: Shell[] = [];
  let host: Host;
  let addresses: readonly string[] = [];
  before(async () => {
    addresses = [`unix:${scratch.path}/s`, `tcp:127.0.0.1:${PORT}`];
    host = await startStandIn(`jit=${SLOW},free=${SLOW},copy=${SLOW}`, {
      listen: `unix:${scratch.path}/s`,
      args: ['--listen', `tcp:127.0.0.1:${PORT}`],
    });
  });
  after(async () => {
    for (const shell of shells) shell.kill();
    await host.stop();
    scratch.remove();
  });

  const open = async (address: string, program: string): Promise<Shell> => {
    // Over TCP it would try to continue its session for 30 s more (wire/reconnect.test.ts).
    const shell = startShell({ VGPU_HOST: address, VGPU_RECONNECT: '0' }, program);
    shells.push(shell);
    return shell;
  };

  it('loses no session while it works, over rings and over a stream, and finds a frozen worker', async () => {
    const slow = async (address: string, what: 'jit' | 'free' | 'copy'): Promise<void> => {
      const shell = await open(address, what === 'jit' ? 'code_shell' : 'driver_shell');
      if (what === 'jit') {
        await askAll(shell, ['begin']);
        const loaded = await shell.ask(`load 0 ${PTX}`, 40_000);
        assert.equal(loaded.result, 0, `${address}: a slow compilation`);
        assert.ok(loaded.milliseconds >= SLOW, `${loaded.milliseconds} ms`);
        return;
      }
      const memory = (await askAll(shell, ['init', 'ctx 0', 'alloc 4096'])).values[0] ?? '';
      const line = what === 'free' ? `free ${memory}` : `trip ${memory} 4096 1`;
      assert.equal((await shell.ask(line, 40_000)).result, 0, `${address}: a slow ${what}`);
      assert.equal((await shell.ask('info', 40_000)).result, 0, `${address}: after a slow ${what}`);
    };
    /** Begins to load, and is frozen while it does. */
    const frozen = async (address: string): Promise<() => Promise<void>> => {
      const shell = await open(address, 'code_shell');
      const earlier = sessionsBegun(host);
      await askAll(shell, ['begin']);
      await until('its session in the log', () => sessionsBegun(host) > earlier);
      const pid = Number([...host.log().matchAll(/worker (\d+)$/gm)].at(-1)?.[1]);
      return async () => {
        const loading = shell.ask(`load 0 ${PTX}`, 40_000);
        setTimeout(() => process.kill(pid, 'SIGSTOP'), 1000);
        const lost = await loading;
        assert.equal(lost.result, SYSTEM_NOT_READY, `${address}: frozen while it works`);
        assert.ok(lost.milliseconds > 8000 && lost.milliseconds < 30_000, `${lost.milliseconds} ms`);
        process.kill(pid, 'SIGKILL');
      };
    };
    const freezing: (() => Promise<void>)[] = [];
    for (const address of addresses) freezing.push(await frozen(address));
    const kinds = ['jit', 'free', 'copy'] as const;
    await Promise.all([
      ...freezing.map((freeze) => freeze()),
      ...addresses.flatMap((address) => kinds.map((what) => slow(address, what))),
    ]);
  });
});
