// The doctor on our own service: running, stopped, with a configuration that it refused, with a file removed.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { consumers, named, whyNoConsumer } from '../support/consumer.js';
import { assertFound, assertHealthy, doctor } from '../support/doctor.js';
import { Guest, whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { until } from '../support/process.js';
import { generous, installService, settledOnGpu } from '../support/service.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoConsumer();
const conf = '/etc/vgpu-agent/agent.json';

for (const consumer of consumers())
  describe(`the doctor on vgpu-agent.service, ${named(consumer)}`, { skip }, () => {
    let guest: Guest;
    before(async () => {
      guest = await Guest.start();
      await guest.hosts.start();
      await installService(guest, generous, { STANDIN_KEEP_RUNNER: '1' }, consumer);
    });
    after(() => guest?.stop());

    test('a running service is not reported', async () => {
      const document = await doctor(guest);
      assertHealthy(document);
      const check = document.checks.find(({ id }) => id === 'agent-service');
      assert.equal(check?.finding.kind, 'ok');
    });

    test('it finds a configuration that the service refused', async () => {
      await guest.write(conf, '{"schema":1,"profile":7}');
      const reload = await guest.run('systemctl', 'reload', 'vgpu-agent');
      assert.notEqual(reload.code, 0, 'a bad file is refused');
      try {
        await until('the doctor to know', 60_000, async () => {
          const { checks } = await doctor(guest);
          const finding = checks.find(({ id }) => id === 'agent-service')?.finding;
          return finding?.kind === 'warning' && /^agent\.json has a mistake/.test(finding.cause)
            ? true
            : undefined;
        });
      } finally {
        await guest.write(conf, JSON.stringify(generous));
        await guest.must('systemctl', 'reload', 'vgpu-agent');
        await settledOnGpu(guest);
      }
    });

    test('it finds that the service does not run', async () => {
      await guest.must('systemctl', 'stop', 'vgpu-agent');
      assertFound(await doctor(guest), {
        name: 'it does not run',
        break: () => Promise.resolve(),
        undo: () => Promise.resolve(),
        check: 'agent-service',
        kind: 'warning',
        cause: /is installed and does not run/,
        evidence: [/systemd says: inactive/],
        command: /^sudo systemctl restart vgpu-agent\.service; journalctl -u vgpu-agent\.service$/,
        fix: false,
      });
    });

    test('it finds that it would not start at boot', async () => {
      await guest.must('systemctl', 'disable', 'vgpu-agent');
      assertFound(await doctor(guest), {
        name: 'its link is gone',
        break: () => Promise.resolve(),
        undo: () => Promise.resolve(),
        check: 'agent-service',
        kind: 'warning',
        cause: /Files of vgpu-agent\.service were changed or removed/,
        evidence: [/vgpu-agent\.service/],
        command: /^sudo vgpu-agent doctor --fix --profile ollama$/,
        fix: true,
      });
    });
  });
