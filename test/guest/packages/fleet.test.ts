// Three guests at once, with the tools that people keep fleets with: Debian's Ansible and promtool.

import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { queriesOf } from '../../shim/support/dashboard.js';
import { whyNoConsumer } from '../support/consumer.js';
import { Guest, whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { runInRoot } from '../support/inside-root.js';
import { prepareConsumer } from '../support/installed.js';
import { bareOfCheckout, buildPackages, whyNoPackages } from '../support/packages.js';
import { repository } from '../support/repository.js';
import { testRoot, whyNoRoot } from '../support/roots.js';
import { settledOnGpu } from '../support/service.js';

const root = 'package-trixie';
const skip = whyNoGuest() || whyNoHostd() || whyNoConsumer() || whyNoPackages() || whyNoRoot(root);

test('the role converges three guests and reports the fault of one; a second run changes nothing', {
  skip: skip || (process.env['VGPU_TEST_LONG'] === '1' ? false : 'minutes: VGPU_TEST_LONG=1'),
}, async (t) => {
  const source = await buildPackages();
  t.after(async () => source.remove());
  const readOnlyBinds = [await source.complete('trixie')];
  const guests = await Promise.all(
    [0, 1, 2].map(() => Guest.start({ root: testRoot(root), readOnlyBinds }, t)),
  );
  for (const guest of guests) {
    await prepareConsumer(guest, 3);
    await bareOfCheckout(guest);
  }
  const [first, second, faulty] = guests;
  assert.ok(first && second && faulty);
  await first.hosts.start();
  await second.hosts.start();
  const starts = () => Promise.all([first, second].map((guest) => guest.invocationId('ollama')));

  const scratch = mkdtempSync(join(tmpdir(), 'vgpu-test-ansible-'));
  t.after(async () => rmSync(scratch, { recursive: true, force: true }));
  const inventory = join(scratch, 'inventory');
  writeFileSync(
    inventory,
    `${guests.map(({ name }) => name).join('\n')}
[all:vars]
ansible_connection=guest
ansible_python_interpreter=/usr/bin/python3
guest_script=${join(repository, 'scripts/guest')}
vgpu_become=false
vgpu_agent_host=unix:/run/vgpu/hostd.sock
`,
  );
  const play = async (...args: readonly string[]) => {
    const ran = await runInRoot(
      root,
      [repository, scratch],
      [
        'ansible-playbook',
        '-i',
        inventory,
        ...args,
        join(repository, 'scripts/packaging/ansible/guests.yml'),
      ],
      {
        ANSIBLE_CONNECTION_PLUGINS: join(repository, 'test/guest/support/ansible'),
        ANSIBLE_NOCOLOR: '1',
        PYTHONDONTWRITEBYTECODE: '1',
        ANSIBLE_LOCALHOST_WARNING: '0',
      },
    );
    const said = ran.stdout + ran.stderr;
    const recap = (guest: Guest, what: string): number =>
      Number(new RegExp(`^${guest.name} .*\\b${what}=(\\d+)`, 'm').exec(said)?.[1] ?? Number.NaN);
    return { code: ran.code, said, recap };
  };

  await t.test('check mode changes nothing', async () => {
    const before = await starts();
    const { said, recap } = await play('--check', '--diff');
    assert.equal(recap(first, 'failed'), 0, said);
    assert.ok(recap(first, 'changed') > 0, said);
    assert.equal(await first.exists('/usr/bin/vgpu-agent'), false);
    assert.deepEqual(await starts(), before);
  });

  await t.test('two have the GPU, and the third fails with the reason', async () => {
    const { code, said, recap } = await play();
    assert.equal(code, 2, said);
    for (const guest of [first, second]) {
      assert.equal(recap(guest, 'failed'), 0, said);
      assert.ok(recap(guest, 'changed') >= 2, said);
      await settledOnGpu(guest);
    }
    assert.equal(recap(faulty, 'failed'), 1, said);
    assert.match(said, /no-host|host.{0,80}does not answer|nobody listens/i);
  });

  await t.test('a second run changes nothing and restarts nothing', async () => {
    const before = await starts();
    const { said, recap } = await play('--diff');
    for (const guest of [first, second]) {
      assert.deepEqual([recap(guest, 'changed'), recap(guest, 'failed')], [0, 0], said);
    }
    assert.deepEqual(await starts(), before);
  });

  await t.test('check mode finds the changes of others, and leaves them', async () => {
    await first.must('systemctl', 'stop', 'vgpu-agent');
    await first.must('rm', '/etc/systemd/system/ollama.service.d/50-vgpu.conf');
    const { said, recap } = await play('--check', '--diff');
    assert.ok(recap(first, 'changed') > 0, said);
    assert.equal(recap(second, 'changed'), 0, said);
    assert.match(said, /50-vgpu\.conf/);
    assert.equal(await first.exists('/etc/systemd/system/ollama.service.d/50-vgpu.conf'), false);
  });

  await t.test('the third converges when its host is there', async () => {
    await faulty.hosts.start();
    const { code, said, recap } = await play();
    assert.equal(code, 0, said);
    assert.equal(recap(faulty, 'failed'), 0, said);
    await settledOnGpu(faulty);
  });
});

test('promtool finds the alert rules right, and they fire for what the service says', { skip }, async (t) => {
  const scratch = mkdtempSync(join(tmpdir(), 'vgpu-test-rules-'));
  t.after(async () => rmSync(scratch, { recursive: true, force: true }));
  const rules = join(repository, 'scripts/packaging/prometheus/vgpu-agent.rules.yml');
  const checked = await runInRoot(root, [repository], ['promtool', 'check', 'rules', rules]);
  assert.equal(checked.code, 0, checked.stdout + checked.stderr);
  const cases = join(scratch, 'rules.test.yml');
  writeFileSync(
    cases,
    JSON.stringify({
      rule_files: [rules],
      evaluation_interval: '1m',
      tests: [
        {
          interval: '1m',
          input_series: [
            {
              series: 'vgpu_verdict{instance="a",unit="ollama.service",mode="gpu",simulated="0"}',
              values: '0x10',
            },
            {
              series: 'vgpu_verdict{instance="b",unit="ollama.service",mode="gpu",simulated="0"}',
              values: '1x10',
            },
            { series: 'vgpu_host_up{instance="a"}', values: '0x10' },
            { series: 'vgpu_host_up{instance="b"}', values: '1x10' },
          ],
          alert_rule_test: [
            {
              eval_time: '6m',
              alertname: 'VgpuNotOnGpu',
              exp_alerts: [
                {
                  exp_labels: {
                    severity: 'warning',
                    instance: 'a',
                    unit: 'ollama.service',
                    mode: 'gpu',
                    simulated: '0',
                  },
                  exp_annotations: {
                    summary: 'ollama.service on a does not use the GPU of its host',
                    description: 'Next: vgpu-agent doctor --unit ollama.service',
                  },
                },
              ],
            },
            {
              eval_time: '3m',
              alertname: 'VgpuHostDown',
              exp_alerts: [
                {
                  exp_labels: { severity: 'critical', instance: 'a' },
                  exp_annotations: {
                    summary: 'the host of a does not answer',
                    description: 'Next: vgpu-hostd status on the host, vgpu-agent doctor in the guest',
                  },
                },
              ],
            },
          ],
        },
      ],
    }),
  );
  const tested = await runInRoot(root, [repository, scratch], ['promtool', 'test', 'rules', cases]);
  assert.equal(tested.code, 0, tested.stdout + tested.stderr);
});

test('promtool understands every query of the dashboard', { skip }, async (t) => {
  const scratch = mkdtempSync(join(tmpdir(), 'vgpu-test-dashboard-'));
  t.after(async () => rmSync(scratch, { recursive: true, force: true }));
  const file = join(repository, 'scripts/packaging/prometheus/vgpu-agent.dashboard.json');
  const expressions = queriesOf(JSON.parse(readFileSync(file, 'utf8'))).map(({ expression }) =>
    expression.replaceAll('$__rate_interval', '5m').replaceAll(/\$\w+/g, '.*'),
  );
  const queries = join(scratch, 'queries.yml');
  // Recorded under names of their own, since promtool reads files of rules and no dashboards.
  const rules = expressions.map((expr, index) => ({ record: `query_${index}`, expr }));
  writeFileSync(queries, JSON.stringify({ groups: [{ name: 'dashboard', rules }] }));
  const checked = await runInRoot(root, [repository, scratch], ['promtool', 'check', 'rules', queries]);
  assert.equal(checked.code, 0, checked.stdout + checked.stderr);
  assert.match(checked.stdout, new RegExp(`${rules.length} rules found`));
});
