// The manifests of units/kubernetes by Debian's containerd: the device plugin runs as the DaemonSet says, and the pod
// computes with what the plugin granted. The kubelet's side is the test's own.

import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Kubelet } from '../../agent/kubernetes/kubelet.js';
import { whyNoStandIn } from '../support/consumer.js';
import { Guest, whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { at, installToGpu, prepareConsumer } from '../support/installed.js';
import { repository } from '../support/repository.js';
import { testRoot, whyNoRoot } from '../support/roots.js';
import { manifest, Runtime, startContainerd } from './runtime.js';

const noYaml = existsSync(path.join(repository, '.cache/roots/yaml/.complete'))
  ? false
  : 'no PyYAML: scripts/fetch-packages yaml';
const skip =
  whyNoGuest() ||
  whyNoHostd() ||
  whyNoStandIn() ||
  whyNoRoot('docker-trixie') ||
  whyNoRoot('trixie') ||
  noYaml;

describe('a node with containerd', { skip }, () => {
  const kubeletRoot = mkdtempSync(path.join(tmpdir(), 'vgpu-kubelet-'));
  let guest: Guest;
  let kubelet: Kubelet;
  let runtime: Runtime;
  let plugin = '';
  before(async () => {
    guest = await Guest.start({
      root: testRoot('docker-trixie'),
      binds: [`${kubeletRoot}:/var/lib/kubelet`],
      readOnlyBinds: [`${testRoot('trixie')}:/run/image`],
      size: '3g',
    });
    await guest.hosts.start();
    await guest.must('bash', '-c', `rm -f /usr/local/bin/vgpu-agent && ${repository}/scripts/install-agent`);
    await prepareConsumer(guest, 3);
    await installToGpu(guest);
    await startContainerd(guest);
    kubelet = await Kubelet.start(kubeletRoot);
    runtime = new Runtime(guest, path.join(kubeletRoot, 'containerd.sock'));
  });
  after(async () => {
    runtime?.close();
    kubelet?.stop();
    await guest.stop();
    rmSync(kubeletRoot, { recursive: true, force: true });
  });
  const granted = async (...ids: readonly string[]) => {
    const response = at(await kubelet.caller.allocate(ids), 'container_responses', 0);
    const devices = [at(response, 'cdi_devices')].flat().map((one) => String(at(one, 'name')));
    return { envs: Object(at(response, 'envs')), devices };
  };

  test('the DaemonSet registers its device, with the rights of the manifest', async (t) => {
    t.diagnostic(JSON.stringify(await runtime.call('Version', {})));
    const spec = at(await manifest('daemonset.yaml'), 'spec', 'template', 'spec');
    plugin = await runtime.start(await runtime.pod('plugin'), spec);
    await kubelet.lists(['0-0 Healthy']).catch(async (error: unknown) => {
      throw new Error(`${String(error)}\n${await runtime.log('device-plugin')}`);
    });
    const inside = await runtime.call('ExecSync', {
      container_id: plugin,
      cmd: [
        'sh',
        '-c',
        'grep -E "^(CapEff|NoNewPrivs)" /proc/1/status; touch /x /etc/cdi/x /usr/lib/vgpu-agent/x',
      ],
      timeout: 10,
    });
    const said = Buffer.from(String(at(inside, 'stdout')), 'base64').toString();
    assert.match(said, /CapEff:\s+0{16}\n/);
    assert.match(said, /NoNewPrivs:\s+1\n/);
    const stderr = Buffer.from(String(at(inside, 'stderr')), 'base64').toString();
    assert.equal(stderr.split('Read-only file system').length, 4, stderr);
  });

  test('the pod computes on the device that was granted', async () => {
    const spec = at(await manifest('pod.yaml'), 'spec');
    const id = await runtime.start(await runtime.pod('check'), spec, await granted('0-0'));
    const code = await runtime.ended(id);
    const log = await runtime.log('check');
    assert.equal(code, 0, log);
    assert.match(log, /simulated/i);
  });

  test('the same pod without the device finds no GPU', async () => {
    const spec = at(await manifest('pod.yaml'), 'spec');
    const id = await runtime.start(await runtime.pod('without'), spec);
    assert.notEqual(await runtime.ended(id), 0);
  });

  test('a killed host makes the device unhealthy; the plugin and a running pod go on', async () => {
    const sleeper = {
      containers: [
        { name: 'sleeper', image: 'docker.io/library/debian:trixie-slim', command: ['sleep', 'infinity'] },
      ],
    };
    const id = await runtime.start(await runtime.pod('sleeper'), sleeper, await granted('0-0'));
    await guest.hosts.stop('SIGKILL');
    await kubelet.lists(['0-0 Unhealthy']);
    assert.equal(at(await runtime.state(id), 'state'), 'CONTAINER_RUNNING');
    await guest.hosts.start();
    await kubelet.lists(['0-0 Healthy']);
    const probe = await runtime.call('ExecSync', {
      container_id: id,
      cmd: ['sh', '-c', 'exec /opt/vgpu/versions/*/vgpu-probe --compute'],
      timeout: 50,
    });
    assert.equal(at(probe, 'exit_code') ?? 0, 0, String(at(probe, 'stderr')));
    assert.equal(at(await runtime.state(plugin), 'state'), 'CONTAINER_RUNNING');
  });

  test('registers with the next kubelet, whose directory the container still has', async () => {
    kubelet.stop();
    kubelet = await Kubelet.start(kubeletRoot);
    await kubelet.lists(['0-0 Healthy']);
  });
});
