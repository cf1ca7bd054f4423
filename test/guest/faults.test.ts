/**
 * Disks that are full, read-only or forbidden at each place that an install or an uninstall writes to. Every time:
 * one clear message that names the path, and a machine as before, to the byte and the second; repaired, the same
 * command does its work.
 */
import assert from 'node:assert/strict';
import { after, before as beforeAll, describe, test } from 'node:test';
import { mixed } from './states/mixed.js';
import { debian550 } from './states/nvidia-debian.js';
import { multiarch, type StartingState, whyNoProgram } from './states/state.js';
import { atCheckpoint, checkpointsOf } from './support/checkpoints.js';
import { consumerDesigns, whyNoConsumer } from './support/consumer.js';
import { type Afterwards, Guest, whyNoGuest } from './support/guest.js';
import { whyNoHostd } from './support/hosts.js';
import {
  assertConsumerStarts,
  at,
  differences,
  documentOf,
  installToGpu,
  prepareConsumer,
  preparedIn,
  uninstall,
} from './support/installed.js';
import type { Listing } from './support/listing.js';
import type { Ran } from './support/process.js';
import {
  asAffected,
  type Spoiling,
  spoilings,
  symptom,
  whileShortOfRoom,
  whileSpoilt,
  whyNotSpoilable,
} from './support/spoil.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoConsumer();
const quiet = ['--yes', '--no-restart'] as const;

async function prepared(state: StartingState, t?: Afterwards): Promise<{ guest: Guest; before: Listing }> {
  const guest = await preparedIn(state, t);
  return { guest, before: await guest.listing() };
}

/** Exit status 7, and one message: what failed, where, what to do. */
function assertRolledBack(ran: Ran, directory: string, words: RegExp, context: string): void {
  const said = `${context}\n${ran.stdout}${ran.stderr}`;
  assert.equal(ran.code, 7, said);
  const document: unknown = JSON.parse(ran.stdout);
  assert.equal(at(document, 'error', 'kind'), 'rolled-back', said);
  assert.equal(at(document, 'error', 'exitCode'), 7, said);
  const message = String(at(document, 'error', 'message'));
  assert.match(message, words, said);
  assert.match(message, /everything was undone$/, said);
  assert.ok(
    message.includes(directory),
    `${context}: the message names no path below ${directory}: ${message}`,
  );
  assert.ok(String(at(document, 'error', 'remedy')).length > 10, said);
}

async function assertUnchanged(guest: Guest, before: Listing, context: string): Promise<void> {
  assert.deepEqual(differences(before, await guest.listing()), [], context);
}

const long = process.env['VGPU_TEST_LONG'] === '1';

/**
 * Faults differ in the kernel's answer only: one at samples of each kind of place, the others at our log. Everywhere
 * with VGPU_TEST_LONG=1; test/agent/install/apply/faults.test.ts makes every single write fail.
 */
function isTried(how: Spoiling, { directory, small }: Place): boolean {
  if (how === 'no-space' && small) return false;
  const log = directory === '/var/lib' || directory === '/var/lib/vgpu-agent';
  return long || log || (how === 'read-only' && sampled.has(directory));
}

const sampled = new Set(['/etc/systemd/system/ollama.service.d', '/opt', '/opt/vgpu', multiarch]);

interface Place {
  readonly directory: string;
  /** Only links and directories are made here, which need no room for content. */
  readonly small: boolean;
}

const written: readonly Place[] = [
  { directory: '/opt', small: false },
  { directory: '/etc', small: false },
  { directory: '/etc/ld.so.conf.d', small: false },
  { directory: multiarch, small: true },
  { directory: '/usr/lib64', small: true },
  { directory: '/usr/local/lib', small: true },
  { directory: '/etc/systemd/system/ollama.service.d', small: false },
  { directory: '/var/lib', small: false },
];

