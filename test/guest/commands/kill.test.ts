/**
 * SIGKILL after every step of install and of uninstall. Wherever it strikes: the consumer starts, and finds either
 * what was there before or what is to come; the next `install` ends in GPU mode, the next `uninstall` gives back
 * every byte; and nothing is lost.
 *
 * The steps are found at run time: agent/apply marks each with a checkpoint, and the agent kills itself there
 * (support/at-checkpoint.ts). With VGPU_TEST_LONG=1 every step is killed, followed by install and by uninstall. Unless
 * so: four steps of each command, three of which the consumer or the loader can see (the seed chooses), each followed by
 * one of the two commands. VGPU_TEST_SEED repeats a sample.
 * test/agent/apply/ (kill-everywhere.ts, killed.test.ts) leaves out no step, and needs no guest.
 */
import assert from 'node:assert/strict';
import { after, before as beforeAll, describe, test } from 'node:test';
import { random } from '../../agent/verdict/random.js';
import { mixed } from '../states/mixed.js';
import { debian550 } from '../states/nvidia-debian.js';
import { multiarch, type StartingState } from '../states/state.js';
import { checkpointsOf, killedAt } from '../support/checkpoints.js';
import { whyNoConsumer } from '../support/consumer.js';
import { type Afterwards, type Guest, whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import {
  assertConsumerStarts,
  differences,
  installToGpu,
  preparedIn,
  uninstall,
} from '../support/installed.js';
import type { Listing } from '../support/listing.js';

const long = process.env['VGPU_TEST_LONG'] === '1';
const seed = Number(process.env['VGPU_TEST_SEED'] ?? Date.now() % 1_000_000);
const below = random(seed);
const skip = whyNoGuest() || whyNoHostd() || whyNoConsumer();
const skipLong = skip || (long ? false : 'only with VGPU_TEST_LONG=1');

const quiet = ['--yes', '--no-restart'] as const;

/** The two commands that may come next. */
const recoveries = ['install', 'uninstall'] as const;
type Recovery = (typeof recoveries)[number];

async function prepared(state: StartingState, t?: Afterwards): Promise<{ guest: Guest; before: Listing }> {
  const guest = await preparedIn(state, t);
  return { guest, before: await guest.listing() };
}

/** Steps that change what the consumer or the loader can see; the others only write for ourselves or under a name that nothing reads. */
function isVisible(checkpoint: string): boolean {
  return !/\/var\/lib\/vgpu-agent|\.vgpu-new$/.test(checkpoint);
}

interface Strike {
  /** Counted from 1. */
  readonly n: number;
  readonly name: string;
  readonly next: Recovery;
}

function strikes(checkpoints: readonly string[]): readonly Strike[] {
  const steps = checkpoints.map((name, index) => ({ n: index + 1, name }));
  if (long) return steps.flatMap((step) => recoveries.map((next) => ({ ...step, next })));
  // Four, most of them at steps that the consumer or the loader sees; unit tests kill at every step.
  const visible = steps.filter(({ name }) => isVisible(name));
  const others = steps.filter(({ name }) => !isVisible(name));
  const some = (from: typeof steps, count: number): typeof steps =>
    from
      .filter((_, index) => (index + seed) % Math.max(1, Math.floor(from.length / count)) === 0)
      .slice(0, count);
  return [...some(visible, 3), ...some(others, 1)].map((step) => ({
    ...step,
    next: recoveries[below(2)] ?? 'install',
  }));
}

/** A guest before the first install, and after an undisturbed one that ended in GPU mode. */
interface Known {
  readonly before: Listing;
  readonly installed: Listing;
}

async function known(guest: Guest, before: Listing): Promise<Known> {
  await installToGpu(guest);
  const installed = await guest.listing();
  await uninstall(guest, '--no-restart');
  return { before, installed };
}

/**
 * The next command after a kill; ends with the machine as it was before the first install. What an install leaves is
 * held against one that is known to give GPU mode, but for our own records, which name the run.
 */
async function recover(
  guest: Guest,
  { before, installed }: Known,
  next: Recovery,
  context: string,
): Promise<void> {
  if (next === 'install') {
    const ran = await guest.agent('install', ...quiet);
    assert.equal(ran.code, 0, `${context}, then install\n${ran.stdout}${ran.stderr}`);
    const lines = installed
      .diff(await guest.listing())
      .filter((line) => !line.includes(' /var/lib/vgpu-agent/'));
    assert.deepEqual(lines, [], `${context}, then install: not as an install that nobody disturbed`);
  }
  const ran = await guest.agent('uninstall', ...quiet);
  assert.equal(ran.code, 0, `${context}, then ${next}\n${ran.stdout}${ran.stderr}`);
  const lines = differences(before, await guest.listing());
  assert.deepEqual(lines, [], `${context}, then ${next}: not as before`);
}

/** Kills `command` after each of its steps in turn. */
async function killEverywhere(guest: Guest, states: Known, command: Recovery): Promise<number> {
  const ready = async (): Promise<void> => {
    if (command === 'install') return;
    const ran = await guest.agent('install', ...quiet);
    assert.equal(ran.code, 0, ran.stdout + ran.stderr);
  };
  await ready();
  const checkpoints = await checkpointsOf(guest, command, '--yes');
  assert.ok(checkpoints.length > 10, `only ${checkpoints.length} steps`);
  if (command === 'install') await uninstall(guest, '--no-restart');
  const chosen = strikes(checkpoints);
  for (const { n, name, next } of chosen) {
    const context = `${command} killed at step ${n} of ${checkpoints.length} (${name})`;
    await ready();
    const ran = await killedAt(guest, n, command, '--yes');
    assert.equal(ran.code, 137, `${context}: it was not\n${ran.stdout}${ran.stderr}`);
    // Where a step shows nothing to the consumer, its start is the one that was tried after the step before.
    if (long || isVisible(name)) await assertConsumerStarts(guest, context);
    await recover(guest, states, next, context);
  }
  await installToGpu(guest);
  await uninstall(guest, '--no-restart');
  return chosen.length;
}

describe("SIGKILL over Debian's alternatives, after every step", { skip: skipLong || debian550.skip }, () => {
  for (const command of recoveries) {
    test(`of ${command}`, async (t) => {
      const { guest, before } = await prepared(debian550, t);
      await killEverywhere(guest, await known(guest, before), command);
    });
  }
});

/** One guest: each test ends with the machine as it was before the first install. */
describe('SIGKILL', { skip: skip || mixed.skip }, () => {
  let guest: Guest;
  let states: Known;
  beforeAll(async () => {
    const made = await prepared(mixed);
    guest = made.guest;
    states = await known(guest, made.before);
  });
  after(() => guest.stop());

  for (const command of recoveries) {
    test(`after every step of ${command}`, async (t) => {
      const count = await killEverywhere(guest, states, command);
      t.diagnostic(`${count} kills, seed ${seed}`);
      await assertConsumerStarts(guest, 'at the end');
    });
  }

  test('again and again, while the next command repairs what the last one left', async (t) => {
    const rounds = long ? 12 : 1;
    t.diagnostic(`seed ${seed}`);
    for (let round = 1; round <= rounds; round += 1) {
      const history: string[] = [];
      for (let kill = 0; kill < 4; kill += 1) {
        const command = recoveries[below(2)] ?? 'install';
        const n = 1 + below(60);
        const ran = await killedAt(guest, n, command, ...quiet);
        history.push(`${command} at ${n}: ${ran.code}`);
        assert.ok(ran.code === 137 || ran.code === 0, `${history.join('; ')}\n${ran.stdout}${ran.stderr}`);
      }
      const context = `round ${round} (${history.join('; ')})`;
      await assertConsumerStarts(guest, context);
      await recover(guest, states, recoveries[round % 2] ?? 'install', context);
    }
  });

  test('at any instant, also while a tool of the system runs for the agent', async (t) => {
    const rounds = long ? 60 : 4;
    t.diagnostic(`seed ${seed}`);
    for (let round = 0; round < rounds; round += 1) {
      const command = recoveries[round % 2] ?? 'install';
      if (command === 'uninstall') {
        assert.equal((await guest.agent('install', ...quiet)).code, 0);
      }
      const seconds = (0.15 + below(400) / 1000).toFixed(3);
      // With --foreground only the agent dies, and what it has started runs on.
      const alone = below(2) === 0 ? ['--foreground'] : [];
      const context = `${command} killed after ${seconds} s ${alone.join('')}`;
      await guest.run('timeout', ...alone, '-s', 'KILL', seconds, 'vgpu-agent', command, ...quiet);
      await assertConsumerStarts(guest, context);
      await recover(guest, states, recoveries[below(2)] ?? 'install', context);
    }
  });

  test('after a reboot the consumer runs, and the next command finishes the work', async () => {
    const checkpoints = await checkpointsOf(guest, 'install', ...quiet);
    await uninstall(guest, '--no-restart');
    const names = [`rename ${multiarch}/libcuda.so.1`, 'daemon-reload'];
    for (const name of long ? names : names.slice(0, 1)) {
      const n = checkpoints.indexOf(name) + 1;
      assert.ok(n > 0, `no step "${name}" in ${checkpoints.join(', ')}`);
      assert.equal((await killedAt(guest, n, 'install', ...quiet)).code, 137);
      await guest.reboot();
      await assertConsumerStarts(guest, `killed after ${name}, then rebooted`);
      await recover(guest, states, 'install', `killed after ${name}, then rebooted`);
    }
  });
});
