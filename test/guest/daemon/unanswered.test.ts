// `verify` of a consumer that hangs while its log cannot help, and `status` beside a journal too long to read.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assertDocument } from '../../agent/cli/commands/json-schemas.js';
import { whyNoStandIn } from '../support/consumer.js';
import { Guest, whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { at } from '../support/installed.js';
import { until } from '../support/process.js';
import { documentOnBus, installService, settledOnGpu } from '../support/service.js';

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
    assert.ok(seconds < 40, `${seconds} s`);
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
  const [directory, most] = ['/etc/systemd/journald.conf.d', 'SystemMaxUse=3G\nRuntimeMaxUse=3G'];
  await guest.must('mkdir', '-p', directory);
  await guest.write(`${directory}/all.conf`, `[Journal]\nRateLimitIntervalSec=0\n${most}\n`);
  await guest.must('systemctl', 'restart', 'systemd-journald');
  await installService(guest);
  const command = '/bin/sh -c "seq 150000; exec /usr/local/bin/ollama serve"';
  const dropIn = '/etc/systemd/system/ollama.service.d/90-many.conf';
  await guest.write(dropIn, `[Service]\nExecStart=\nExecStart=${command}\n`);
  await guest.must('sh', '-ec', 'systemctl daemon-reload; systemctl restart ollama');
  await until('the consumer to answer', 60_000, async () =>
    (await guest.run('curl', '-fsS', 'http://127.0.0.1:11434/api/version')).code === 0 ? true : undefined,
  );
  await guest.must('journalctl', '--sync');
  const read = await guest.must('sh', '-c', 'journalctl -q -o cat -u ollama | wc -l');
  assert.ok(Number(read) > 140_000, read);
  await guest.must('systemctl', 'restart', 'vgpu-agent');
  const [ran, seconds] = await timed(guest.agent('status', '--json', '--fresh'));
  t.diagnostic(
    `status: ${seconds.toFixed(1)} s: ${String(at(JSON.parse(ran.stdout), 'verdict', 'summary'))}`,
  );
  assert.ok(seconds < 15, `${seconds} s`);
  await settledOnGpu(guest);
});
