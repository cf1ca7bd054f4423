// Our package beside NVIDIA's real ones of Debian 12, in every order: neither package manager nor loader has a complaint.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { debian535 } from '../states/nvidia-debian.js';
import { whyNoConsumer } from '../support/consumer.js';
import { Guest, whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { assertRunsWithoutShim, installToGpu, prepareConsumer } from '../support/installed.js';
import {
  buildPackages,
  complaints,
  type PackageSource,
  whyNoDependencies,
  whyNoPackages,
} from '../support/packages.js';

const skip =
  whyNoGuest() ||
  whyNoHostd() ||
  whyNoConsumer() ||
  whyNoPackages() ||
  debian535.skip ||
  whyNoDependencies('bookworm') ||
  (process.env['VGPU_TEST_LONG'] === '1' ? false : 'minutes: VGPU_TEST_LONG=1');

interface Order {
  readonly name: string;
  readonly steps: readonly ('ours' | 'theirs' | 'ours away' | 'theirs away')[];
}

const orders: readonly Order[] = [
  { name: 'ours, theirs, ours away, theirs away', steps: ['ours', 'theirs', 'ours away', 'theirs away'] },
  { name: 'ours, theirs, theirs away, ours away', steps: ['ours', 'theirs', 'theirs away', 'ours away'] },
  { name: 'theirs, ours, ours away, theirs away', steps: ['theirs', 'ours', 'ours away', 'theirs away'] },
  { name: 'theirs, ours, theirs away, ours away', steps: ['theirs', 'ours', 'theirs away', 'ours away'] },
];

describe(`our package and ${debian535.name}`, { skip }, () => {
  let source: PackageSource;
  let bind: string;
  before(async () => {
    source = await buildPackages();
    bind = await source.complete('bookworm');
  });
  after(() => source.remove());

  for (const { name, steps } of orders) {
    test(name, async (t) => {
      const guest = await Guest.start({ readOnlyBinds: [bind] }, t);
      await guest.hosts.start();
      await prepareConsumer(guest, 3);
      await guest.must('rm', '/usr/local/bin/vgpu-agent');
      const loads = async (): Promise<string> =>
        /libcuda\.so\.1 .*=> (\S+)/.exec(await guest.must('ldconfig', '-p'))?.[1] ?? 'none';
      const present = new Set<string>();
      for (const step of steps) {
        switch (step) {
          case 'ours':
            await guest.must('sh', '-c', 'dpkg -i $(ls /packages/vgpu-agent_*.deb | grep -v _99)');
            await installToGpu(guest);
            present.add('ours');
            break;
          case 'theirs':
            await debian535.installWithApt(guest);
            present.add('theirs');
            break;
          case 'ours away':
            await guest.must('apt-get', '-y', 'purge', 'vgpu-agent');
            await assertRunsWithoutShim(guest);
            present.delete('ours');
            break;
          case 'theirs away':
            await debian535.purge(guest);
            present.delete('theirs');
            break;
        }
        assert.equal(await complaints(guest), '', `after ${step}`);
        if (present.has('ours')) {
          // Another package may have taken the public name over: install says so, and takes it back.
          await installToGpu(guest);
          assert.match(await loads(), /^\/opt\/vgpu\//, `after ${step}`);
        } else {
          const theirs = present.has('theirs');
          const found = await loads();
          assert.ok(theirs ? /libcuda\.so\.1$/.test(found) : found === 'none', `after ${step}: ${found}`);
          assert.doesNotMatch(found, /vgpu/, `after ${step}`);
        }
      }
      for (const path of ['/opt/vgpu', '/etc/vgpu', '/usr/lib/vgpu-agent', '/var/lib/vgpu-agent']) {
        assert.equal(await guest.exists(path), false, path);
      }
    });
  }
});
