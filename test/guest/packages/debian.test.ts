// The Debian packages as people use them: apt install, install, upgrade, remove, purge, in guests that have no compiler,
// no Node, no network and no checkout; the host in a guest of its own, from its own package.

import assert from 'node:assert/strict';
import { copyFileSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { apt, mustApt } from '../support/apt.js';
import { whyNoConsumer } from '../support/consumer.js';
import { Guest, whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import {
  assertRunsWithoutShim,
  at,
  consumerProcesses,
  differences,
  documentOf,
  installToGpu,
  prepareConsumer,
} from '../support/installed.js';
import type { Listing } from '../support/listing.js';
import {
  bareOfCheckout,
  buildPackages,
  complaints,
  nextVersion,
  type PackageSource,
  stateOf,
  whyNoDependencies,
  whyNoPackages,
} from '../support/packages.js';
import { type Ran, until } from '../support/process.js';
import { repository } from '../support/repository.js';
import { releases, testRoot, whyNoRoot } from '../support/roots.js';
import { generous, settledOnGpu } from '../support/service.js';
import { SigningKey } from '../support/signing-key.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoConsumer() || whyNoPackages();
const host = 'unix:/run/the-host/hostd.sock';
const long = process.env['VGPU_TEST_LONG'] === '1';
const { version }: { version: string } = JSON.parse(readFileSync(join(repository, 'package.json'), 'utf8'));
/** Packages of the host whose daemons speak another wire version than the guest's libraries. */
const otherWires = [
  { wire: 0, package: '0.0.1', older: 'host' },
  { wire: 2, package: '99.1.0', older: 'guest' },
] as const;
/** The files that apt and dpkg keep for themselves, and those that their triggers write again. */
const bookkeeping = /^. \/(var\/lib\/(dpkg|apt)\b|etc\/ld\.so\.cache|var\/lib\/systemd\/catalog\b)/;

/** The differences, without the package manager's own files. */
async function left(earlier: Listing, guest: Guest): Promise<readonly string[]> {
  return differences(earlier, await guest.listing()).filter((line) => !bookkeeping.test(line));
}

for (const release of long ? releases : releases.slice(0, 1)) {
  describe(`packages on ${release}`, {
    skip: skip || whyNoRoot(release) || whyNoDependencies(release),
  }, () => {
    let source: PackageSource;
    let serving: Guest;
    let guest: Guest;
    let bareHost: Listing;
    let bareGuest: Listing;
    const consumer = () => guest.invocationId('ollama');
    /** How often the program of the load has computed, and seen its bytes come back right. */
    const ticks = async (): Promise<number> => {
      const said = await guest.must('journalctl', '-q', '-o', 'cat', '-u', 'load', '--no-pager');
      assert.doesNotMatch(said, /^lost$/m);
      return (said.match(/^tick \d+$/gm) ?? []).length;
    };
    const computesOn = async (): Promise<void> => {
      const now = await ticks();
      await until('the program computes', 60_000, async () => ((await ticks()) > now + 2 ? true : undefined));
    };
    const store = async () => (await guest.must('readlink', '/opt/vgpu/current')).trim();

    before(async () => {
      source = await buildPackages();
      for (const other of otherWires) await source.addHostOfWire(other.wire, other.package);
      const readOnlyBinds = [await source.complete(release)];
      const root = testRoot(release);
      serving = await Guest.start({ root, readOnlyBinds });
      guest = await Guest.start({ root, readOnlyBinds, binds: [`${serving.state}/vgpu:/run/the-host`] });
      await prepareConsumer(guest, 3);
      await bareOfCheckout(serving);
      await bareOfCheckout(guest);
      bareHost = await serving.listing();
      bareGuest = await guest.listing();
    });
    after(async () => {
      await guest?.stop();
      await serving?.stop();
      source?.remove();
    });

    test('apt takes packages only from an index that this key has signed, and as it was signed', async (t) => {
      const stranger = await SigningKey.make();
      t.after(async () => stranger.remove());
      /** The index and what it says of the host's package, in /tmp of the guest; then what apt says of it. */
      const asked = async (change: string): Promise<Ran> =>
        serving.run(
          'sh',
          '-c',
          `rm -rf /tmp/forged /tmp/lists && mkdir -p /tmp/forged /tmp/lists/partial && cd /tmp/forged &&
           cp /packages/InRelease /packages/Packages* . && cp /packages/vgpu-hostd_${version}_*.deb . && ${change} &&
           echo "deb [signed-by=/packages/vgpu-agent.asc] file:/tmp/forged ./" >/tmp/forged.list &&
           set -- -q -o Dir::Etc::sourcelist=/tmp/forged.list -o Dir::Etc::sourceparts=- \
             -o Dir::State::lists=/tmp/lists -o APT::Sandbox::User=root &&
           apt-get "$@" -o APT::Update::Error-Mode=any update && cd /tmp/lists && apt-get "$@" download vgpu-hostd=${version}`,
        );
      const good = await asked('true');
      assert.equal(good.code, 0, good.stdout + good.stderr);
      for (const [change, words] of [
        [
          'sed -i s/^Version:.*/Version:6.6.6/ Packages && gzip -kf Packages',
          /Hash Sum mismatch|unexpected size/,
        ],
        ['printf x >>InRelease && sed -i s/^Label:.*/Label:x/ InRelease', /invalid|BADSIG|Bad|not signed/i],
        ['rm InRelease', /not signed|does(n't| not) have a Release file/],
        [
          `printf x | dd of=$(echo *_${version}_*.deb) bs=1 seek=100000 conv=notrunc status=none`,
          /Hash Sum mismatch/,
        ],
      ] as const) {
        const ran = await asked(change);
        assert.notEqual(ran.code, 0, change);
        assert.match(ran.stdout + ran.stderr, words, change);
      }
      const foreign = mkdtempSync(join(tmpdir(), 'vgpu-test-foreign-'));
      t.after(async () => rmSync(foreign, { recursive: true }));
      copyFileSync(
        join(source.directory, `vgpu-hostd_${version}_amd64.deb`),
        join(foreign, `vgpu-hostd_${version}_amd64.deb`),
      );
      await source.sign(foreign, stranger);
      await serving.write('/tmp/foreign', readFileSync(join(foreign, 'InRelease')));
      const ran = await asked('cp /tmp/foreign InRelease');
      assert.notEqual(ran.code, 0);
      assert.match(ran.stdout + ran.stderr, /NO_PUBKEY|Missing key/i);
      await serving.must('sh', '-c', 'rm -rf /tmp/for* /tmp/lists');
    });

    test('apt install of the host starts nothing, and names the next command', async () => {
      const said = await mustApt(serving, 'install', `vgpu-hostd=${version}`);
      assert.match(said, /systemctl enable --now vgpu-hostd\.socket vgpu-hostd\.service/);
      for (const unit of ['vgpu-hostd.socket', 'vgpu-hostd.service']) {
        assert.equal(await serving.property(unit, 'ActiveState'), 'inactive', unit);
        assert.equal(await serving.property(unit, 'UnitFileState'), 'disabled', unit);
      }
      assert.equal(await serving.exists('/usr/share/man/man8/vgpu-hostd.8.gz'), true);
    });

    test('the host serves after the commands that the package named', async () => {
      await serving.must('sed', '-i', 's/^VGPU_DEVICE=.*/VGPU_DEVICE=software/', '/etc/default/vgpu-hostd');
      await serving.must('systemctl', 'enable', '--now', 'vgpu-hostd.socket', 'vgpu-hostd.service');
      const told: unknown = JSON.parse(await serving.must('vgpu-hostd', 'status', '--json'));
      assert.equal(at(told, 'simulated'), true);
    });

    test('apt install of the agent touches no service, and names the next command', async () => {
      const start = await consumer();
      const said = await mustApt(guest, 'install', `vgpu-agent=${version}`);
      assert.match(said, /no service has been changed\. Next:[\s\S]*vgpu-agent install --host/);
      assert.equal(await consumer(), start);
      assert.deepEqual(
        (await left(bareGuest, guest)).filter(
          (line) => !/^\+ \/usr\/(lib|bin|share)\/\S*vgpu/i.test(line) && !onlyDirectory(line),
        ),
        [],
      );
      assert.equal((await guest.agent('--version')).stdout.trim(), version);
      assert.equal(await guest.exists('/usr/share/man/man8/vgpu-agent.8.gz'), true);
    });

    test('install proves the GPU of the packaged host', async () => {
      await installToGpu(guest, '--host', host);
      assert.equal(await complaints(guest), '');
    });

    test('a program that computes all the time is started, for the upgrades', async () => {
      const program = join(repository, 'build/shim/programs/vm_memory');
      await guest.write('/tmp/vm_memory', readFileSync(program), 0o755);
      const load = ['systemd-run', '--quiet', '--unit', 'load', '-E', `VGPU_HOST=${host}`] as const;
      await guest.must(...load, '/tmp/vm_memory', 'works_on');
      await computesOn();
    });

    test('version --verbose names the commit', async () => {
      const document = documentOf(await guest.agent('version', '--verbose', '--json'));
      assert.match(String(at(document, 'build', 'commit')), /^[0-9a-f]{40}(-changed)?$/);
      assert.equal(at(document, 'build', 'packaged'), 'deb');
    });

    test('an upgrade of the host ends no session, and says how the new program takes over', async () => {
      const [start, pid] = [await consumer(), await serving.property('vgpu-hostd', 'MainPID')];
      const said = await mustApt(serving, 'install', `vgpu-hostd=${nextVersion}`);
      assert.match(said, /vgpu-hostd hand-over/);
      assert.equal(await serving.property('vgpu-hostd', 'MainPID'), pid);
      await serving.must('vgpu-hostd', 'hand-over');
      assert.equal(await consumer(), start);
      assert.equal((await guest.agent('verify')).code, 0);
      assert.match(await serving.read('/etc/default/vgpu-hostd'), /^VGPU_DEVICE=software$/m);
      await computesOn();
    });

    test('an upgrade of the agent switches the store, restarts nothing, and says so', async () => {
      const [start, former] = [await consumer(), await store()];
      const said = await mustApt(guest, 'install', `vgpu-agent=${nextVersion}`);
      assert.match(said, /ollama\.service uses the new libraries from its next start: systemctl restart/);
      assert.equal(await consumer(), start);
      assert.notEqual(await store(), former);
      assert.equal((await guest.agent('--version')).stdout.trim(), nextVersion);
      assert.match((await guest.agent('plan', '--verbose')).stdout, /still uses the former version/);
      await guest.must('systemctl', 'restart', 'ollama');
      assert.equal((await guest.agent('verify')).code, 0);
      assert.doesNotMatch((await guest.agent('plan', '--verbose')).stdout, /former version/);
      await computesOn();
    });

    for (const other of otherWires) {
      test(`a host whose package speaks wire version ${other.wire} is refused: the verdict says both numbers, and that the ${other.older} is older`, async () => {
        await mustApt(serving, 'install', '--allow-downgrades', `vgpu-hostd=${other.package}`);
        await serving.must('vgpu-hostd', 'hand-over');
        await computesOn();
        await guest.must('systemctl', 'restart', 'ollama');
        const told = await guest.agent('verify');
        assert.notEqual(told.code, 0);
        const both = new RegExp(
          `wire version ${other.wire}\\.0, this guest speaks 1\\.0: the ${other.older} is older`,
        );
        assert.match(told.stdout + told.stderr, both);
      });
    }

    test('a newer guest computes with a host of an older package and the same wire version', async () => {
      await mustApt(serving, 'install', '--allow-downgrades', `vgpu-hostd=${version}`);
      await serving.must('vgpu-hostd', 'hand-over');
      await guest.must('systemctl', 'restart', 'ollama');
      const told = await guest.agent('verify');
      assert.equal(told.code, 0, told.stdout + told.stderr);
      await computesOn();
      await guest.must('systemctl', 'stop', 'load');
      await guest.must('rm', '/tmp/vm_memory');
    });

    test('the service runs from the package, and writes nothing where dpkg owns the files', async () => {
      await guest.write('/etc/vgpu-agent/agent.json', JSON.stringify(generous));
      documentOf(await guest.agent('install', '--service', '--yes', '--json'));
      await settledOnGpu(guest);
      const unit = await guest.read('/etc/systemd/system/vgpu-agent.service');
      assert.match(
        unit,
        /^ExecStart=\/usr\/lib\/vgpu-agent\/build\/shim\/vgpu-watch -- \/usr\/lib\/vgpu-agent\/bin\/node /m,
      );
      assert.equal(await guest.exists('/etc/dbus-1/system.d/org.vgpu.Agent1.conf'), false);
      assert.equal(await guest.exists('/usr/share/man/man8/vgpu-agent.8'), false);
      // Where Cockpit is installed, it finds the page.
      assert.equal(await guest.exists('/usr/share/cockpit/vgpu-agent/page.js'), true);
      assert.match(await guest.must('dpkg', '-S', '/usr/share/cockpit/vgpu-agent/page.js'), /^vgpu-agent:/);
      assert.equal(await complaints(guest), '');
      const asked = await guest.runWith({ user: 'nobody' }, 'vgpu-agent', 'status', '--json');
      assert.equal(at(JSON.parse(asked.stdout), 'service', 'state'), 'settled', asked.stderr);
      assert.match(
        await guest.must('journalctl', '-x', '-u', 'vgpu-agent', '--no-pager', '-n', '200'),
        /^░░ |^-- /m,
      );
    });

    test('with the service an upgrade follows its rules: the consumer is restarted, and the GPU stays confirmed', async () => {
      const [start, pid] = [await consumer(), await guest.property('vgpu-agent', 'MainPID')];
      await mustApt(guest, 'install', '--allow-downgrades', `vgpu-agent=${version}`);
      assert.notEqual(await guest.property('vgpu-agent', 'MainPID'), pid, 'the new program runs');
      await until('the service has restarted the consumer', 60_000, async () =>
        (await consumer()) === start ? undefined : true,
      );
      await settledOnGpu(guest);
      const installed = String(at(documentOf(await guest.agent('version', '--json')), 'installed'));
      const main = Number(await guest.property('ollama', 'MainPID'));
      const loaded = (await consumerProcesses(guest)).find(({ pid }) => pid === main)?.libraries ?? [];
      assert.ok(loaded.includes(`/opt/vgpu/versions/${installed}/libcuda.so.1`), loaded.join());
      const others = loaded.filter((file) => /^\/opt\/vgpu\//.test(file) && !file.includes(installed));
      assert.deepEqual(others, [], 'nothing of the former version');
    });

    test('a removal stops, and says why, when the agent cannot take its changes back', async () => {
      const manifest = '/var/lib/vgpu-agent/manifest.json';
      const text = await guest.read(manifest);
      await guest.write(manifest, 'spoilt');
      const ran = await apt(guest, 'remove', 'vgpu-agent');
      assert.notEqual(ran.code, 0);
      assert.match(ran.stdout + ran.stderr, /not removed: "vgpu-agent uninstall --all" failed/);
      await guest.write(manifest, text, 0o644);
      assert.equal(await stateOf(guest, 'vgpu-agent'), 'install ok installed');
      await settledOnGpu(guest);
    });

    test('apt remove uninstalls first: the consumer runs as before', async () => {
      await mustApt(guest, 'remove', 'vgpu-agent');
      await assertRunsWithoutShim(guest);
      for (const path of [
        '/opt/vgpu',
        '/etc/vgpu',
        '/usr/lib/vgpu-agent',
        '/etc/systemd/system/vgpu-agent.service',
      ]) {
        assert.equal(await guest.exists(path), false, path);
      }
      assert.equal(await guest.property('vgpu-agent', 'LoadState'), 'not-found');
      assert.equal(
        await guest.exists('/etc/vgpu-agent/agent.json'),
        true,
        'edited by a person: purge takes it',
      );
    });

    test('purge takes edited configuration too, and leaves the tree as it was', async () => {
      // As "host install" wrote them and "host uninstall" left them, because a person edited one; the other is his own.
      const [edited, own] = ['/etc/vgpu/hostd.conf', '/etc/default/vgpu-hostd'];
      await guest.must('mkdir', '-p', '/etc/vgpu');
      await guest.write(
        edited,
        '# Written by vgpu-agent host install. Taken away by: ...\nallow any memory=1G\n',
      );
      await guest.write(own, 'VGPU_DEVICE=cuda\n');
      await mustApt(guest, 'purge', 'vgpu-agent');
      assert.equal(await guest.read(own), 'VGPU_DEVICE=cuda\n');
      await guest.must('rm', own);
      assert.deepEqual(await left(bareGuest, guest), []);
      await mustApt(serving, 'remove', 'vgpu-hostd');
      assert.equal(await serving.property('vgpu-hostd.socket', 'LoadState'), 'not-found');
      assert.equal(await serving.exists('/run/vgpu/hostd.sock'), false);
      await serving.must('mkdir', '-p', '/etc/vgpu');
      await serving.write('/etc/vgpu/hostd.conf', 'allow any memory=1G\n');
      await mustApt(serving, 'purge', '--autoremove', 'vgpu-hostd');
      assert.deepEqual(await left(bareHost, serving), []);
    });
  });
}

/** A directory that dpkg made on the way to our files. */
function onlyDirectory(line: string): boolean {
  return /^[+~] \/usr\/(lib|share)(\/(man|doc|lintian|bash-completion|zsh|fish|dbus-1|polkit-1|systemd|cockpit)(\/[a-z0-9_.-]+)?)?(:|$)/.test(
    line,
  );
}
