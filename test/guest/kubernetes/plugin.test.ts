// `vgpu-agent kubernetes` beside a real host and a kubelet's side of the test's own: hosts and kubelets come and go.

import assert from 'node:assert/strict';
import type { ChildProcess } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { packageRoot } from '../../../agent/lib/paths.js';
import { Kubelet } from '../../agent/kubernetes/kubelet.js';
import { whyNoStandIn } from '../support/consumer.js';
import { Guest, whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { at, installToGpu, prepareConsumer } from '../support/installed.js';
import { ended, until } from '../support/process.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoStandIn();
const config = '/etc/vgpu-agent/agent.json';
const cdi = '/etc/cdi/vgpu.json';

describe('a node with one simulated GPU', { skip }, () => {
  const kubeletRoot = mkdtempSync(path.join(tmpdir(), 'vgpu-kubelet-'));
  const socket = path.join(kubeletRoot, 'device-plugins', 'vgpu.org-gpu.sock');
  let guest: Guest;
  let kubelet: Kubelet;
  let plugin: ChildProcess;
  let log = '';
  const logs = (pattern: RegExp): Promise<true> =>
    until(`the plugin logs ${pattern}`, 60_000, () => (pattern.test(log) ? true : undefined)).catch(
      (error) => {
        throw new Error(`${String(error)}; it logged:\n${log}`);
      },
    );
  before(async () => {
    guest = await Guest.start({ binds: [`${kubeletRoot}:/var/lib/kubelet`] });
    await guest.hosts.start();
    await prepareConsumer(guest, 3);
    await guest.must('mkdir', '-p', '/etc/cdi');
    await installToGpu(guest);
  });
  after(async () => {
    kubelet?.stop();
    await guest.stop();
    rmSync(kubeletRoot, { recursive: true, force: true });
  });

  test('without a kubelet the command fails, and says where it looked', async () => {
    const ran = await guest.agent('kubernetes');
    assert.equal(ran.code, 1);
    assert.match(ran.stderr, /\/var\/lib\/kubelet\/device-plugins does not exist: no kubelet has run/);
    assert.match(ran.stderr, /--kubelet DIR/);
  });

  test('registers when a kubelet comes, and its device is healthy', async () => {
    await guest.must('mkdir', '-p', '/var/lib/kubelet/device-plugins');
    plugin = guest.spawn(['vgpu-agent', 'kubernetes'], { stdio: ['ignore', 'ignore', 'pipe'] });
    plugin.stderr?.on('data', (chunk: Buffer) => {
      log += chunk.toString();
    });
    await logs(/waiting for the kubelet: \/var\/lib\/kubelet\/device-plugins\/kubelet\.sock does not exist/);
    kubelet = await Kubelet.start(kubeletRoot, 1);
    await kubelet.lists(['0-0 Healthy']);
    await logs(/did not register vgpu\.org\/gpu: .*the test refuses this registration; retrying/);
    await logs(/registered vgpu\.org\/gpu with the kubelet: 1 device\n/);
    await logs(/the host answers: .* \(simulated\)/);
    assert.equal(kubelet.registrations.length, 1);
  });

  test('grants a device of the CDI file', async () => {
    const granted = await kubelet.caller.allocate(['0-0']);
    const name = at(granted, 'container_responses', 0, 'cdi_devices', 0, 'name');
    assert.equal(name, 'vgpu.org/gpu=0');
    assert.match(await guest.read(cdi), /"name": "0"/);
  });

  test('a killed host makes the device unhealthy, and the next one healthy', async () => {
    for (const round of [1, 2]) {
      await guest.hosts.stop('SIGKILL');
      await kubelet.lists(['0-0 Unhealthy']);
      await guest.hosts.start();
      await kubelet.lists(['0-0 Healthy']);
      assert.equal(kubelet.registrations.length, 1, `round ${round}`);
    }
    await logs(
      /no host answers at unix:\/run\/vgpu\/hostd\.sock: .*\. All devices are unhealthy; running pods continue/,
    );
  });

  test('a frozen host makes the device unhealthy, too', async () => {
    await guest.hosts.freeze();
    await kubelet.lists(['0-0 Unhealthy']);
    await guest.hosts.thaw();
    await kubelet.lists(['0-0 Healthy']);
  });

  test('registers with each new kubelet, whose start removes all sockets', async () => {
    for (const round of [1, 2, 3]) {
      kubelet.stop();
      kubelet = await Kubelet.start(kubeletRoot);
      await kubelet.lists(['0-0 Healthy']);
      assert.equal(
        at(await kubelet.caller.allocate(['0-0']), 'container_responses', 0, 'mounts', 'length'),
        0,
      );
      assert.equal(kubelet.registrations.length, 1, `round ${round}`);
    }
  });

  test('agent.json divides the GPU; a mistake in the file changes nothing', async () => {
    await guest.write(config, '{"schema": 1, "kubernetes": {"timeSlicing": 3}}');
    await kubelet.lists(['0-0 Healthy', '0-1 Healthy', '0-2 Healthy']);
    await guest.write(config, '{"schema": 1, "kubernetes": {"timeSlicing": 0}}');
    await logs(
      /agent\.json: line 1, kubernetes\.timeSlicing: 0 was given, but it must be >= 1; the former settings stay in use/,
    );
    assert.deepEqual(kubelet.listed, ['0-0 Healthy', '0-1 Healthy', '0-2 Healthy']);
    await guest.must('rm', config);
    await kubelet.lists(['0-0 Healthy']);
  });

  test('without a CDI file there is no device', async () => {
    await guest.must('mv', cdi, `${cdi}.away`);
    await kubelet.lists([]);
    await logs(/\/etc\/cdi\/vgpu\.json offers no GPU: run "vgpu-agent install" on this node/);
    await assert.rejects(kubelet.caller.allocate(['0-0']), /this node has no device "0-0"; it has 0 devices/);
    await guest.must('mv', `${cdi}.away`, cdi);
    await kubelet.lists(['0-0 Healthy']);
  });

  test('a second plugin is refused, and the first goes on', async () => {
    const ran = await guest.agent('kubernetes');
    assert.equal(ran.code, 6, ran.stderr);
    assert.match(
      ran.stderr,
      /another process serves \/var\/lib\/kubelet\/device-plugins\/vgpu\.org-gpu\.sock/,
    );
    assert.equal(at(await kubelet.caller.allocate(['0-0']), 'container_responses', 'length'), 1);
  });

  test('needs less memory than the limit of the manifest', async () => {
    const manifest = readFileSync(path.join(packageRoot(), 'units/kubernetes/daemonset.yaml'), 'utf8');
    const limit = Number(/limits:[^}]*memory: (\d+)Mi/.exec(manifest)?.[1]);
    const pid = (await guest.must('pgrep', '--full', 'vgpu-agent kubernetes$')).trim().split('\n')[0];
    const resident = /^RssAnon:\s+(\d+) kB/m.exec(await guest.must('cat', `/proc/${pid}/status`))?.[1];
    assert.ok(Number(resident) / 1024 < limit / 2, `${resident} kB, and the limit is ${limit} MiB`);
  });

  test('SIGTERM ends it at once, and its socket is gone', async () => {
    const end = ended(plugin);
    plugin.kill('SIGTERM');
    assert.equal(await end, 0, log);
    assert.equal(existsSync(socket), false);
  });

  test('a mistake in agent.json at the start ends it', async () => {
    await guest.write(config, '{"schema": 1, "kubernetes": {"timeSlicing": [1, 1000]}}');
    const ran = await guest.agent('kubernetes');
    assert.equal(ran.code, 2, ran.stderr);
    assert.match(ran.stderr, /kubernetes\.timeSlicing/);
  });
});
