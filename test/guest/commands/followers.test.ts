// A command that follows the journal has a journalctl beside it, which would follow forever: it has to go with its command.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { whyNoConsumer, whyNoStandIn } from '../support/consumer.js';
import { type Guest, whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { ended, until } from '../support/process.js';
import { ready } from '../support/scenario.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoConsumer() || whyNoStandIn();

interface Follower {
  readonly pid: string;
  /** The command that started it. */
  readonly parent: string;
}

/** Every journalctl of the guest. */
async function followers(guest: Guest): Promise<readonly Follower[]> {
  const { stdout } = await guest.run('ps', '-C', 'journalctl', '-o', 'pid=,ppid=');
  return [...stdout.matchAll(/(\d+) +(\d+)/g)].map(([, pid = '', parent = '']) => ({ pid, parent }));
}

/**
 * Starts `vgpu-agent ARGS`, waits until it follows, sends the signal to it alone, as `kill` does (a terminal's Ctrl-C
 * would reach journalctl too), waits until no journalctl is left, and returns the exit status.
 */
async function stopped(guest: Guest, signal: string, ...args: readonly string[]): Promise<number> {
  assert.deepEqual(await followers(guest), []);
  const child = guest.spawn(['vgpu-agent', ...args], { stdio: 'ignore' });
  const end = ended(child);
  const [follower] = await until(`${args.join(' ')} follows`, 60_000, async () => {
    const found = await followers(guest);
    return found.length > 0 ? found : undefined;
  });
  assert.ok(follower !== undefined);
  await guest.must('kill', `-${signal}`, follower.parent);
  const code = await end;
  await until('no follower is left', 60_000, async () =>
    (await followers(guest)).length === 0 ? true : undefined,
  );
  return code;
}

describe('no journalctl is left of a command that followed the journal', { skip }, () => {
  test('install and verify while the verdict is waited for', async (t) => {
    const guest = await ready(t, { env: { STANDIN_DELAY_MS: '20000' } });
    assert.equal(await stopped(guest, 'TERM', 'install', '--yes'), 130);
    assert.equal(await stopped(guest, 'INT', 'verify'), 130);
  });
});
