/** Control groups of workers, on a kernel with cgroups of version 2: that of a virtual machine. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { builtFile, scratchDirectory, until } from '../shim_host.js';
import { type HostMachine, startHostMachine } from './host_machine.js';
import { whyNoMachine } from './machine.js';

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
