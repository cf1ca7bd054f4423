// NVIDIA's real packages installed by the real dpkg and apt while the service runs: waited for, repaired once.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { messageIds } from '../../../agent/systemd/journal-writer.js';
import { debian535 } from '../states/nvidia-debian.js';
import { whyNoConsumer } from '../support/consumer.js';
import { Guest, whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { until } from '../support/process.js';
import { entries, installService, publicLink, said, settledOnGpu, untilEntry } from '../support/service.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoConsumer() || debian535.skip;
const right = '/opt/vgpu/current/libcuda.so.1';

describe(`the service, and ${debian535.name}`, { skip }, () => {
  let guest: Guest;
  before(async () => {
    guest = await Guest.start();
    await guest.hosts.start();
    await installService(guest);
  });
  after(() => guest.stop());

  /** The library that the loader finds for a program that asks by name. */
  const found = async (): Promise<string> =>
    /libcuda\.so\.1 .*=> (\S+)/.exec(await guest.must('ldconfig', '-p'))?.[1] ?? '';

  const isMendedOnce = async (work: () => Promise<void>): Promise<void> => {
    const repaired = (await entries(guest, messageIds.repaired)).length;
    await work();
    const line = await untilEntry(guest, messageIds.repaired, repaired);
    assert.match(line, /libcuda\.so\.1|nvidia/);
    await settledOnGpu(guest, 60_000);
    await until('the loader finds ours', 60_000, async () => ((await found()) === right ? true : undefined));
    assert.equal(
      (await entries(guest, messageIds.repaired)).length,
      repaired + 1,
      `one repair when dpkg is done\n${await said(guest)}`,
    );
  };

  test('first installed by apt-get, which runs dpkg several times', () =>
    isMendedOnce(() => debian535.installWithApt(guest)));

  test('installed again by dpkg: our choice among the alternatives is kept, there is nothing to repair', async () => {
    const repaired = (await entries(guest, messageIds.repaired)).length;
    await debian535.reinstall(guest);
    assert.equal(await found(), right);
    // A look at everything, which waits until whatever the packages did has been looked at.
    await guest.must(
      'busctl',
      '--timeout=120',
      'call',
      'org.vgpu.Agent1',
      '/org/vgpu/Agent1',
      'org.vgpu.Agent1',
      'Repair',
    );
    await settledOnGpu(guest);
    assert.equal(await found(), right);
    assert.equal((await entries(guest, messageIds.repaired)).length, repaired, await said(guest));
  });
  test('purged by dpkg: nothing of vgpu-agent goes with it', async () => {
    await debian535.purge(guest);
    await until('every program finds ours', 60_000, async () => {
      const target = (await guest.run('readlink', '-f', publicLink)).stdout.trim();
      return target.startsWith('/opt/vgpu/versions/') && (await found()) === right ? true : undefined;
    });
    await settledOnGpu(guest);
  });
});
