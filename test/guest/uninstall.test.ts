/** install and uninstall from every starting state: what was there before comes back, whatever happened in between. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { startingStates } from './states/all.js';
import { bare } from './states/links.js';
import { debian550 } from './states/nvidia-debian.js';
import { copiedTwice, ubuntuPackage, ubuntuVersion } from './states/nvidia-ubuntu.js';
import { earlyDropIn, lateDropIn, ownDirectory, ownLibrary } from './states/settings.js';
import { multiarch } from './states/state.js';
import { whyNoConsumer } from './support/consumer.js';
import { whyNoGuest } from './support/guest.js';
import { whyNoHostd } from './support/hosts.js';
import {
  assertRunsWithoutShim,
  at,
  consumerProcesses,
  differences,
  installToGpu,
  leadsTo,
  preparedIn,
  uninstall,
} from './support/installed.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoConsumer();
const long = process.env['VGPU_TEST_LONG'] === '1';

/**
 * One state of each kind in every run, all with --long; Ubuntu's package is the subject of the next test. Unit tests of install/apply cover their kinds in-process; a guest adds
 * a real ldconfig, dpkg and update-alternatives.
 */
const inEveryRun: ReadonlySet<string> = new Set([
  bare.name,
  'a directory in the way that holds something',
  'foreign libraries, a loop, dangling links and a drop-in of the user at once',
  debian550.name,
  copiedTwice.name,
]);
const states = startingStates.filter(({ name }) => long || inEveryRun.has(name));
assert.equal(startingStates.filter(({ name }) => inEveryRun.has(name)).length, inEveryRun.size);

describe('uninstall gives back, byte for byte,', { skip }, () => {
  for (const state of states) {
    test(state.name, { skip: state.skip }, async (t) => {
      const guest = await preparedIn(state, t);
      const before = await guest.listing();
      if (state.expect !== undefined) {
        const ran = await guest.agent('install', '--yes');
        assert.equal(ran.code, 6, ran.stdout + ran.stderr);
        assert.match(ran.stderr, state.expect.refused);
        assert.deepEqual(before.diff(await guest.listing(), { mtimes: 'all' }), []);
        return;
      }
      await installToGpu(guest);
      const installed = await guest.listing();
      const start = await guest.invocationId('ollama');

      // As any package may do.
      await guest.must('ldconfig');
      for (const name of ['libcuda.so.1', 'libnvidia-ml.so.1']) {
        assert.match(await leadsTo(guest, name), /^\/opt\/vgpu\/versions\//, 'after ldconfig');
      }
      const settled = await guest.listing();
      if (state === bare) assert.deepEqual(differences(installed, settled), []);
      const again = await installToGpu(guest);
      assert.deepEqual(at(again, 'plan', 'changes'), [], 'the second install has nothing to do');
      assert.deepEqual(settled.diff(await guest.listing(), { mtimes: 'all' }), []);
      assert.equal(await guest.invocationId('ollama'), start);

      await uninstall(guest);
      assert.deepEqual(differences(before, await guest.listing()), []);
      await assertRunsWithoutShim(guest);
    });
  }
});

describe('package changes between install and uninstall', { skip }, () => {
  test("Ubuntu's layout: ldconfig and a reinstalled package keep the shim; uninstall gives the links to the driver", {
    skip: ubuntuPackage.skip,
  }, async (t) => {
    const guest = await preparedIn(ubuntuPackage, t);
    await ubuntuPackage.reinstall(guest);
    const before = await guest.listing();
    await installToGpu(guest);
    const store = await leadsTo(guest, 'libcuda.so.1');
    assert.match(store, /^\/opt\/vgpu\/versions\//);

    await guest.must('ldconfig');
    assert.equal(await leadsTo(guest, 'libcuda.so.1'), store, 'after ldconfig');
    assert.deepEqual(at(await installToGpu(guest), 'plan', 'changes'), []);
    await ubuntuPackage.reinstall(guest);
    assert.equal(await leadsTo(guest, 'libcuda.so.1'), store, 'after the package was installed again');
    await installToGpu(guest);

    await uninstall(guest);
    assert.equal(await leadsTo(guest, 'libcuda.so.1'), `${multiarch}/libcuda.so.${ubuntuVersion}`);
    assert.deepEqual(before.diff(await guest.listing()), []);
    await assertRunsWithoutShim(guest);
  });
});

describe("a user's own settings of the unit", { skip }, () => {
  for (const state of [earlyDropIn, lateDropIn]) {
    test(`${state.name}: both values are in force, ours first`, async (t) => {
      const guest = await preparedIn(state, t);
      await installToGpu(guest);
      const processes = await consumerProcesses(guest);
      const serve = processes.find(({ command }) => command.includes('serve'));
      assert.equal(serve?.environment['LD_LIBRARY_PATH'], `/opt/vgpu/current:${ownDirectory}`);
      assert.equal(
        serve?.environment['LD_PRELOAD'],
        `/opt/vgpu/current/libcuda.so.1:/opt/vgpu/current/libnvidia-ml.so.1:${ownLibrary}`,
      );
      assert.equal(serve?.environment['OLLAMA_KEEP_ALIVE'], '1h');
      assert.ok(serve?.libraries.includes(ownLibrary), 'the library of the user is still preloaded');
    });
  }
});
