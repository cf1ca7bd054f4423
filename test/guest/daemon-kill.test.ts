// The service killed at every step of a repair, and (with VGPU_TEST_LONG=1) thousands of drifts and restarts.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { messageIds } from '../../agent/systemd/journal-writer.js';
import { whyNoConsumer } from './support/consumer.js';
import { Guest, whyNoGuest } from './support/guest.js';
import { whyNoHostd } from './support/hosts.js';
import { at } from './support/installed.js';
import { until } from './support/process.js';
import { repository } from './support/repository.js';
import {
  entries,
  installService,
  linkTarget,
  property,
  publicLink,
  said,
  settledOnGpu,
  status,
} from './support/service.js';

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

test('killed at every step of a repair, it ends the repair after its restart', {
  skip,
  timeout: 240_000,
}, async (t) => {
  const guest = await Guest.start({}, t);
  await guest.hosts.start();
  await installService(guest);

  // Once through, to count the steps.
  await guest.must('systemctl', 'stop', 'vgpu-agent');
  await environment(guest, { ...preload, VGPU_TEST_TRACE: '/run/vgpu-agent/trace' });
  await guest.must('ln', '-sfn', '/nonexistent', publicLink);
  await guest.must('systemctl', 'start', 'vgpu-agent');
  await until('the repair', 10_000, async () => ((await linkTarget(guest)) === right ? true : undefined));
  await settledOnGpu(guest);
  const steps = (await guest.must('cat', '/run/vgpu-agent/trace')).trim().split('\n');
  assert.ok(steps.length >= 8, steps.join('\n'));

  for (let step = 1; step <= steps.length; step += 1) {
    await guest.must('systemctl', 'stop', 'vgpu-agent');
    await guest.must('systemctl', 'reset-failed', 'vgpu-agent');
    await guest.must('ln', '-sfn', '/nonexistent', publicLink);
    await environment(guest, { ...preload, VGPU_TEST_AT: String(step), VGPU_TEST_DO: 'kill' });
    // Killed by itself at the step; started again by systemd it would be killed again, so the next start is plain.
    const starting = guest.run('systemctl', 'start', 'vgpu-agent');
    // On a busy machine one question may hang; the next one is answered.
    await until(`step ${step} (${steps[step - 1]}): the death`, 60_000, async () => {
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
    await until(`step ${step} (${steps[step - 1]}): the repair`, 20_000, async () =>
      (await linkTarget(guest)) === right ? true : undefined,
    ).catch(async (error: unknown) => {
      throw new Error(`${String(error)}\n${await said(guest)}`);
    });
    await settledOnGpu(guest);
    assert.equal(await guest.exists('/var/lib/vgpu-agent/transaction.jsonl'), false);
  }
});

async function memoryOf(guest: Guest): Promise<{ readonly megabytes: number; readonly descriptors: number }> {
  const main = await guest.property('vgpu-agent', 'MainPID');
  const node = (await guest.must('pgrep', '-P', main, 'node')).trim();
  const text = await guest.must('bash', '-c', `grep VmRSS /proc/${node}/status; ls /proc/${node}/fd | wc -l`);
  return {
    megabytes: Number(/VmRSS:\s+(\d+)/.exec(text)?.[1]) / 1024,
    descriptors: Number(text.trim().split('\n').at(-1)),
  };
}

test(`${long ? '10 000' : '150'} drifts: nothing is missed and nothing grows`, {
  skip,
  timeout: 3_600_000,
}, async (t) => {
  const guest = await Guest.start({}, t);
  await guest.hosts.start();
  await installService(guest, { schema: 1, repair: { perHour: 1_000_000, backoffSeconds: 0 } });
  const drifts = async (count: number): Promise<void> => {
    const script = `for ((i = 0; i < ${count}; i++)); do
      ln -sfn /nonexistent ${publicLink}
      for ((j = 0; j < 20000; j++)); do [ "$(readlink ${publicLink})" != ${right} ] || break; sleep 0.005; done
      [ "$(readlink ${publicLink})" = ${right} ] || { echo "missed $i"; exit 1; }
    done`;
    const ran = await guest.runWith({ timeoutMs: 3_000_000 }, 'bash', '-c', script);
    assert.equal(ran.code, 0, `${ran.stdout}\n${await said(guest)}`);
  };
  await drifts(50);
  await settledOnGpu(guest);
  const before = await memoryOf(guest);
  await drifts(long ? 10_000 : 150);
  await settledOnGpu(guest);
  await new Promise((resolve) => setTimeout(resolve, 2_000));
  const after = await memoryOf(guest);
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
    'a mended link is no reason to restart the consumer',
  );
  assert.equal(await guest.property('vgpu-agent', 'NRestarts'), '0');
});

test(`${long ? '1000' : '10'} restarts of the consumer: each is judged, nothing grows`, {
  skip,
  timeout: 3_600_000,
}, async (t) => {
  const guest = await Guest.start({}, t);
  await guest.hosts.start();
  await installService(guest);
  const before = await memoryOf(guest);
  const said = (await entries(guest, messageIds.verdict)).length;
  const times = long ? 1000 : 10;
  for (let time = 0; time < times; time += 1) {
    await guest.must('sh', '-c', 'systemctl reset-failed ollama; systemctl restart ollama');
    const start = await guest.invocationId('ollama');
    await until('a verdict about this start', 20_000, async () =>
      at(await status(guest), 'verdict', 'invocationId') === start ? true : undefined,
    );
  }
  await settledOnGpu(guest);
  assert.ok((await entries(guest, messageIds.verdict)).length >= said + times);
  const after = await memoryOf(guest);
  assert.ok(after.megabytes < before.megabytes + 6, `${before.megabytes} MB, then ${after.megabytes} MB`);
  assert.equal(await property(guest, 'Restarts'), 'u 0');
});
