// The plugin's gRPC server, asked by a kubelet's side that describes the protocol by itself, and by hostile callers.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { sharesOf } from '../../../agent/kubernetes/devices.js';
import {
  type Offer,
  type Plugin,
  pluginSocket,
  register,
  servePlugin,
} from '../../../agent/kubernetes/protocol.js';
import { at } from '../../guest/support/installed.js';
import { until } from '../../guest/support/process.js';
import { Caller, Kubelet } from './kubelet.js';

describe('the device plugin', () => {
  const root = mkdtempSync(path.join(tmpdir(), 'vgpu-kubelet-'));
  const socket = path.join(root, 'device-plugins', pluginSocket);
  let offer: Offer = { shares: sharesOf([0, 1], 2), healthy: true };
  let kubelet: Kubelet;
  let plugin: Plugin;
  before(async () => {
    kubelet = await Kubelet.start(root);
    plugin = await servePlugin(socket, () => offer);
    await register(path.join(root, 'device-plugins', 'kubelet.sock'));
  });
  after(() => {
    plugin.close();
    kubelet.stop();
    rmSync(root, { recursive: true, force: true });
  });
  const refused = (call: Promise<unknown>, reason: RegExp): Promise<void> => assert.rejects(call, reason);

  test('registers with the name of the resource, and only root can open its socket', () => {
    assert.deepEqual(kubelet.registrations, [
      {
        version: 'v1beta1',
        endpoint: 'vgpu.org-gpu.sock',
        resource_name: 'vgpu.org/gpu',
        options: { pre_start_required: false, get_preferred_allocation_available: true },
      },
    ]);
    assert.equal(statSync(socket).mode & 0o777, 0o600);
  });

  test("reports a refused registration with the kubelet's reason", async () => {
    kubelet.refusals = 1;
    await refused(register(path.join(root, 'device-plugins', 'kubelet.sock')), /the test refuses this/);
  });

  test('lists the devices, and lists them again when their health or number changes', async () => {
    await kubelet.lists(['0-0 Healthy', '0-1 Healthy', '1-0 Healthy', '1-1 Healthy']);
    offer = { ...offer, healthy: false };
    plugin.changed();
    await kubelet.lists(['0-0 Unhealthy', '0-1 Unhealthy', '1-0 Unhealthy', '1-1 Unhealthy']);
    offer = { shares: [], healthy: true };
    plugin.changed();
    await kubelet.lists([]);
    offer = { shares: sharesOf([0, 1], 2), healthy: true };
    plugin.changed();
    await kubelet.lists(['0-0 Healthy', '0-1 Healthy', '1-0 Healthy', '1-1 Healthy']);
  });

  test('answers a request with CDI devices and nothing else', async () => {
    const nothing = { mounts: [], devices: [], annotations: {} };
    assert.deepEqual(await kubelet.caller.allocate(['0-1'], ['0-0', '1-1']), {
      container_responses: [
        { ...nothing, envs: {}, cdi_devices: [{ name: 'vgpu.org/gpu=0' }] },
        { ...nothing, envs: { CUDA_VISIBLE_DEVICES: '0,1' }, cdi_devices: [{ name: 'vgpu.org/gpu=all' }] },
      ],
    });
  });

  test('says which devices to prefer', async () => {
    assert.deepEqual(await kubelet.caller.call('GetDevicePluginOptions', {}), {
      pre_start_required: false,
      get_preferred_allocation_available: true,
    });
    const answer = await kubelet.caller.prefer(['0-0', '0-1', '1-0'], ['0-0'], 2);
    assert.deepEqual(answer, { container_responses: [{ deviceIDs: ['0-0', '1-0'] }] });
  });

  test('refuses hostile requests with a reason, and goes on', async () => {
    const { caller } = kubelet;
    await refused(
      caller.allocate(['7-7']),
      /INVALID_ARGUMENT.*this node has no device "7-7"; it has 4 devices/,
    );
    await refused(caller.allocate(['0-0'], ['\u0000../../etc/cdi']), /INVALID_ARGUMENT/);
    await refused(caller.prefer(['0-0'], [], 2 ** 31 - 1), /INVALID_ARGUMENT.*and 1 are available/);
    await refused(caller.allocate(...Array.from({ length: 1025 }, () => ['0-0'])), /at most 1024 containers/);
    const huge = Array.from({ length: 200_000 }, () => '0-0-0-0-0-0');
    await refused(caller.allocate(huge), /RESOURCE_EXHAUSTED/);
    await refused(caller.call('PreStartContainer', {}), /UNIMPLEMENTED/);
    // Not gRPC at all.
    const raw = connect(socket);
    raw.end('GET / HTTP/1.1\r\n\r\n');
    raw.resume().on('error', () => {});
    await new Promise((resolve) => raw.on('close', resolve));
    assert.equal(
      at(await caller.allocate(['0-0']), 'container_responses', 0, 'cdi_devices', 0, 'name'),
      'vgpu.org/gpu=0',
    );
  });

  test('serves a limited number of ListAndWatch, and forgets those that end', async () => {
    const callers = Array.from({ length: 20 }, () => new Caller(socket));
    const lists = callers.map(() => 0);
    const ends = callers.map(() => '');
    const streams = callers.map((caller, index) =>
      caller
        .watch()
        .on('data', () => {
          lists[index] = (lists[index] ?? 0) + 1;
        })
        .on('error', (error) => {
          ends[index] = String(error);
        }),
    );
    // One is the kubelet's.
    await until('15 lists', 20_000, () =>
      lists.filter((count) => count === 1).length === 15 ? true : undefined,
    );
    await until('5 refusals', 20_000, () =>
      ends.filter((end) => end.includes('RESOURCE_EXHAUSTED')).length === 5 ? true : undefined,
    );
    for (const stream of streams) stream.cancel();
    for (const { client } of callers) client.close();
    const again = new Caller(socket);
    await until('a place is free', 20_000, async () => {
      const stream = again.watch();
      const listed = await new Promise((resolve) => {
        stream.on('data', () => resolve(true));
        stream.on('error', () => resolve(false));
      });
      stream.cancel();
      return listed === true ? true : undefined;
    });
    again.client.close();
  });

  test('sends the newest list to a reader that has not read for a while', async () => {
    const slow = new Caller(socket);
    const stream = slow.watch();
    await new Promise((resolve) => stream.once('data', resolve));
    stream.pause();
    const many = Array.from({ length: 200 }, (_, gpu) => gpu);
    for (let round = 0; round < 300; round++) {
      offer = { shares: sharesOf(many, 1 + (round % 2)), healthy: false };
      plugin.changed();
      if (round % 50 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    offer = { shares: sharesOf([0], 1), healthy: true };
    plugin.changed();
    let lists = 0;
    await new Promise<void>((resolve) => {
      stream.on('data', (message: unknown) => {
        lists += 1;
        if (JSON.stringify(message).includes('"Healthy"')) resolve();
      });
      stream.resume();
    });
    assert.ok(lists < 300, `${lists} lists were kept for it`);
    slow.client.close();
  });
});

test('a socket that is a file of somebody else is an error', async () => {
  const directory = mkdtempSync(path.join(tmpdir(), 'vgpu-kubelet-'));
  const socket = path.join(directory, pluginSocket);
  writeFileSync(socket, '');
  await assert.rejects(
    servePlugin(socket, () => ({ shares: [], healthy: true })),
    /EADDRINUSE|No address/,
  );
  rmSync(directory, { recursive: true });
});
