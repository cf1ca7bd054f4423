// The service killed at every step of a repair, and (with VGPU_TEST_LONG=1) thousands of drifts and restarts.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { messageIds } from '../../../agent/systemd/journal-writer.js';
import { whyNoConsumer } from '../support/consumer.js';
import { Guest, whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { at } from '../support/installed.js';
import { until } from '../support/process.js';
import { repository } from '../support/repository.js';
import {
  documentOnBus,
  entries,
  installService,
  linkTarget,
  property,
  publicLink,
  said,
  settledOnGpu,
  status,
  untilEntry,
} from '../support/service.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoConsumer();
const right = '/opt/vgpu/current/libcuda.so.1';
const long = process.env['VGPU_TEST_LONG'] === '1';

/** Environment of the service, by a drop-in; empty takes it away. */
async function environment(guest: Guest, settings: Readonly<Record<string, string>>): Promise<void> {
  const lines = Object.entries(settings).map(([name, value]) => `Environment="${name}=${value}"`);
  await guest.write('/etc/systemd/system/vgpu-agent.service.d/test.conf', `[Service]\n${lines.join('\n')}\n`);
  await guest.must('systemctl', 'daemon-reload');
}

const preload = {
  NODE_OPTIONS: `--import=${join(repository, 'dist/test/guest/support/at-checkpoint.js')}`,
};

const dropIn = '/etc/systemd/system/ollama.service.d/50-vgpu.conf';

/** A fault that is made while the service is down, and the state that has to come back. */
interface Drift {
  readonly what: string;
  make(guest: Guest): Promise<unknown>;
  repaired(guest: Guest): Promise<boolean>;
}

const linkBent: Drift = {
  what: 'a bent link',
  make: (guest) => guest.must('ln', '-sfn', '/nonexistent', publicLink),
  repaired: async (guest) => (await linkTarget(guest)) === right,
};
const dropInEdited: Drift = {
  what: 'an edited drop-in',
  make: (guest) =>
    guest.must(
      'sh',
      '-c',
      `rm -f ${dropIn}.vgpu-save; printf '[Service]\nEnvironment=LD_PRELOAD=\n' >${dropIn}; systemctl daemon-reload`,
    ),
  repaired: async (guest) => (await guest.read(dropIn)).includes(`LD_PRELOAD=${right}`),
};
const storeTruncated: Drift = {
  what: 'a truncated library in the store',
  make: (guest) => guest.must('truncate', '-s', '100', right),
  repaired: async (guest) => Number(await guest.must('stat', '-L', '-c', '%s', right)) > 10_000,
};
const together: Drift = {
  what: 'all three at once',
  make: async (guest) => {
    for (const one of [linkBent, dropInEdited, storeTruncated]) await one.make(guest);
  },
  repaired: async (guest) => {
    for (const one of [linkBent, dropInEdited, storeTruncated])
      if (!(await one.repaired(guest))) return false;
    return true;
  },
};

async function untilMended(guest: Guest, drift: Drift, what: string): Promise<void> {
  try {
    await until(`${what}: the repair`, 180_000, async () =>
      (await drift.repaired(guest)) ? true : undefined,
    );
  } catch (error) {
    throw new Error(`${String(error)}\n${await said(guest)}`);
  }
}

/**
 * All of them, or one of each third: another one each day, so that all have their turn. A repair is an install, which
 * test/agent/install/apply kills at every step.
 */
function chosen(count: number): readonly number[] {
  if (long) return Array.from({ length: count }, (_, index) => index + 1);
  const seed = Number(process.env['VGPU_TEST_SEED'] ?? Math.floor(Date.now() / 86_400_000));
  return [0, 1, 2].map((third) => {
    const [from, to] = [third, third + 1].map((edge) => Math.floor((edge * count) / 3)) as [number, number];
    return from + 1 + (seed % (to - from));
  });
}

describe(`killed at ${long ? 'every step' : 'steps'} of a repair, it ends the repair after its restart`, {
  skip,
}, () => {
  let guest: Guest;
  before(async () => {
    guest = await Guest.start();
    await guest.hosts.start();
    await installService(guest);
  });
  after(() => guest.stop());

  // All at once has the steps of each; one by one takes minutes.
  for (const drift of long ? [linkBent, dropInEdited, storeTruncated, together] : [together]) {
    test(drift.what, { timeout: 3_600_000 }, async () => {
      // Once through, to count the steps.
      await guest.must('systemctl', 'stop', 'vgpu-agent');
      await guest.must('rm', '-f', '/run/vgpu-agent/steps');
      await environment(guest, { ...preload, VGPU_TEST_TRACE: '/run/vgpu-agent/steps' });
      await drift.make(guest);
      await guest.must('systemctl', 'start', 'vgpu-agent');
      await untilMended(guest, drift, drift.what);
      await settledOnGpu(guest);
      const steps = (await guest.must('cat', '/run/vgpu-agent/steps')).trim().split('\n');
      assert.ok(steps.length >= 8, steps.join('\n'));
      for (const step of chosen(steps.length)) {
        await killedAt(
          guest,
          drift,
          step,
          `${drift.what}, step ${step} of ${steps.length} (${steps[step - 1]})`,
        );
      }
    });
  }
});

async function killedAt(guest: Guest, drift: Drift, step: number, what: string): Promise<void> {
  await guest.must('systemctl', 'stop', 'vgpu-agent');
  await guest.must('systemctl', 'reset-failed', 'vgpu-agent');
  await drift.make(guest);
  await environment(guest, { ...preload, VGPU_TEST_AT: String(step), VGPU_TEST_DO: 'kill' });
  // Killed by itself at the step; started again by systemd it would be killed again, so the next start is plain.
  const starting = guest.run('systemctl', 'start', 'vgpu-agent');
  // On a busy machine one question may hang; the next one is answered.
  await until(`${what}: the death`, 180_000, async () => {
    const asked = guest.runWith(
      { timeoutMs: 10_000 },
      'systemctl',
      'show',
      '--value',
      '-p',
      'NRestarts',
      'vgpu-agent',
    );
    const restarts = await asked.then(
      (ran) => Number(ran.stdout),
      () => 0,
    );
    return restarts > 0 ? true : undefined;
  });
  await environment(guest, {});
  await starting;
  await untilMended(guest, drift, what);
  await settledOnGpu(guest);
  assert.equal(await guest.exists('/var/lib/vgpu-agent/transaction.jsonl'), false, what);
}

interface Memory {
  readonly megabytes: number;
  readonly descriptors: number;
}

/** The least memory of the service now and in so many ticks of a second. One program in the guest, which starts no other. */
async function memoryOf(guest: Guest, ticks = 0): Promise<Memory> {
  const main = await guest.property('vgpu-agent', 'MainPID');
  const script = `shopt -s nullglob
    exec {nothing}<> <(:)
    read -r node _ </proc/${main}/task/${main}/children
    least=
    for ((i = 0; i <= ${ticks}; i++)); do
      ((i == 0)) || read -r -t 1 -u "$nothing" || true
      while read -r name value _; do [ "$name" = VmRSS: ] && now=$value; done </proc/$node/status
      descriptors=(/proc/$node/fd/*)
      if [ -z "$least" ] || ((now < least)); then least=$now count=\${#descriptors[@]}; fi
    done
    echo "$least $count"`;
  const [kilobytes, descriptors] = (await guest.must('bash', '-c', script)).trim().split(' ').map(Number);
  assert.ok(kilobytes !== undefined && kilobytes > 0 && descriptors !== undefined && descriptors > 0);
  return { megabytes: kilobytes / 1024, descriptors };
}

/** The least in two ticks: at these the service collects the garbage of its work (agent/service/own-process.ts). */
const memoryAtRest = (guest: Guest): Promise<Memory> => memoryOf(guest, 32);

test(`${long ? '10 000' : '45'} drifts: nothing is missed and nothing grows`, {
  skip,
  timeout: 3_600_000,
}, async (t) => {
  const guest = await Guest.start({}, t);
  await guest.hosts.start();
  await installService(guest, { schema: 1, repair: { perHour: 1_000_000, backoffSeconds: 0 } });
  const drifts = async (count: number): Promise<void> => {
    // Waits without starting programs, which would take more processor time than the service.
    const script = `exec {nothing}<> <(:)
    for ((i = 0; i < ${count}; i++)); do
      ln -sfn /nonexistent ${publicLink}
      for ((j = 0; j < 20000; j++)); do
        [ ! ${publicLink} -ef ${right} ] || break
        read -r -t 0.005 -u "$nothing" || true
      done
      [ "$(readlink ${publicLink})" = ${right} ] || { echo "missed $i"; exit 1; }
    done`;
    const ran = await guest.runWith({ timeoutMs: 3_000_000 }, 'bash', '-c', script);
    assert.equal(ran.code, 0, `${ran.stdout}\n${await said(guest)}`);
  };
  await drifts(15);
  await settledOnGpu(guest);
  const before = await memoryAtRest(guest);
  await drifts(long ? 10_000 : 30);
  await settledOnGpu(guest);
  const after = await memoryAtRest(guest);
  assert.ok(
    after.megabytes < 60 && after.megabytes < before.megabytes + 4,
    `${before.megabytes} MB, then ${after.megabytes} MB`,
  );
  assert.ok(
    after.descriptors <= before.descriptors + 2,
    `${before.descriptors}, then ${after.descriptors} descriptors`,
  );
  assert.equal(
    at(await status(guest), 'service', 'restarts'),
    0,
    'a repaired link is no reason to restart the consumer',
  );
  assert.equal(await guest.property('vgpu-agent', 'NRestarts'), '0');
});

test(`${long ? '1000' : '3'} restarts of the consumer: each is judged, nothing grows`, {
  skip,
  timeout: 3_600_000,
}, async (t) => {
  const guest = await Guest.start({}, t);
  await guest.hosts.start();
  await installService(guest);
  const before = await memoryOf(guest);
  const said = (await entries(guest, messageIds.verdict)).length;
  const times = long ? 1000 : 3;
  for (let time = 0; time < times; time += 1) {
    await guest.must('sh', '-c', 'systemctl reset-failed ollama; systemctl restart ollama');
    const start = await guest.invocationId('ollama');
    // The command would look for itself, which on a busy machine keeps the service from its own verdict.
    await until('a verdict about this start', 180_000, async () =>
      at(await documentOnBus(guest), 'verdict', 'invocationId') === start ? true : undefined,
    );
  }
  await settledOnGpu(guest);
  await untilEntry(guest, messageIds.verdict, said + times - 1);
  let after = before.megabytes;
  // It collects its garbage when it has nothing else to do.
  await until('the memory that it had before', 180_000, async () => {
    after = (await memoryOf(guest)).megabytes;
    return after < before.megabytes + 6 ? true : undefined;
  }).catch((error: unknown) => assert.fail(`${before.megabytes} MB, then ${after} MB: ${String(error)}`));
  assert.equal(await property(guest, 'Restarts'), 'u 0');
});
