/** Control groups of workers, on a kernel with cgroups of version 2: that of a virtual machine. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { testRoot, whyNoRoot } from '../../guest/support/roots.js';
import { ROOT } from '../cuda/private_programs.js';
import { builtFile, SHIM, scratchDirectory, until } from '../shim_host.js';
import { type HostMachine, startHostMachine } from './host_machine.js';
import { startMachine, whyNoMachine } from './machine.js';

const MIB = 1 << 20;
const GROUPS = '/sys/fs/cgroup';

describe('vgpu-hostd with --worker-groups', { skip: whyNoMachine }, () => {
  const scratch = scratchDirectory();
  let machine: HostMachine;
  let hostd = 0;

  before(async () => {
    machine = await startHostMachine(scratch.path, {
      modules: [],
      programs: ['/bin/cat', '/bin/ls', '/bin/mkdir', '/bin/mount', builtFile('programs/vm_memory')],
      files: [{ name: 'run/hostd.conf', content: Buffer.from('allow unix memory=64M\n') }],
    });
    await machine.run(`/bin/mount -t cgroup2 none ${GROUPS}`);
    hostd = await machine.beside(
      '/bin/vgpu-hostd --device software --listen unix:/run/s --config /run/hostd.conf --worker-groups',
    );
    await machine.shows(/listening on unix/);
  });
  after(() => {
    machine.stop();
    scratch.remove();
  });

  it('limits threads and memory of a worker by a group of its own, and removes it', async () => {
    const guest = await machine.beside('VGPU_HOST=unix:/run/s /bin/vm_memory works_on');
    await machine.shows(/tick 2\n/);
    const worker = /session 1: .* worker (\d+)/.exec(machine.console())?.[1];
    const group = `${GROUPS}/worker-${hostd}-0`;
    assert.match(
      await machine.run(`/bin/cat ${group}/cgroup.procs ${group}/pids.max ${group}/memory.max`),
      new RegExp(`^${worker}\n512\n${64 * MIB + 1024 * MIB}\n`, 'm'),
    );
    assert.match(
      await machine.run(`/bin/cat ${GROUPS}/vgpu-daemon/cgroup.procs`),
      new RegExp(`^${hostd}\n`, 'm'),
    );
    machine.send(`kill 9 ${guest}`);
    await until('the session to end', () => /session 1: ended/.test(machine.console()), 60_000);
    assert.doesNotMatch(await machine.run(`/bin/ls ${GROUPS}`), /worker-/);
  });
});

/** The steps of a machine whose systemd runs the daemon's unit. Each prints its exit status. */
const script = `#!/bin/bash
exec >/dev/ttyS0 2>&1
step() { "$@" >/run/said 2>&1; local status=$?; cat /run/said; echo "vm: exit $status of $*"; }
export VGPU_HOST=unix:/run/vgpu/hostd.sock
group=/sys/fs/cgroup/system.slice/vgpu-hostd.service
serves() { timeout 60 /test/stranger endless >/run/launched & for i in $(seq 150); do [ -s /run/launched ] && break; sleep 0.2; done
  cat $group/worker-*-0/pids.max; local status=$?; kill $!; wait $!; rm /run/launched; return $status; }
ends() { for i in $(seq 100); do [ -e $group/worker-*-0 ] || return 0; sleep 0.1; done; return 1; }
step systemctl start vgpu-hostd.service
step serves
step ends
step systemctl reload vgpu-hostd.service
step vgpu-hostd hand-over
step serves
step systemctl kill --kill-whom=main -s KILL vgpu-hostd.service
sleep 2
step serves
step systemctl restart vgpu-hostd.service
step serves
journalctl -u vgpu-hostd -o cat --no-pager | grep -c 'no control groups'
echo 'vm: done'
systemctl poweroff --force --force
`;

it('the unit delegates its group, and goes on after a reload, a hand-over, a crash and a restart', {
  skip:
    whyNoMachine ||
    whyNoRoot('bookworm') ||
    (process.getuid?.() === 0 ? false : 'needs root') ||
    (process.env['VGPU_TEST_LONG'] === '1' ? false : 'minutes: VGPU_TEST_LONG=1'),
}, async (t) => {
  const scratch = scratchDirectory();
  t.after(() => scratch.remove());
  const tree = path.join(scratch.path, 'tree');
  execFileSync('cp', ['-a', testRoot('bookworm'), tree]);
  const units = path.join(tree, 'etc/systemd/system');
  const wants = path.join(units, 'multi-user.target.wants');
  const copy = (from: string, to: string): void => cpSync(from, path.join(tree, to), { dereference: true });
  writeFileSync(path.join(tree, 'etc/machine-id'), `${'0'.repeat(31)}1\n`);
  writeFileSync(path.join(tree, 'etc/fstab'), '');
  mkdirSync(path.join(tree, 'test'));
  mkdirSync(wants, { recursive: true });
  for (const name of ['vgpu-hostd.service', 'vgpu-hostd.socket', 'vgpu-hostd-driver.service'])
    copy(path.join(ROOT, 'units', name), `etc/systemd/system/${name}`);
  copy(builtFile('vgpu-hostd'), 'usr/bin/vgpu-hostd');
  copy(builtFile('programs/stranger'), 'test/stranger');
  copy(path.join(SHIM, 'libcuda.so.1'), 'usr/lib/x86_64-linux-gnu/libcuda.so.1');
  const loaded = execFileSync('ldd', [builtFile('vgpu-hostd')], { encoding: 'utf8' });
  for (const [, library = ''] of loaded.matchAll(/=> (\/\S*\/lib(?:jansson|lz4|seccomp|zstd)\S*)/g))
    copy(library, `usr/lib/x86_64-linux-gnu/${path.basename(library)}`);
  writeFileSync(path.join(tree, 'test/run'), script, { mode: 0o755 });
  writeFileSync(
    path.join(units, 'test.service'),
    '[Service]\nType=oneshot\nExecStart=/test/run\nTimeoutStartSec=infinity\n',
  );
  symlinkSync('../test.service', path.join(wants, 'test.service'));
  rmSync(path.join(units, 'default.target'), { force: true });
  symlinkSync('/lib/systemd/system/multi-user.target', path.join(units, 'default.target'));
  symlinkSync('/dev/null', path.join(units, 'serial-getty@ttyS0.service'));
  const disk = path.join(scratch.path, 'disk');
  execFileSync('/usr/sbin/mkfs.ext4', ['-q', '-d', tree, disk, '2G']);
  rmSync(tree, { recursive: true });
  const machine = await startMachine(scratch.path, { memory: 1024, disk });
  t.after(() => machine.stop());
  const console = await machine.boot([], false, 300_000);
  const statuses = [...console.matchAll(/^vm: exit (\d+) of (.*)$/gm)].map(([, status]) => status);
  assert.deepEqual(statuses, Array(10).fill('0'), console);
  assert.equal([...console.matchAll(/^512$/gm)].length, 4, console);
  assert.match(console, /^0\nvm: done$/m);
});
