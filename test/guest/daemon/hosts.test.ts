// Two hosts of one guest: the first is killed under a consumer, which the service moves to the second, once; back only if
// asked. And kills at random moments: whatever runs then, the verdict names the host that lives.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { messageIds } from '../../../agent/systemd/journal-writer.js';
import { long, whyNoStandIn } from '../support/consumer.js';
import { Guest, whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { at, documentOf, prepareConsumer } from '../support/installed.js';
import { until } from '../support/process.js';
import { errorOf, settings, tell } from '../support/scenario.js';
import { documentOnBus, entries, generous, said, untilEntry } from '../support/service.js';
import { type Named, twoHosts, untilUsed } from '../support/two-hosts.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoStandIn();
const config = { ...generous, hosts: { leaveAfterSeconds: 1, returnAfterSeconds: 1 } };
const kills = long ? 20 : 3;

describe('two hosts', { skip }, () => {
  let guest: Guest;
  let first: Named;
  let second: Named;
  before(async () => {
    guest = await Guest.start();
    [first, second] = twoHosts(guest);
    for (const { hosts, profile } of [first, second]) await hosts.start({ profile });
    await prepareConsumer(guest, 3);
    await configure(config);
    const hosts = ['--host', first.address, '--host', second.address];
    documentOf(await guest.agent('install', '--service', '--yes', '--json', ...hosts));
    await usedAndGpu(first);
  });
  after(async () => {
    await second.hosts.stop();
    await guest.stop();
  });

  const configure = (settings: object): Promise<void> =>
    guest.write('/etc/vgpu-agent/agent.json', JSON.stringify(settings));
  const usedAndGpu = (named: Named): Promise<void> => untilUsed(guest, named);
  const answers = ({ address }: Named): Promise<true> =>
    until(`${address} answers`, 60_000, async () => {
      const all = [at(await documentOnBus(guest), 'host', 'hosts')].flat();
      const one = all.find((host) => at(host, 'endpoint') === address);
      return at(one, 'answer', 'kind') === 'answers' ? true : undefined;
    });
  const restarts = async (): Promise<number> => (await entries(guest, messageIds.consumerRestarted)).length;

  test('status, plan, doctor, metrics and the bus show both, and which is in use', async () => {
    const { document } = await tell(guest, 'status');
    const list = `${first.address},${second.address}`;
    assert.deepEqual([document.host.endpoint, document.installed?.endpoint], [list, list]);
    assert.deepEqual(
      document.host.hosts?.map(({ endpoint, inUse, answer }) => [endpoint, inUse, answer.kind]),
      [
        [first.address, true, 'answers'],
        [second.address, false, 'answers'],
      ],
    );
    const text = await guest.must('vgpu-agent', 'status');
    assert.match(
      text,
      /^hosts +unix:\/run\/vgpu\/hostd\.sock \(in use, .*H200.*\n +unix:\/run\/vgpu\/second\.sock .*L40S/m,
    );
    const { plan } = (await tell(guest, 'plan')).document;
    assert.deepEqual(plan.kind === 'refused' ? plan.refusals : [plan.endpoint, plan.changes], [list, []]);
    const metrics = await guest.must('vgpu-agent', 'metrics');
    assert.match(metrics, /^vgpu_hosts_up\{endpoint="unix:\/run\/vgpu\/hostd\.sock",in_use="1"\} 1$/m);
    assert.match(metrics, /^vgpu_hosts_up\{endpoint="unix:\/run\/vgpu\/second\.sock",in_use="0"\} 1$/m);
    assert.match(await guest.must('cat', '/etc/vgpu/guest.conf'), new RegExp(`^host=${list}$`, 'm'));
    const doctor = JSON.stringify((await tell(guest, 'doctor')).document);
    assert.match(doctor, /second\.sock, not in use: .*L40S/);
  });

  test('the first is killed: moved once, and GPU with the device of the second', async () => {
    const before = await restarts();
    await first.hosts.stop('SIGKILL');
    await untilEntry(guest, messageIds.hostMoved);
    await usedAndGpu(second);
    assert.equal(await restarts(), before + 1);
    const { document } = await tell(guest, 'verify');
    assert.deepEqual(
      [document.verdict?.mode, document.verdict?.devices[0]?.name.includes('L40S')],
      ['gpu', true],
    );
    assert.match(await guest.must('cat', '/run/vgpu-agent/host'), /^unix:\/run\/vgpu\/second\.sock\n$/);
    const doctor = JSON.stringify((await tell(guest, 'doctor')).document);
    assert.match(doctor, /hostd\.sock, not in use: does not answer/);
  });

  test('the first is back: new programs stay at the second, and nothing is restarted', async () => {
    const before = [await restarts(), await guest.invocationId('ollama')];
    await first.hosts.start({ profile: first.profile });
    await answers(first);
    const probe = JSON.parse(await guest.must('/opt/vgpu/current/vgpu-probe', '--json'));
    assert.equal(probe.host.address, second.address);
    await guest.must('systemctl', 'restart', 'vgpu-agent');
    await usedAndGpu(second);
    await answers(first);
    assert.deepEqual([await restarts(), await guest.invocationId('ollama')], before);
  });

  test('with prefer it is moved back, once', async () => {
    const before = await restarts();
    await configure({ ...config, hosts: { ...config.hosts, prefer: 'first' } });
    await guest.must('systemctl', 'reload', 'vgpu-agent');
    await usedAndGpu(first);
    await until('the restart', 60_000, async () => ((await restarts()) > before ? true : undefined));
    await usedAndGpu(first);
    assert.equal(await restarts(), before + 1);
    await configure(config);
    await guest.must('systemctl', 'reload', 'vgpu-agent');
  });

  test('without any host install refuses and names both', async () => {
    const none = ['--host', 'unix:/run/none', '--host', 'tcp:127.0.0.1:1'];
    const { message } = errorOf(await guest.agent('install', '--json', '--yes', ...none));
    assert.match(message, /none of the hosts answers: .*unix:\/run\/none.*; .*tcp:127\.0\.0\.1:1/);
  });

  test('a discovery that failed, as with a host that is killed meanwhile: restarted once, and GPU', async () => {
    const [file, begun] = ['/usr/share/ollama/discover-fails', await restarts()];
    await guest.must('install', '-o', 'ollama', '-d', '/usr/share/ollama');
    await settings(guest, `Environment=STANDIN_DISCOVER_FAILS=${file}`);
    await guest.must('touch', file);
    await guest.must('systemctl', 'restart', 'ollama');
    const start = await guest.invocationId('ollama');
    await until('the restart', 60_000, async () => ((await restarts()) > begun ? true : undefined));
    const log = await guest.must('journalctl', `_SYSTEMD_INVOCATION_ID=${start}`, '-o', 'cat');
    assert.match(log, /could not determine compute capability/);
    await usedAndGpu(first);
    assert.equal(await restarts(), begun + 1);
  });

  test(`${kills} kills at random moments: GPU at the host that lives, after each`, async (t) => {
    let [used, other] = [first, second];
    for (let kill = 1; kill <= kills; kill += 1) {
      const wait = Math.random() * 2_000;
      // Also in the middle of a start, of a move, or of a look: that is the moment which is random.
      if (kill % 3 === 0) await guest.must('systemctl', 'restart', 'ollama');
      await new Promise((resolve) => setTimeout(resolve, wait));
      t.diagnostic(`kill ${kill} of ${used.address}, ${Math.round(wait)} ms after it was settled`);
      const begun = await restarts();
      await used.hosts.stop('SIGKILL');
      await usedAndGpu(other);
      assert.ok((await restarts()) <= begun + 1, await said(guest));
      const { document } = await tell(guest, 'verify');
      assert.equal(document.verdict?.mode, 'gpu');
      assert.ok(document.verdict?.devices[0]?.name.includes(other.device), document.verdict?.summary);
      await used.hosts.start({ profile: used.profile });
      await answers(used);
      [used, other] = [other, used];
    }
  });
});
