// Verdicts with hosts that are gone, silent, slow, speak garbage or go away in the middle. Whatever the host
// does, the consumer is up and answers, the verdict comes in time, and a host that is back is found again.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Verdict } from '../../../agent/contracts/verdict.js';
import { consumerDesigns, whyNoConsumer, whyNoStandIn } from '../support/consumer.js';
import { type Guest, whyNoGuest } from '../support/guest.js';
import { type Fault, whyNoHostd } from '../support/hosts.js';
import { until } from '../support/process.js';
import {
  assertServes,
  assertVerdict,
  type Expected,
  evidence,
  installedGpu,
  ready,
  tell,
} from '../support/scenario.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoConsumer();
// Design 2 asks the host once where design 3 asks six times, each until the shim gives up.
const quickest = consumerDesigns().find((design) => design === 2) ?? consumerDesigns()[0] ?? 3;

/** Runs the command that a verdict names as the next one, as a person would: copied into a shell. */
async function follow(guest: Guest, verdict: Verdict): Promise<number> {
  assert.ok(verdict.next !== null);
  // The guest has no sudo, and root needs none.
  const ran = await guest.run('bash', '-c', `sudo() { "$@"; }; ${verdict.next}`);
  assert.notEqual(ran.code, 127, ran.stderr);
  return ran.code;
}

describe('install with a host that does not help', { skip, concurrency: 3 }, () => {
  const cases: readonly (Expected & {
    readonly fault: Fault;
    readonly withinMs: number;
    readonly says: RegExp;
  })[] = [
    {
      fault: { mode: 'refused' },
      mode: 'cpu',
      reason: 'host-unreachable',
      withinMs: 60_000,
      says: /cannot connect to unix:\/run\/vgpu\/hostd\.sock: Connection refused/,
    },
    {
      fault: { mode: 'silent' },
      mode: 'cpu',
      reason: 'host-slow',
      withinMs: 90_000,
      says: /waits too long for the host \(no answer within the limit\)/,
    },
    {
      fault: { mode: 'garbage' },
      mode: 'cpu',
      reason: 'host-foreign',
      withinMs: 60_000,
      says: /finds a program other than vgpu-hostd .* \(the answer does not come from vgpu-hostd\)/,
    },
    {
      fault: { mode: 'dies', bytes: 200 },
      mode: 'cpu',
      reason: 'host-unreachable',
      withinMs: 60_000,
      says: /cannot reach the host/,
    },
  ];
  for (const { fault, withinMs, says, ...expected } of cases) {
    test(`${fault.mode}: ${expected.mode}, ${String(expected.reason)}, and the consumer serves`, async (t) => {
      const guest = await ready(t, { design: quickest, host: false, start: false });
      await guest.hosts.startFaulty(fault);
      const address = ['--host', 'unix:/run/vgpu/hostd.sock', '--allow-unreachable-host'];
      const told = await tell(guest, 'install', '--yes', ...address);
      const verdict = await assertVerdict(guest, told, expected);
      assert.match(verdict.summary, says);
      assert.ok(told.ms < withinMs, `${told.ms} ms`);
      assert.equal(told.document.outcome, 'done', 'what was installed stays');
      assert.ok(
        told.document.plan.warnings.some(({ code }) => code === 'host-unreachable'),
        'told before anything was changed, too',
      );
      assert.match(evidence(verdict, 'host').join(), /^does not answer: /);
      await assertServes(guest);

      // The consumer found no GPU. It uses the host from its next start on.
      await guest.hosts.start();
      await guest.must('systemctl', 'restart', 'ollama');
      await assertVerdict(guest, await tell(guest, 'verify'), { mode: 'gpu' });
    });
  }

  test('the next command of a verdict can be copied into a shell, and repairs it', async (t) => {
    const guest = await ready(t, { design: quickest, host: false, start: false });
    const address = ['--host', 'unix:/run/vgpu/hostd.sock', '--allow-unreachable-host'];
    const told = await tell(guest, 'install', '--yes', ...address);
    const verdict = await assertVerdict(guest, told, { mode: 'cpu', reason: 'host-unreachable' });
    assert.match(
      verdict.summary,
      /cannot reach the host \(cannot connect to unix:\/run\/vgpu\/hostd\.sock: No such file or directory\); start vgpu-hostd there/,
    );
    assert.equal(await follow(guest, verdict), 3, 'still none');
    await guest.hosts.start();
    // A host that returns does not help a consumer that has already searched for GPUs.
    const again = await assertVerdict(guest, await tell(guest, 'verify'), {
      mode: 'cpu',
      reason: 'probe-disagrees',
    });
    assert.equal(await follow(guest, again), 0);
  });

  test('without --host and without a host it prints the guessed address, and --host corrects it', async (t) => {
    const guest = await ready(t, { design: quickest, host: false, start: false });
    const told = await tell(guest, 'install', '--yes', '--allow-unreachable-host');
    const verdict = await assertVerdict(guest, told, { mode: 'cpu', reason: 'host-unreachable' });
    assert.match(verdict.summary, /vsock:2:14833/);
    assert.match(told.stderr, /vgpu-agent install --host ADDRESS/);
    await guest.hosts.start();
    await installedGpu(guest, '--host', 'unix:/run/vgpu/hostd.sock');
    assert.match(await guest.read('/etc/vgpu/guest.conf'), /^host=unix:\/run\/vgpu\/hostd\.sock$/m);
  });
});

