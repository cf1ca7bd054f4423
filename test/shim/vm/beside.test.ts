/** Two virtual machines beside each other, and what happens to one when the other, or the host, is lost. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, describe, it } from 'node:test';
import { runProgram } from '../cuda/private_programs.js';
import { builtFile, type Host, scratchDirectory, sessionsNow, signalOther, until } from '../shim_host.js';
import { type Machines, type Running, startMachines, whyNoMachine } from './machine.js';

const LIMIT = 120_000;
/** A proxy that is sent something before the VM has started its device again breaks. A host waits 12 s before it asks. */
const SLOW_MS = 17_000;

/** How often it has computed, and seen its bytes come back right. */
function ticks(machine: Running): number {
  return [...machine.console().matchAll(/^tick \d+$/gm)].length;
}

async function goesOn(machine: Running, what: string): Promise<void> {
  const now = ticks(machine);
  await until(what, () => ticks(machine) > now + 2, LIMIT);
}

describe('two virtual machines beside each other', { skip: whyNoMachine }, () => {
  const scratch = scratchDirectory();
  let machines: Machines | undefined;
  /** Daemons that took over from one that these tests have started. */
  const successors: number[] = [];
  let host: Host;
  let one: Running;
  let other: Running;
  before(async () => {
    machines = await startMachines(scratch.path, 2, { programs: [builtFile('programs/vm_memory')] });
    ({ host } = machines);
  });
  after(async () => {
    for (const pid of successors) signalOther(pid, scratch.path, 'SIGKILL');
    await machines?.stop();
    scratch.remove();
  });
  const start = async (which: number, ...cases: readonly string[]): Promise<Running> => {
    const vm = machines?.vms[which];
    assert.ok(vm !== undefined);
    return vm.start(cases.map((name) => `/bin/vm_memory ${name}`));
  };

  it('see their own memory, and not that of the other', async () => {
    one = await start(0, 'has_a_secret');
    await one.shows(/the secret is seen\n/);
    await one.shows(/tick 1\n/);
    other = await start(1, 'searches', 'works_on');
    await other.shows(/the secret is (?:not )?seen\n/);
    assert.match(other.console(), /the secret is not seen/);
    await goesOn(other, 'the other to compute');
    for (const machine of [one, other])
      assert.match(machine.console(), /through the VM's shared memory/, 'it is used by both');
    const secret = Buffer.alloc(4096, 0x5a);
    const [first, second] = (machines?.vms ?? []).map(({ memory }) => readFileSync(memory).includes(secret));
    assert.deepEqual({ first, second }, { first: true, second: false });
  });

  it('compute while the other is frozen, which continues afterwards', async () => {
    one.signal('SIGSTOP');
    const frozen = ticks(one);
    await goesOn(other, 'the other to compute');
    assert.ok(ticks(one) <= frozen + 1, 'it is frozen');
    one.signal('SIGCONT');
    await goesOn(one, 'the frozen one to go on');
    assert.doesNotMatch(one.console() + other.console(), /^lost$/m);
  });

  const placed = () => [...host.log().matchAll(/begins, in its VM's shared memory/g)].length;
  const lost = (machine: Running) => [...machine.console().matchAll(/^lost$/gm)].length;
  const comeBack = async (times: number): Promise<void> => {
    for (const machine of [one, other]) {
      await until('it to lose its host', () => lost(machine) >= times, LIMIT);
      await goesOn(machine, 'it to compute again');
    }
  };

  it('notice nothing of an upgrade of the host, and lose only the one that they were with', async () => {
    const before = placed();
    const told = await runProgram(
      builtFile('vgpu-hostd'),
      ['hand-over', '--control', `${scratch.path}/control`],
      { limit: 60_000 },
    );
    assert.equal(told.code, 0, told.stderr);
    successors.push(Number((await host.logged(/process (\d+), serves now/))[1]));
    for (const machine of [one, other]) {
      await goesOn(machine, 'it to compute on');
      assert.equal(lost(machine), 0);
    }
    host.signal('SIGKILL');
    await comeBack(1);
    await until('both to be in shared memory of the new one', () => placed() === before + 2, LIMIT);
  });

  it('lose a host that is killed, and come back to the next one, to shared memory too', async () => {
    assert.ok(signalOther(successors[0] ?? 0, scratch.path, 'SIGKILL'), 'it was there');
    for (const machine of [one, other]) await until('it to lose it', () => lost(machine) >= 2, LIMIT);
    assert.ok(machines !== undefined);
    host = await machines.startHostAgain();
    await comeBack(2);
    await until('both to be in shared memory', () => placed() === 2, LIMIT);
  });

  it('leave nothing at the host when they are killed, and do not disturb the other', async () => {
    one.signal('SIGKILL');
    await until('its session to end', () => sessionsNow(host) === 1, LIMIT);
    await goesOn(other, 'the other to compute');
    assert.equal(lost(other), 2, 'not again');
  });

  it('begin again after a reset and a slow start, and the sessions from before it end', async () => {
    const booted = () => [...other.console().matchAll(/^vm: run /gm)].length;
    const before = booted();
    await other.monitor('system_reset');
    await other.monitor('stop');
    await new Promise((go) => setTimeout(go, SLOW_MS));
    await other.monitor('cont');
    await until('it to boot again', () => booted() > before + 1, LIMIT);
    await other.shows(
      /^vm: run \/bin\/vm_memory works_on\n(?:.*\n)*tick 1\n(?:.*\n)*vm: run \/bin\/vm_memory works_on\n(?:.*\n)*tick 3\n/m,
    );
    await until('only its new session to be there', () => sessionsNow(host) === 1, LIMIT);
  });
});
