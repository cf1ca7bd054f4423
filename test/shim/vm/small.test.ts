/** A virtual machine with little memory of its host, and a user who may not open it. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { builtFile, scratchDirectory, sessionsNow, until } from '../shim_host.js';
import { type Machines, type Running, startMachines, whyNoMachine } from './machine.js';

const LIMIT = 120_000;
/** The rings of one session take 4 MiB and 64 KiB, and the first 64 KiB are no place. */
const SHARED = 16;
const FIT = 3;
const OTHERS = 2;

describe('a virtual machine with little memory of its host', { skip: whyNoMachine }, () => {
  const scratch = scratchDirectory();
  let machines: Machines | undefined;
  let running: Running;
  const count = (pattern: RegExp): number => [...running.console().matchAll(pattern)].length;

  before(async () => {
    machines = await startMachines(scratch.path, 1, {
      programs: [builtFile('programs/vm_memory')],
      shared: SHARED,
    });
    // One after the other: under emulation, several that begin at once may exceed the time for a greeting.
    const one = ['& /bin/vm_memory works_on', 'seconds 3'];
    const started = await machines.vms[0]?.start([
      ...['& as 65534 /bin/vm_memory works_on', 'seconds 4'],
      ...Array.from({ length: FIT + OTHERS }, () => one).flat(),
      'seconds 3600',
    ]);
    assert.ok(started !== undefined);
    running = started;
  });
  after(async () => {
    await machines?.stop();
    scratch.remove();
  });

  it('leaves a user who may not open it to the socket, and tells the reason', async () => {
    await running.shows(/over the socket\n/, LIMIT);
    assert.match(
      running.console(),
      /shared memory \/sys\/\S+\/resource2 cannot be opened: Permission denied/,
    );
    assert.equal(count(/through the VM's shared memory/g), 0);
    await running.shows(/tick 2\n/, LIMIT);
  });

  it('gives it to as many sessions as fit, and leaves the others to the socket', async () => {
    await until('all to begin', () => count(/: 1 device\(s\), /g) === 1 + FIT + OTHERS, LIMIT);
    assert.equal(count(/through the VM's shared memory/g), FIT, running.console());
    assert.equal(count(/all of it is in use; the socket carries the frames/g), OTHERS);
    assert.equal(machines === undefined ? 0 : sessionsNow(machines.host), 1 + FIT + OTHERS);
    await machines?.host.logged(/no room in the VM's shared memory of 16 MiB: the socket carries the frames/);
    await until('each to compute', () => count(/^tick 3$/gm) === 1 + FIT + OTHERS, LIMIT);
  });
});
