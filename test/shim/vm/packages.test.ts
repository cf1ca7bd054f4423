/** The packages in a real virtual machine with Debian 12, and the host's package outside of it: over vsock. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { it } from 'node:test';
import { whyNoConsumer } from '../../guest/support/consumer.js';
import {
  buildPackages,
  nextVersion,
  whyNoDependencies,
  whyNoPackages,
} from '../../guest/support/packages.js';
import { testRoot, whyNoRoot } from '../../guest/support/roots.js';
import { ROOT } from '../cuda/private_programs.js';
import { scratchDirectory } from '../shim_host.js';
import { startMachine, whyNoMachine } from './machine.js';

const LIMIT = 540_000;
const skip =
  whyNoMachine ||
  whyNoRoot('bookworm') ||
  whyNoConsumer() ||
  whyNoPackages() ||
  whyNoDependencies('bookworm') ||
  (process.getuid?.() === 0 ? false : 'needs root') ||
  (process.env['VGPU_TEST_LONG'] === '1' ? false : 'minutes: VGPU_TEST_LONG=1');

/** The steps of the machine after it has booted. Each step prints its exit status. */
const script = `#!/bin/bash
exec >/dev/ttyS0 2>&1
step() { "$@" >/run/said 2>&1; local status=$?; cat /run/said; echo "vm: exit $status of $*"; }
mkdir -p /run/host && echo vm >/run/host/container-manager
rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*
echo 'deb [signed-by=/packages/vgpu-agent.asc] file:/packages ./' >/etc/apt/sources.list.d/test.list
export DEBIAN_FRONTEND=noninteractive
step /test/scripts/lib/install-consumer 3
step apt-get -qq update
step apt-get -qq install $(apt-cache madison vgpu-agent | awk '$3 != "${nextVersion}" { print "vgpu-agent=" $3 }')
step vgpu-agent install --host vsock:2:14833 --yes
step vgpu-agent verify
step apt-get -qq upgrade
step systemctl restart ollama
step vgpu-agent verify
step vgpu-agent --version
step apt-get -qq purge vgpu-agent
step test ! -e /opt/vgpu
step systemctl is-active ollama
echo 'vm: done'
systemctl poweroff --force --force
`;

const unit = `[Unit]
After=dbus.service
[Service]
Type=oneshot
ExecStart=/test/run
TimeoutStartSec=infinity
[Install]
WantedBy=multi-user.target
`;

/** Debian 12 with the packages, the stand-in for Ollama, and the script as a service; as an image of ext4. */
function makeDisk(directory: string, packages: string): string {
  const tree = path.join(directory, 'tree');
  execFileSync('cp', ['-a', testRoot('bookworm'), tree]);
  const units = path.join(tree, 'etc/systemd/system');
  rmSync(path.join(tree, 'etc/machine-id'), { force: true });
  writeFileSync(path.join(tree, 'etc/machine-id'), `${'0'.repeat(31)}1\n`);
  writeFileSync(path.join(tree, 'etc/fstab'), '');
  cpSync(packages, path.join(tree, 'packages'), { recursive: true });
  for (const part of ['scripts/lib', 'build/consumer'])
    cpSync(path.join(ROOT, part), path.join(tree, 'test', part), { recursive: true });
  writeFileSync(path.join(tree, 'test/run'), script, { mode: 0o755 });
  writeFileSync(path.join(units, 'test.service'), unit);
  mkdirSync(path.join(units, 'multi-user.target.wants'), { recursive: true });
  symlinkSync('../test.service', path.join(units, 'multi-user.target.wants/test.service'));
  rmSync(path.join(units, 'default.target'), { force: true });
  symlinkSync('/lib/systemd/system/multi-user.target', path.join(units, 'default.target'));
  // No login: it would wait for the console's device.
  symlinkSync('/dev/null', path.join(units, 'serial-getty@ttyS0.service'));
  const disk = path.join(directory, 'disk');
  execFileSync('/usr/sbin/mkfs.ext4', ['-q', '-d', tree, disk, '2G']);
  rmSync(tree, { recursive: true });
  return disk;
}

it('the packages lead to a GPU verdict in a virtual machine over vsock, after an upgrade too, and purge takes it back', {
  skip,
}, async (t) => {
  const scratch = scratchDirectory();
  const source = await buildPackages();
  t.after(() => {
    source.remove();
    scratch.remove();
  });
  await source.complete('bookworm');
  const deb =
    readdirSync(source.directory).find((name) => name.startsWith(`vgpu-hostd_${nextVersion}_`)) ?? '';
  execFileSync('dpkg-deb', ['-x', path.join(source.directory, deb), path.join(scratch.path, 'host')]);
  const machine = await startMachine(scratch.path, {
    memory: 1024,
    disk: makeDisk(scratch.path, source.directory),
    daemon: path.join(scratch.path, 'host/usr/bin/vgpu-hostd'),
  });
  t.after(() => machine.stop());
  const console = await machine.boot([], false, LIMIT);
  if (process.env['VGPU_TEST_TRANSCRIPT'] !== undefined)
    process.stderr.write(`${console}\n${machine.host.log()}\n`);
  const statuses = [...console.matchAll(/^vm: exit (\d+) of (.*)$/gm)].map(
    ([, status, step]) => `${status} ${step}`,
  );
  assert.equal(statuses.length, 12, console);
  assert.deepEqual(
    statuses.filter((step) => !step.startsWith('0 ')),
    [],
    console,
  );
  assert.equal([...console.matchAll(/GPU \(simulated\)\S* {2}ollama\.service/g)].length >= 3, true, console);
  assert.match(console, new RegExp(`^${nextVersion}$`, 'm'));
  await machine.host.logged(/libcuda ollama \(guest pid \d+\) begins/);
});