/** Each test leaves the machine as it was, so all kinds have one guest. */
describe('install', { skip: skip || mixed.skip }, () => {
  let guest: Guest;
  let before: Listing;
  beforeAll(async () => {
    ({ guest, before } = await prepared(mixed));
  });
  after(() => guest.stop());

  for (const how of spoilings) {
    test(`where writing fails (${how}): says where, and changes nothing`, async (t) => {
      const why = await whyNotSpoilable(guest, how);
      if (why !== false) return t.skip(why);
      for (const place of written.filter((one) => isTried(how, one))) {
        const { directory } = place;
        const context = `install with ${directory} ${how}`;
        const ran = await whileSpoilt(guest, directory, how, () =>
          guest.run(...command(how, 'install', ...quiet, '--json')),
        );
        assertRolledBack(ran, directory, symptom[how], context);
        await assertUnchanged(guest, before, context);
      }
      await assertConsumerStarts(guest, `after install with directories ${how}`);
    });
  }

  test('when the disk fills up in the middle of a file, a backup or the log it undoes everything', async (t) => {
    const why = await whyNotSpoilable(guest, 'no-space');
    if (why !== false) return t.skip(why);
    const rooms: readonly (readonly [string, readonly number[]])[] = [
      ['/opt', long ? [1, 20, 60, 85] : [60]],
      ['/var/lib', long ? [1, 2, 3, 4, 5, 7, 9, 11] : [1, 5]],
      ['/etc', long ? [1, 2, 3] : [1]],
    ];
    const failed = new Set<string>();
    for (const [directory, sizes] of rooms) {
      for (const pages of sizes) {
        const context = `install with ${pages} pages of room in ${directory}`;
        const ran = await whileShortOfRoom(guest, directory, pages, async () => {
          const first = await guest.agent('install', ...quiet, '--json');
          // Where the room was enough, the limited layer has to be empty again before it is removed.
          if (first.code === 0) await uninstall(guest, '--no-restart');
          return first;
        });
        if (ran.code !== 0) {
          failed.add(directory);
          assert.equal(ran.code, 7, `${context}\n${ran.stdout}${ran.stderr}`);
          const document: unknown = JSON.parse(ran.stdout);
          // ldconfig names its own file and not the directory's reason in the same words.
          assert.match(String(at(document, 'error', 'message')), /no space left|ldconfig failed/i, context);
        }
        await assertUnchanged(guest, before, context);
      }
    }
    assert.deepEqual([...failed].sort(), ['/etc', '/opt', '/var/lib'], 'no size was too small');
    await assertConsumerStarts(guest, 'after disks that filled up');
  });

  test('when ldconfig fails it undoes everything', async (t) => {
    const why = await whyNotSpoilable(guest, 'immutable');
    if (why !== false) return t.skip(why);
    await guest.must('chattr', '+i', '/etc/ld.so.cache');
    const ran = await guest.agent('install', ...quiet, '--json');
    await guest.must('chattr', '-i', '/etc/ld.so.cache');
    assertRolledBack(ran, '/etc/ld.so.cache', /ldconfig failed/, 'install with an immutable cache');
    await assertUnchanged(guest, before, 'install with an immutable cache');
  });

  test('after all of them it installs, and uninstall takes everything back', async () => {
    await installToGpu(guest);
    await uninstall(guest);
    await assertUnchanged(guest, before, 'after install and uninstall');
  });
});

describe('install', { skip }, () => {
  test("when Debian's alternatives cannot be changed it says so, and changes nothing", {
    skip: debian550.skip,
  }, async (t) => {
    const { guest, before } = await prepared(debian550, t);
    for (const directory of ['/etc/alternatives', '/var/lib/dpkg/alternatives', '/usr/bin']) {
      for (const how of long ? (['read-only', 'no-inodes'] as const) : (['read-only'] as const)) {
        if ((await whyNotSpoilable(guest, how)) !== false) continue;
        const context = `install with ${directory} ${how}`;
        const ran = await whileSpoilt(guest, directory, how, async () => {
          const first = await guest.agent('install', ...quiet, '--json');
          // Where no link has to be changed in the directory, it does not matter.
          if (first.code === 0) await uninstall(guest, '--no-restart');
          return first;
        });
        const needed = directory !== '/usr/bin';
        if (needed || ran.code !== 0) {
          assert.equal(ran.code, 7, `${context}\n${ran.stdout}${ran.stderr}`);
          const document: unknown = JSON.parse(ran.stdout);
          assert.match(String(at(document, 'error', 'message')), /update-alternatives.*failed/s, context);
          assert.match(String(at(document, 'error', 'message')), symptom[how], context);
        }
        await assertUnchanged(guest, before, context);
      }
    }
    await installToGpu(guest);
    await uninstall(guest);
    await assertUnchanged(guest, before, 'after install and uninstall');
  });

  test('when the lock cannot be made it refuses, and names the lock', async (t) => {
    const guest = await Guest.start({}, t);
    await prepareConsumer(guest, consumerDesigns().at(-1) ?? 3);
    const before = await guest.listing();
    await guest.must('bash', '-ec', 'rm -rf /run/vgpu-agent; touch /run/vgpu-agent');
    const ran = await guest.agent('install', ...quiet, '--json');
    const document: unknown = JSON.parse(ran.stdout);
    assert.ok(ran.code === 1 || ran.code === 6, ran.stdout);
    assert.match(String(at(document, 'error', 'message')), /\/run\/vgpu-agent/);
    await assertUnchanged(guest, before, 'install without a lock');
  });

  test('on a disk that reports errors: says where, and changes nothing', {
    skip: whyNoProgram('strace', 'makes mkdir fail with EIO'),
  }, async (t) => {
    const guest = await Guest.start({}, t);
    await guest.hosts.start();
    await prepareConsumer(guest, consumerDesigns().at(-1) ?? 3);
    const before = await guest.listing();
    const ran = await guest.run(
      'strace',
      '-f',
      '-qq',
      '-o',
      '/dev/null',
      '-P',
      '/etc/vgpu',
      '-e',
      'inject=mkdir:error=EIO',
      'vgpu-agent',
      'install',
      ...quiet,
      '--json',
    );
    assertRolledBack(ran, '/etc/vgpu', /input\/output error/, 'install with EIO');
    await assertUnchanged(guest, before, 'install with EIO');
  });
});

