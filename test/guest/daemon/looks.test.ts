// The service looks every 5 s: what the journal does not say, a consumer that hangs, a restart that would end a live
// session, and a wrapper that takes the variables away.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { messageIds } from '../../../agent/systemd/journal-writer.js';
import { assertDocument } from '../../agent/cli/commands/json-schemas.js';
import { whyNoStandIn } from '../support/consumer.js';
import { Guest, whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { at, documentOf } from '../support/installed.js';
import { until } from '../support/process.js';
import {
  documentOnBus,
  entries,
  generous,
  installService,
  property,
  said,
  settledOnGpu,
} from '../support/service.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoStandIn();
const list = '/run/stand-in-ps';
const withinMs = 60_000;

describe('a consumer with a live session', { skip }, () => {
  let guest: Guest;
  before(async () => {
    guest = await Guest.start();
    await guest.hosts.start();
    const env = { STANDIN_PS: list, STANDIN_KEEP_RUNNER: '1', STANDIN_MODEL_BYTES: '4096' };
    await installService(guest, { ...generous, restart: { ...generous.restart, idleSeconds: 3_600 } }, env);
  });
  after(() => guest.stop());

  const modeWithin = async (expected: string, limitMs = withinMs): Promise<void> => {
    await until(`the bus to say ${expected}`, limitMs, async () =>
      at(await documentOnBus(guest), 'verdict', 'mode') === expected ? true : undefined,
    ).catch(async (error: unknown) => {
      throw new Error(
        `${String(error)}\n${JSON.stringify(await documentOnBus(guest))}\n${await said(guest)}`,
      );
    });
  };
  const models = (gpuBytes: number): string =>
    JSON.stringify({ models: [{ name: 'toy', size: 4_096, size_vram: gpuBytes }] });

  test('the look on the bus has a number and a time, and every output of one number says the same', async () => {
    const look = (document: unknown): number => Number(at(document, 'verdict', 'look', 'id'));
    const first = look(await documentOnBus(guest));
    const later = await until('another look', withinMs, async () => {
      const now = look(await documentOnBus(guest));
      return now > first ? now : undefined;
    });
    assert.ok(Math.abs(later - Date.now()) < 60_000, `${later}`);
    assert.match(await property(guest, 'Look'), /^\(xs\) \d+ "\d{4}-/);
    assert.match(await guest.must('vgpu-agent', 'metrics'), /^vgpu_verdict_look\{.*\} \d{13}$/m);
    const verify = await guest.agent('verify', '--json');
    const status = assertDocument('status', (await guest.agent('status', '--json')).stdout);
    const verdict = at(assertDocument('verify', verify.stdout), 'verdict');
    assert.ok(Number(at(verdict, 'look', 'id')) >= later);
    if (at(verdict, 'look', 'id') === at(status, 'verdict', 'look', 'id'))
      assert.deepEqual(verdict, at(status, 'verdict'));
  });

  test('a model on the CPU that is not in the journal: the bus reports it soon, and its end', async () => {
    const start = await guest.invocationId('ollama');
    await guest.write(list, models(0));
    await modeWithin('cpu');
    assert.equal(await property(guest, 'Reason'), 's "model-on-cpu"');
    assert.match(await property(guest, 'Summary'), /toy: 0 bytes of 4\.0 KiB on the GPU/);
    await guest.write(list, models(4_096));
    await modeWithin('gpu');
    await guest.must('rm', list);
    assert.equal(await guest.invocationId('ollama'), start, 'its session was live: it was not restarted');
    await settledOnGpu(guest);
  });

  test('a main process that hangs: verify ends, the bus says so, and both recover with it', async () => {
    const main = await guest.property('ollama', 'MainPID');
    await guest.must('kill', '-STOP', main);
    const begun = Date.now();
    try {
      const verify = await guest.agent('verify', '--json');
      const seconds = (Date.now() - begun) / 1000;
      assert.ok(seconds < 40, `${seconds} s`);
      assert.notEqual(verify.code, 0, verify.stdout);
      await modeWithin('degraded');
      assert.equal(await property(guest, 'Reason'), 's "readiness-timeout"');
    } finally {
      await guest.must('kill', '-CONT', main);
    }
    await modeWithin('gpu');
  });

  test('entries that are removed from the journal take no verdict away, and verify and status say the same', async () => {
    const start = await guest.invocationId('ollama');
    await guest.must('journalctl', '-q', '--rotate');
    await guest.must('journalctl', '-q', '--vacuum-time=1us');
    assert.equal(await guest.must('journalctl', '-q', `_SYSTEMD_INVOCATION_ID=${start}`), '');
    const verdict = at(documentOf(await guest.agent('verify', '--json')), 'verdict');
    const status = at(documentOf(await guest.agent('status', '--json')), 'verdict');
    for (const one of [verdict, status])
      assert.deepEqual([at(one, 'mode'), at(one, 'invocationId')], ['gpu', start]);
  });

  test('former files and a live session: restart-pending, until a person decides', async () => {
    const start = await guest.invocationId('ollama');
    const restarts = (await entries(guest, messageIds.consumerRestarted)).length;
    // A copy takes the place of the mapped file, as in an upgrade.
    await guest.must('sh', '-ec', 'cd /opt/vgpu/current/; cp -a libcuda.so.1 new; mv new libcuda.so.1');
    await guest.must('busctl', 'call', 'org.vgpu.Agent1', '/org/vgpu/Agent1', 'org.vgpu.Agent1', 'Repair');
    await until('restart-pending', 60_000, async () =>
      (await property(guest, 'State')) === 's "restart-pending"' ? true : undefined,
    ).catch(async (error: unknown) => {
      throw new Error(`${String(error)}\n${await said(guest)}`);
    });
    const ran = await guest.agent('status', '--json');
    const status = assertDocument('status', ran.stdout);
    assert.equal(ran.code, 5);
    assert.equal(at(status, 'service', 'state'), 'restart-pending');
    assert.match(String(at(status, 'service', 'pendingRestart', 'reason')), /libcuda/);
    assert.match(
      String(at(status, 'service', 'pendingRestart', 'waitsFor')),
      /the host has a live session of ollama\.service; sudo vgpu-agent restart/,
    );
    assert.match(
      await guest.must('vgpu-agent', 'metrics'),
      /^vgpu_agent_state\{state="restart-pending"\} 1$/m,
    );
    assert.equal(await guest.invocationId('ollama'), start);

    const restart = await guest.agent('restart', '--json');
    assert.equal(at(assertDocument('restart', restart.stdout), 'restarts', 0, 'unit'), 'ollama.service');
    await until('the restart', 60_000, async () =>
      (await entries(guest, messageIds.consumerRestarted)).length > restarts ? true : undefined,
    );
    assert.notEqual(await guest.invocationId('ollama'), start);
    await settledOnGpu(guest);
    const none = await guest.agent('restart');
    assert.deepEqual([none.code, none.stdout.trim()], [0, 'no restart is due']);
  });

  test('a wrapper clears the environment at each start: no restart helps, and the reason says so', async () => {
    const dropIn = '/etc/systemd/system/ollama.service.d/90-wrapper.conf';
    const command = '/usr/bin/env -i PATH=/usr/bin HOME=/usr/share/ollama /usr/local/bin/ollama serve';
    await guest.write(dropIn, `[Service]\nExecStart=\nExecStart=${command}\n`);
    await guest.must('systemctl', 'daemon-reload');
    const restarts = (await entries(guest, messageIds.consumerRestarted)).length;
    await guest.must('systemctl', 'restart', 'ollama');
    const start = await guest.invocationId('ollama');
    await guest.must('sleep', '25');
    assert.equal((await entries(guest, messageIds.consumerRestarted)).length, restarts, await said(guest));
    assert.equal(await guest.invocationId('ollama'), start);
    // Through the public link it may find the GPU all the same; then there is nothing to complain of.
    await until('the verdict on this start', 60_000, async () => {
      const verdict = at(await documentOnBus(guest), 'verdict');
      return at(verdict, 'mode') === 'gpu' || at(verdict, 'reason') === 'environment-removed'
        ? true
        : undefined;
    });
    await guest.must('rm', dropIn);
    await guest.must('systemctl', 'daemon-reload');
    await guest.must('systemctl', 'restart', 'ollama');
    await settledOnGpu(guest);
  });

  test('what the looks cost an idle service', async (t) => {
    const ticks = async (): Promise<number> => {
      const text = await guest.must(
        'sh',
        '-c',
        'for u in vgpu-agent; do cat /sys/fs/cgroup/system.slice/$u.service/cpu.stat; done | grep usage_usec',
      );
      return Number(/usage_usec (\d+)/.exec(text)?.[1]);
    };
    await guest.must('sleep', '5');
    const before = await ticks();
    await guest.must('sleep', '30');
    const percent = ((await ticks()) - before) / 30 / 10_000;
    t.diagnostic(`${percent.toFixed(3)} % of a processor`);
    // A loaded machine makes each instruction dearer; the limit of 0.2 % is for an idle one.
    assert.ok(percent < 1, `${percent} %`);
  });
});
