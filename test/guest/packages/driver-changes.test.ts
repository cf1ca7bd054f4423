/** NVIDIA's real packages of Debian, and a package of Ubuntu's layout, that change between install and uninstall. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { debian535, debian550 } from '../states/nvidia-debian.js';
import { ubuntuPackage, ubuntuUpgrade } from '../states/nvidia-ubuntu.js';
import { multiarch } from '../states/state.js';
import { whyNoConsumer } from '../support/consumer.js';
import { Guest, whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import {
  assertRunsWithoutShim,
  at,
  designFor,
  installToGpu,
  leadsTo,
  prepareConsumer,
  preparedIn,
  uninstall,
} from '../support/installed.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoConsumer();
const long = process.env['VGPU_TEST_LONG'] === '1';

describe('package changes between install and uninstall', { skip }, () => {
  for (const driver of long ? [debian535, debian550] : [debian550]) {
    test(`${driver.name}: reinstalled, the links stay ours; uninstall gives them to the driver`, {
      skip: driver.skip,
    }, async (t) => {
      const guest = await preparedIn(driver, t);
      // Once without vgpu-agent: what dpkg itself changes counts as no difference.
      await driver.reinstall(guest);
      const before = await guest.listing();
      await installToGpu(guest);
      const store = await leadsTo(guest, 'libcuda.so.1');
      assert.match(store, /^\/opt\/vgpu\/versions\//);

      await driver.reinstall(guest);
      assert.equal(await leadsTo(guest, 'libcuda.so.1'), store);
      assert.match(await leadsTo(guest, 'libnvidia-ml.so.1'), /^\/opt\/vgpu\/versions\//);
      assert.deepEqual(at(await installToGpu(guest), 'plan', 'changes'), []);

      await uninstall(guest);
      assert.equal(
        await leadsTo(guest, 'libcuda.so.1'),
        `${multiarch}/nvidia/current/libcuda.so.${driver.version}`,
      );
      assert.deepEqual(before.diff(await guest.listing()), []);
      await assertRunsWithoutShim(guest);
    });
  }

  test('the driver of Debian purged: the shim keeps working, and uninstall leaves no trace of either', {
    skip: debian550.skip,
  }, async (t) => {
    const guest = await preparedIn(debian550, t);
    await installToGpu(guest);
    await debian550.purge(guest);
    await installToGpu(guest);
    assert.match(await leadsTo(guest, 'libcuda.so.1'), /^\/opt\/vgpu\/versions\//);
    await uninstall(guest);
    const left = await guest.must(
      'bash',
      '-c',
      `ls -d /opt/vgpu /etc/vgpu /var/lib/vgpu-agent /etc/systemd/system/ollama.service.d ${multiarch}/libcuda.so* ${multiarch}/libnvidia-ml.so* 2>/dev/null; ldconfig -p | grep -E 'libcuda\\.so|libnvidia-ml|vgpu'; true`,
    );
    assert.equal(left, '');
    await assertRunsWithoutShim(guest);
  });

  test("the driver of Debian installed where only the shim was: the shim's links are taken by its alternatives, and the next install has them back", {
    skip: debian535.skip,
  }, async (t) => {
    const guest = await Guest.start({}, t);
    await guest.hosts.start();
    await prepareConsumer(guest, designFor(debian535));
    await installToGpu(guest);
    await debian535.prepare(guest);
    await installToGpu(guest);
    assert.match(await leadsTo(guest, 'libcuda.so.1'), /^\/opt\/vgpu\/versions\//);
    await debian535.reinstall(guest);
    assert.match(await leadsTo(guest, 'libcuda.so.1'), /^\/opt\/vgpu\/versions\//);
    await uninstall(guest);
    assert.equal(
      await leadsTo(guest, 'libcuda.so.1'),
      `${multiarch}/nvidia/current/libcuda.so.${debian535.version}`,
    );
    assert.equal(
      await leadsTo(guest, 'libnvidia-ml.so.1'),
      `${multiarch}/nvidia/current/libnvidia-ml.so.${debian535.version}`,
    );
    await assertRunsWithoutShim(guest);
  });

  test("Ubuntu's layout: a driver that is upgraded meanwhile has the links after uninstall", {
    skip: ubuntuPackage.skip,
  }, async (t) => {
    const guest = await preparedIn(ubuntuPackage, t);
    await installToGpu(guest);
    await ubuntuPackage.upgrade(guest);
    assert.match(await leadsTo(guest, 'libcuda.so.1'), /^\/opt\/vgpu\/versions\//);
    await installToGpu(guest);
    await uninstall(guest);
    for (const name of ['libcuda', 'libnvidia-ml']) {
      assert.equal(await leadsTo(guest, `${name}.so.1`), `${multiarch}/${name}.so.${ubuntuUpgrade}`);
    }
    assert.equal(await leadsTo(guest, 'libcuda.so'), `${multiarch}/libcuda.so.${ubuntuUpgrade}`);
    await assertRunsWithoutShim(guest);
  });

  test("Debian's layout: a driver that is upgraded meanwhile has the links after uninstall", {
    skip: debian535.skip || debian550.skip,
  }, async (t) => {
    const guest = await preparedIn(debian535, t);
    await installToGpu(guest);
    await debian550.prepare(guest);
    assert.match(await leadsTo(guest, 'libcuda.so.1'), /^\/opt\/vgpu\/versions\//);
    await installToGpu(guest);
    await uninstall(guest);
    for (const name of ['libcuda', 'libnvidia-ml']) {
      const library = `${multiarch}/nvidia/current/${name}.so.${debian550.version}`;
      assert.equal(await leadsTo(guest, `${name}.so.1`), library);
    }
    await assertRunsWithoutShim(guest);
  });
});
