/** install and uninstall from every starting state: what was there before comes back, whatever happened in between. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { startingStates } from './states/all.js';
import { debian535, debian550 } from './states/nvidia-debian.js';
import {
  copiedLibraries,
  copiedTwice,
  ubuntuPackage,
  ubuntuUpgrade,
  ubuntuVersion,
} from './states/nvidia-ubuntu.js';
import { earlyDropIn, lateDropIn, ownDirectory, ownLibrary } from './states/settings.js';
import { multiarch, type StartingState } from './states/state.js';
import { type ConsumerDesign, consumerDesigns, whyNoConsumer } from './support/consumer.js';
import { type Afterwards, Guest, whyNoGuest } from './support/guest.js';
import { whyNoHostd } from './support/hosts.js';
import {
  assertRunsWithoutShim,
  at,
  consumerProcesses,
  differences,
  freshCache,
  installToGpu,
  prepareConsumer,
  uninstall,
} from './support/installed.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoConsumer();
const long = process.env['VGPU_TEST_LONG'] === '1';

/** The state's own design, unless a real Ollama is used, which has the one that it has. */
function designFor(state: StartingState): ConsumerDesign {
  const designs = consumerDesigns();
  return designs.includes(state.design) ? state.design : (designs[0] ?? 3);
}

async function prepared(state: StartingState, t: Afterwards): Promise<Guest> {
  const guest = await Guest.start({}, t);
  await guest.hosts.start();
  await prepareConsumer(guest, designFor(state));
  await state.prepare(guest);
  await freshCache(guest);
  return guest;
}

/**
 * One state of each kind in every run, all with --long. Unit tests of install/apply cover their kinds in-process; a guest adds
 * a real ldconfig, dpkg and update-alternatives.
 */
const inEveryRun: ReadonlySet<string> = new Set([
  'a bare guest',
  'a directory in the way that holds something',
  'foreign libraries, a loop, dangling links and a drop-in of the user at once',
  debian550.name,
  ubuntuPackage.name,
  copiedTwice.name,
]);
const states = startingStates.filter(({ name }) => long || inEveryRun.has(name));
assert.equal(startingStates.filter(({ name }) => inEveryRun.has(name)).length, inEveryRun.size);

describe('uninstall gives back, byte for byte,', { skip }, () => {
  for (const state of states) {
    test(state.name, { skip: state.skip }, async (t) => {
      const guest = await prepared(state, t);
      const before = await guest.listing();
      if (state.expect !== undefined) {
        const ran = await guest.agent('install', '--yes');
        assert.equal(ran.code, 6, ran.stdout + ran.stderr);
        assert.match(ran.stderr, state.expect.refused);
        assert.deepEqual(await before.diff(await guest.listing(), { mtimes: 'all' }), []);
        return;
      }
      await installToGpu(guest);
      const installed = await guest.listing();
      const start = await guest.invocationId('ollama');

      const again = await installToGpu(guest);
      assert.deepEqual(at(again, 'plan', 'changes'), [], 'the second install has nothing to do');
      assert.deepEqual(await installed.diff(await guest.listing(), { mtimes: 'all' }), []);
      assert.equal(await guest.invocationId('ollama'), start);

      await uninstall(guest);
      assert.deepEqual(await differences(before, await guest.listing()), []);
      await assertRunsWithoutShim(guest);
    });
  }
});

/** Where `name` leads in the end. */
async function leadsTo(guest: Guest, name: string): Promise<string> {
  return (await guest.must('readlink', '-f', `${multiarch}/${name}`)).trim();
}

describe('package changes between install and uninstall', { skip }, () => {
  for (const driver of long ? [debian535, debian550] : [debian550]) {
    test(`${driver.name}: reinstalled, the links stay ours; uninstall gives them to the driver`, {
      skip: driver.skip,
    }, async (t) => {
      const guest = await prepared(driver, t);
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
      assert.deepEqual(await before.diff(await guest.listing()), []);
      await assertRunsWithoutShim(guest);
    });
  }

  test('the driver of Debian purged: the shim keeps working, and uninstall leaves no trace of either', {
    skip: debian550.skip,
  }, async (t) => {
    const guest = await prepared(debian550, t);
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

  test("Ubuntu's layout: ldconfig and a reinstalled package keep the shim; uninstall gives the links to the driver", {
    skip: ubuntuPackage.skip,
  }, async (t) => {
    const guest = await prepared(ubuntuPackage, t);
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
    assert.deepEqual(await before.diff(await guest.listing()), []);
    await assertRunsWithoutShim(guest);
  });

  test("Ubuntu's layout: a driver that is upgraded meanwhile has the links after uninstall", {
    skip: ubuntuPackage.skip,
  }, async (t) => {
    const guest = await prepared(ubuntuPackage, t);
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
    const guest = await prepared(debian535, t);
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

  for (const state of [copiedLibraries, copiedTwice]) {
    test(`${state.name}: when ldconfig sets them, they stay ours`, { skip: state.skip }, async (t) => {
      const guest = await prepared(state, t);
      await installToGpu(guest);
      await guest.must('ldconfig');
      for (const name of ['libcuda.so.1', 'libnvidia-ml.so.1']) {
        assert.match(await leadsTo(guest, name), /^\/opt\/vgpu\/versions\//);
      }
      assert.deepEqual(at(await installToGpu(guest), 'plan', 'changes'), []);
    });
  }

  test('ldconfig, by any package, changes nothing of an install on a bare guest', async (t) => {
    const guest = await Guest.start({}, t);
    await guest.hosts.start();
    await prepareConsumer(guest, consumerDesigns()[0] ?? 1);
    const before = await guest.listing();
    await installToGpu(guest);
    const installed = await guest.listing();
    await guest.must('ldconfig');
    assert.deepEqual(await differences(installed, await guest.listing()), []);
    await uninstall(guest);
    assert.deepEqual(await differences(before, await guest.listing()), []);
  });
});

describe("a user's own settings of the unit", { skip }, () => {
  for (const state of [earlyDropIn, lateDropIn]) {
    test(`${state.name}: both values are in force, ours first`, async (t) => {
      const guest = await prepared(state, t);
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
