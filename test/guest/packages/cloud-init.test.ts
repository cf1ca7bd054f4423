// The user-data of scripts/packaging/cloud-init, run by Debian's cloud-init from a NoCloud seed.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { whyNoConsumer } from '../support/consumer.js';
import { Guest, whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { runInRoot } from '../support/inside-root.js';
import { at, prepareConsumer } from '../support/installed.js';
import { bareOfCheckout, buildPackages, whyNoPackages } from '../support/packages.js';
import { repository } from '../support/repository.js';
import { testRoot, whyNoRoot } from '../support/roots.js';
import { settledOnGpu } from '../support/service.js';

const root = 'package-trixie';
const skip = whyNoGuest() || whyNoRoot(root);
const file = join(repository, 'scripts/packaging/cloud-init/user-data');
const long = process.env['VGPU_TEST_LONG'] === '1' ? false : 'minutes: VGPU_TEST_LONG=1';

test('cloud-init finds the user-data right', { skip }, async () => {
  const ran = await runInRoot(root, [repository], ['cloud-init', 'schema', '--config-file', file]);
  assert.equal(ran.code, 0, ran.stdout + ran.stderr);
  assert.match(ran.stdout, /Valid schema/);
});

test('a guest boots with the user-data: an error without a host, the GPU with one', {
  skip: skip || whyNoHostd() || whyNoConsumer() || whyNoPackages() || long,
}, async (t) => {
  const source = await buildPackages();
  t.after(async () => source.remove());
  const readOnlyBinds = [await source.complete('trixie')];
  const guest = await Guest.start({ root: testRoot(root), readOnlyBinds }, t);
  await prepareConsumer(guest, 3);
  await bareOfCheckout(guest);
  // As a monitor's second disk would give it; a guest of these tests has no network that could be set up.
  const seed = '/var/lib/cloud/seed/nocloud';
  await guest.must('mkdir', '-p', seed);
  await guest.write(`${seed}/meta-data`, 'instance-id: test-1\nlocal-hostname: cloudy\n');
  const userData = readFileSync(file, 'utf8').replace('vsock:2:14833', 'unix:/run/vgpu/hostd.sock');
  await guest.write(`${seed}/user-data`, userData);
  await guest.write(
    '/etc/cloud/cloud.cfg.d/99-test.cfg',
    'datasource_list: [NoCloud]\nnetwork: {config: disabled}\n',
  );
  /** The commands of cloud-init's units at a first boot, in their order. */
  const boots = async (): Promise<{ status: unknown; output: string }> => {
    await guest.must('cloud-init', 'clean', '--logs');
    await guest.must('mkdir', '-p', seed);
    for (const stage of [
      ['init', '--local'],
      ['init'],
      ['modules', '--mode=config'],
      ['modules', '--mode=final'],
    ])
      await guest.runWith({ timeoutMs: 240_000 }, 'cloud-init', ...stage);
    const told = await guest.run('cloud-init', 'status', '--format=json');
    const output = await guest.run('cat', '/var/log/cloud-init.log', '/var/log/cloud-init-output.log');
    return { status: JSON.parse(told.stdout), output: output.stdout };
  };

  await t.test('without a host, cloud-init says error', async () => {
    const { status, output } = await boots();
    assert.match(JSON.stringify(status), /scripts.user|runcmd/i, output);
    assert.equal(at(status, 'errors', 'length') === 0, false, JSON.stringify(status));
    assert.equal(await guest.exists('/usr/bin/vgpu-agent'), true, output);
  });

  await t.test('with a host, it is done, and the GPU is proven', async () => {
    await guest.hosts.start();
    const { status, output } = await boots();
    assert.equal(at(status, 'errors', 'length'), 0, `${JSON.stringify(status)}\n${output}`);
    await settledOnGpu(guest);
    assert.equal((await guest.agent('verify')).code, 0);
  });
});