describe('a host that is there at first', { skip: skip || whyNoStandIn(), concurrency: 3 }, () => {
  test('killed in the middle of the confirmation: never gpu', async (t) => {
    const guest = await ready(t, { design: quickest, start: false, env: { STANDIN_DELAY_MS: '6000' } });
    const installing = tell(guest, 'install', '--yes');
    await until('the consumer was restarted', 60_000, async () =>
      (await guest.property('ollama', 'ActiveState')) === 'active' ? true : undefined,
    );
    await guest.hosts.stop('SIGKILL');
    await assertVerdict(guest, await installing, {
      mode: 'cpu',
      reason: ['host-unreachable', 'no-device', 'probe-disagrees'],
    });
    await assertServes(guest);
    await guest.hosts.start();
    await guest.must('systemctl', 'restart', 'ollama');
    await assertVerdict(guest, await tell(guest, 'verify'), { mode: 'gpu' });
  });

  for (const [name, expected] of [
    ['SIGKILL', { mode: 'degraded', reason: 'host-unreachable' }],
    ['SIGSTOP', { mode: 'degraded', reason: ['host-slow', 'host-unreachable'] }],
  ] as const) {
    test(`${name} after discovery: what the log says is not enough`, async (t) => {
      const guest = await ready(t, { design: quickest });
      await installedGpu(guest);
      const { pid } = guest.hosts;
      assert.ok(pid !== undefined);
      if (name === 'SIGKILL') await guest.hosts.stop('SIGKILL');
      else process.kill(pid, name);
      const told = await tell(guest, 'verify');
      await assertVerdict(guest, told, expected);
      assert.ok(told.ms < 90_000, `${told.ms} ms`);
      await assertServes(guest);
      if (name === 'SIGSTOP') process.kill(pid, 'SIGCONT');
      else await guest.hosts.start();
      await assertVerdict(guest, await tell(guest, 'verify'), { mode: 'gpu' });
    });
  }

  test('stalls in the middle of the probe: not the memory is to blame', async (t) => {
    const guest = await ready(t, { design: quickest, start: false });
    await guest.hosts.startFaulty({ mode: 'stalls', bytes: 3_000 });
    const told = await tell(guest, 'install', '--yes', '--allow-unreachable-host');
    await assertVerdict(guest, told, { mode: 'degraded', reason: ['host-slow', 'host-unreachable'] });
    assert.ok(told.ms < 120_000, `${told.ms} ms`);
    await assertServes(guest);
  });
});