describe('uninstall', { skip: skip || mixed.skip }, () => {
  let guest: Guest;
  let before: Listing;
  let installed: Listing;
  beforeAll(async () => {
    ({ guest, before } = await prepared(mixed));
    await installToGpu(guest);
    installed = await guest.listing();
  });
  after(() => guest.stop());

  for (const how of spoilings) {
    test(`where writing fails (${how}): says where, and everything stays installed`, async (t) => {
      const why = await whyNotSpoilable(guest, how);
      if (why !== false) return t.skip(why);
      const places: readonly Place[] = [
        ...written.filter(({ directory }) => directory !== '/opt' && directory !== '/var/lib'),
        { directory: '/opt/vgpu', small: true },
        { directory: '/etc/vgpu', small: true },
        { directory: '/var/lib/vgpu-agent', small: false },
      ];
      // To delete a file needs no room: a full disk is no hindrance where nothing else is done.
      const needsRoom = ({ directory }: Place): boolean =>
        ['/usr/lib64', '/usr/local/lib', multiarch, '/var/lib/vgpu-agent'].includes(directory);
      const full = how === 'no-space' || how === 'no-inodes';
      for (const place of places.filter((one) => isTried(how, one) && (!full || needsRoom(one)))) {
        const { directory } = place;
        const context = `uninstall with ${directory} ${how}`;
        const ran = await whileSpoilt(guest, directory, how, () =>
          guest.run(...command(how, 'uninstall', ...quiet, '--json')),
        );
        assertRolledBack(ran, directory, symptom[how], context);
        await assertUnchanged(guest, installed, context);
      }
      await assertConsumerStarts(guest, `after uninstall with directories ${how}`);
    });
  }

  test('after all of them it is on the GPU, and uninstall takes everything back', async () => {
    assert.equal(at(documentOf(await guest.agent('verify', '--json')), 'verdict', 'mode'), 'gpu');
    await uninstall(guest);
    await assertUnchanged(guest, before, 'after uninstall');
  });
});

describe('a disk that turns read-only in the middle', { skip }, () => {
  for (const name of ['install', 'uninstall'] as const) {
    test(`of ${name}: nothing is lost, and the next command goes on`, { skip: mixed.skip }, async (t) => {
      const { guest, before } = await prepared(mixed, t);
      const ready = async (): Promise<void> => {
        if (name === 'uninstall') documentOf(await guest.agent('install', ...quiet, '--json'));
      };
      await ready();
      const checkpoints = await checkpointsOf(guest, name, ...quiet);
      if (name === 'install') await uninstall(guest, '--no-restart');
      for (const directory of long ? ['/etc', multiarch, '/var/lib'] : [multiarch, '/var/lib']) {
        // The moments of the fault, as parts of the work that are done.
        for (const share of long ? [1 / 8, 1 / 4, 1 / 2, 3 / 4, 7 / 8] : [2 / 3]) {
          const n = Math.floor(checkpoints.length * share);
          const context = `${name} with ${directory} read-only from step ${n} (${checkpoints[n - 1]})`;
          await ready();
          await guest.must('mount', '--bind', directory, directory);
          const ran = await guest.runWith(
            { env: atCheckpoint(n, { kind: 'run', command: `mount -o remount,ro,bind ${directory}` }) },
            'vgpu-agent',
            name,
            ...quiet,
            '--json',
          );
          const said = `${context}\n${ran.stdout}${ran.stderr}`;
          assert.ok(ran.code === 0 || ran.code === 1 || ran.code === 7, said);
          if (ran.code !== 0) {
            const message = String(at(JSON.parse(ran.stdout), 'error', 'message'));
            assert.match(message, /read-only/i, said);
            const told = ran.code === 7 ? /everything was undone$/ : /No data is lost|tries again$/;
            assert.match(message, told, said);
          }
          await assertConsumerStarts(guest, context);
          await guest.must('umount', '-l', directory);
          // umount gives the writable directory below back, with all that was written through the mount.
          await installToGpu(guest);
          await uninstall(guest, '--no-restart');
          await assertUnchanged(guest, before, context);
        }
      }
    });
  }
});

/** The agent's command line, with what makes it feel a mode. */
function command(how: Spoiling, ...args: readonly string[]): [string, ...string[]] {
  const [first, ...rest] = [...asAffected(how), 'vgpu-agent', ...args];
  return [first ?? 'vgpu-agent', ...rest];
}
