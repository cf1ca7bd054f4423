/** A virtual machine that is paused, saved to a file and restored, or rebooted from inside. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { builtFile, type Host, scratchDirectory, sessionsNow, until } from '../shim_host.js';
import { type Machines, type Running, startMachines, type Vm, whyNoMachine } from './machine.js';

const LIMIT = 120_000;
/**
 * Longer than the 10 s after which an end that waits for a sign of life gives up, and than the 12 s after which a
 * host sends one to a guest that is silent. VGPU_TEST_LONG=1: than the 48 s to the third of them, too.
 */
const PAUSE_MS = process.env['VGPU_TEST_LONG'] === '1' ? 61_000 : 17_000;

function ticks(machine: Running): number {
  return [...machine.console().matchAll(/^tick \d+$/gm)].length;
}

async function goesOn(machine: Running, what: string): Promise<void> {
  const now = ticks(machine);
  await until(what, () => ticks(machine) > now + 2, LIMIT);
}

describe('a virtual machine whose program uses the stream', { skip: whyNoMachine }, () => {
  const scratch = scratchDirectory();
  let machines: Machines | undefined;
  let host: Host;
  let vm: Vm;
  let running: Running;
  before(async () => {
    machines = await startMachines(scratch.path, 1, {
      programs: [builtFile('programs/vm_memory')],
      reconnect: 240,
    });
    ({ host } = machines);
    const [first] = machines.vms;
    assert.ok(first !== undefined);
    vm = first;
    running = await vm.start(['VGPU_RECONNECT=240 /bin/vm_memory works_on'], false);
    await running.shows(/over the socket/);
    await running.shows(/tick 3\n/);
  });
  after(async () => {
    await machines?.stop();
    scratch.remove();
  });

  it('goes on after a pause longer than the time for a sign of life', async () => {
    await running.monitor('stop');
    const paused = ticks(running);
    await new Promise((go) => setTimeout(go, PAUSE_MS));
    assert.ok(ticks(running) <= paused + 1, 'it was paused');
    await running.monitor('cont');
    await goesOn(running, 'the paused one to go on');
    assert.doesNotMatch(running.console(), /^lost$/m);
    assert.equal(sessionsNow(host), 1);
  });

  it('goes on, in the same session, in another qemu that continues a saved state', async () => {
    await vm.save(running, `${scratch.path}/saved`);
    await host.logged(/session 1: the connection broke; waiting 240 s for its guest/);
    const before = ticks(running);
    running = await vm.restore(`${scratch.path}/saved`, false);
    // Not the console: a message of the guest's kernel can cut a line of it in two.
    await host.logged(/session 1: its guest (?:is back after \d+ ms|did not come back)/);
    await goesOn(running, 'the restored one to go on');
    assert.ok(ticks(running) > before, 'it computes');
    assert.doesNotMatch(running.console(), /^lost$/m);
    assert.equal([...host.log().matchAll(/libcuda vm_memory .* begins/g)].length, 1, 'one session');
    assert.equal(sessionsNow(host), 1);
  });
});

describe('a virtual machine that is rebooted from inside', { skip: whyNoMachine }, () => {
  const scratch = scratchDirectory();
  let machines: Machines | undefined;
  after(async () => {
    await machines?.stop();
    scratch.remove();
  });

  it('ends its sessions before it is down, and computes again when it is up', async () => {
    machines = await startMachines(scratch.path, 1, { programs: [builtFile('programs/vm_memory')] });
    const { host, vms } = machines;
    const commands = [
      '& /bin/vm_memory works_on',
      '& VGPU_VM_MEMORY=none /bin/vm_memory works_on',
      'seconds 8',
      'reboot',
    ];
    const running = await vms[0]?.start(commands);
    assert.ok(running !== undefined);
    await running.shows(/vm: reboots\n/, LIMIT);
    await until('its sessions to end', () => sessionsNow(host) === 0, LIMIT);
    const shown = running.console();
    assert.ok(!/reboots\n(?:.*\n)*vm: kernel/.test(shown), 'they ended before it was up again');
    for (const way of ["through the VM's shared memory", 'over the socket'])
      assert.match(shown, new RegExp(`1 device\\(s\\), ${way}`));
    assert.match(shown, /tick 2\n/);
    await running.shows(/vm: reboots\n(?:.*\n)*vm: kernel(?:.*\n)*tick 2\n/, LIMIT);
    assert.equal(sessionsNow(host), 2);
    running.signal('SIGKILL');
  });
});
