// Verdicts about a unit that does not come up, is not there, or must not run: bounded in time, one clear reason.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { whyNoConsumer, whyNoStandIn } from '../support/consumer.js';
import { type Guest, whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import {
  assertServes,
  assertVerdict,
  errorOf,
  evidence,
  installedGpu,
  ready,
  settings,
  tell,
} from '../support/scenario.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoConsumer();

const unitFile = '/etc/systemd/system/ollama.service';

describe('a consumer that ends again and again', { skip: skip || whyNoStandIn() }, () => {
  test('while it begins to listen: unit-restarting, in bounded time, with its last words', async (t) => {
    const guest = await ready(t, { start: false, env: { STANDIN_CRASH: 'listen' } });
    await settings(guest, 'RestartSec=300ms'); // install.sh sets 3 s
    const told = await tell(guest, 'install', '--yes');
    const verdict = await assertVerdict(guest, told, { mode: 'undetermined', reason: 'unit-restarting' });
    assert.ok(told.ms < 60_000, `${told.ms} ms`);
    assert.match(verdict.summary, /^ollama keeps ending and being started again \(.*exit-code/);
    assert.equal(verdict.next, 'sudo journalctl --unit=ollama.service --lines=100');
    assert.match(evidence(verdict, 'log-line').join('\n'), /STANDIN_CRASH|Main process exited.*status=1/);
    assert.equal(told.document.outcome, 'done', 'what was installed stays');
  });

  test('with the limit of starts reached: unit-failed', async (t) => {
    const guest = await ready(t, { start: false, env: { STANDIN_CRASH: 'listen' } });
    await settings(guest, 'RestartSec=0', 'StartLimitBurst=2');
    await guest.write('/etc/systemd/system/ollama.service.d/91-limit.conf', '[Unit]\nStartLimitBurst=2\n');
    await guest.must('systemctl', 'daemon-reload');
    const told = await tell(guest, 'install', '--yes');
    const verdict = await assertVerdict(guest, told, { mode: 'undetermined', reason: 'unit-failed' });
    assert.ok(told.ms < 60_000, `${told.ms} ms`);
    assert.match(verdict.summary, /^ollama is not running \(failed/);
    assert.equal(verdict.next, 'systemctl status ollama.service');
  });
});

describe('a unit that cannot be started', { skip }, () => {
  test('its program is missing: the verdict quotes systemd', async (t) => {
    const guest = await ready(t, { start: false });
    await settings(guest, 'ExecStart=', 'ExecStart=/usr/local/bin/olama serve', 'Restart=no');
    const told = await tell(guest, 'install', '--yes');
    const verdict = await assertVerdict(guest, told, { mode: 'undetermined', reason: 'unit-failed' });
    assert.ok(told.ms < 60_000, `${told.ms} ms`);
    assert.match(evidence(verdict, 'log-line').join('\n'), /203\/EXEC|Failed .*\/usr\/local\/bin\/olama/);
  });

  test('its user is missing: told before anything starts, and by the verdict', async (t) => {
    const guest = await ready(t, { start: false });
    await settings(guest, 'User=nobody-of-that-name', 'Restart=no');
    const told = await tell(guest, 'install', '--yes');
    await assertVerdict(guest, told, { mode: 'undetermined', reason: 'unit-failed' });
    assert.ok(told.document.plan.warnings.some(({ code }) => code === 'service-user-missing'));
    assert.match(told.stderr, /nobody-of-that-name:ollama, which does not exist/);
  });
});

/** The answer of an install that must not change anything: exit 6, one message, a remedy. */
async function refused(guest: Guest, message: RegExp, remedy: RegExp): Promise<void> {
  await guest.must('ldconfig');
  const before = await guest.listing();
  const ran = await guest.agent('install', '--yes', '--json');
  assert.equal(ran.code, 6, ran.stderr);
  const error = errorOf(ran);
  assert.match(error.message, message);
  assert.match(error.remedy ?? '', remedy);
  assert.deepEqual(before.diff(await guest.listing(), { mtimes: 'all' }), []);

  const plan = await tell(guest, 'plan');
  assert.equal(plan.code, 6);
  assert.equal(plan.document.plan.kind, 'refused');

  const status = await tell(guest, 'status');
  assert.equal(status.code, 0, 'nothing is installed, and nothing is asked');
  assert.equal(status.document.verdict, null);

  const verify = await tell(guest, 'verify');
  const verdict = await assertVerdict(guest, verify, { mode: 'undetermined', reason: 'unit-failed' });
  assert.match(
    verdict.summary,
    /^ollama is not running \((?:there is no such unit|the unit is (?:masked|bad))\)\.$/,
  );
  assert.ok(verify.ms < 60_000, `${verify.ms} ms`);
  assert.match((await guest.agent('uninstall', '--yes')).stdout, /^nothing to do\nnothing is installed for /);
}

describe('a unit that install must not touch', { skip }, () => {
  test('there is none', async (t) => {
    const guest = await ready(t, { start: false });
    await guest.must('systemctl', 'disable', '--quiet', 'ollama');
    await guest.must('rm', unitFile);
    await guest.must('systemctl', 'daemon-reload');
    await refused(guest, /^there is no ollama\.service on this machine$/, /install the consumer first/);
  });
});

test('a setting that systemd ignores is no reason to stop', { skip }, async (t) => {
  const guest = await ready(t, { start: false });
  await settings(guest, 'RestartSec=banana', 'Nonsense=yes');
  await installedGpu(guest);
  await assertServes(guest);
});
