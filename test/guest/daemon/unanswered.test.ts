// `verify` of a consumer that hangs while its log cannot help, and `status` beside a journal too long to read.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assertDocument } from '../../agent/cli/commands/json-schemas.js';
import { whyNoStandIn } from '../support/consumer.js';
import { Guest, whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { at } from '../support/installed.js';
import { until } from '../support/process.js';
import { settings } from '../support/scenario.js';
import { documentOnBus, generous, installService, settledOnGpu } from '../support/service.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoStandIn();
const long = process.env['VGPU_TEST_LONG'] === '1';

async function timed<T>(work: Promise<T>): Promise<readonly [T, number]> {
  const begun = performance.now();
  return [await work, (performance.now() - begun) / 1000];
}

test('a consumer that hangs, and whose log is cut: verify ends within 35 s and says why, with and without the service', {
  skip,
}, async (t) => {
  const guest = await Guest.start({}, t);
  await guest.hosts.start();
  await installService(guest);
  await guest.must('journalctl', '-q', '--rotate');
  await guest.must('journalctl', '-q', '--vacuum-time=1us');
  const main = await guest.property('ollama', 'MainPID');
  await guest.must('kill', '-STOP', main);
  // A service that has not read the log either.
  await guest.must('systemctl', 'restart', 'vgpu-agent');
  for (const service of [true, false]) {
    if (!service) await guest.must('systemctl', 'stop', 'vgpu-agent');
    const [ran, seconds] = await timed(guest.agent('verify', '--json'));
    const verdict = at(assertDocument('verify', ran.stdout), 'verdict');
    t.diagnostic(`verify ${service ? 'with' : 'without'} the service: ${seconds.toFixed(1)} s`);
    assert.deepEqual([at(verdict, 'mode'), at(verdict, 'reason')], ['undetermined', 'readiness-timeout']);
    assert.match(String(at(verdict, 'summary')), /did not answer requests in time \(http:.*no answer within/);
    assert.ok(seconds < 35, `${seconds} s`);
  }
  await guest.must('kill', '-CONT', main);
  await guest.must('systemctl', 'start', 'vgpu-agent');
  await until('a verdict on a consumer that answers again', 60_000, async () =>
    at(await documentOnBus(guest), 'verdict', 'reason') === 'journal-cut' ? true : undefined,
  );
});

test('a journal of 150,000 lines: status says within seconds what is known', {
  skip: skip || (!long && 'a minute of writing: only with --long'),
}, async (t) => {
  const guest = await Guest.start({ size: '4g' }, t);
  await guest.hosts.start();
  await guest.write(
    '/etc/systemd/journald.conf.d/all.conf',
    '[Journal]\nRateLimitBurst=0\nSystemMaxUse=3G\n',
  );
  await guest.must('systemctl', 'restart', 'systemd-journald');
  await installService(guest, generous, { STANDIN_NOISE: '150000' });
  await settings(guest, 'LogRateLimitIntervalSec=0');
  await guest.must('systemctl', 'restart', 'vgpu-agent');
  const [ran, seconds] = await timed(guest.agent('status', '--json'));
  t.diagnostic(`status: ${seconds.toFixed(1)} s, ${ran.stdout}`);
  assert.ok(seconds < 15, `${seconds} s`);
  await settledOnGpu(guest, 120_000);
});
