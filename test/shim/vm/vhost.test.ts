/**
 * Virtual machines with KVM whose vsock is the kernel's vhost-vsock. Their host is a virtual machine with emulated AMD-V,
 * because the kernel here may have neither. VGPU_TEST_LONG=1 only.
 */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { builtFile, scratchDirectory, sleep, until } from '../shim_host.js';
import { type HostMachine, startHostMachine } from './host_machine.js';
import { type Inner, innerFiles, NESTED, startInner } from './inner_machine.js';
import { whyNoMachine } from './machine.js';

const LIMIT = 120_000;
const CONTROL = '--control /run/control';
const CONF = '/run/hostd.conf';
const MEMORY = { file: '/dev/shm/vgpu-33', megabytes: 32 };
const LONG = process.env['VGPU_TEST_LONG'] === '1';
/** How long a session waits for its guest: longer than a busy machine needs to save and restore one. */
const RECONNECT_S = 240;
/** Longer than a session is usually kept. */
const PAUSE_MS = 61_000;

const ticks = (console: string): number => [...console.matchAll(/^tick \d+$/gm)].length;

/** Machines in a machine take both processors, and other tests of machines that run beside them then wait too long. */
const skip = LONG ? whyNoMachine : 'minutes of two processors: VGPU_TEST_LONG=1';

describe('virtual machines with the vhost-vsock of their host', { skip }, () => {
  const scratch = scratchDirectory();
  let host: HostMachine;
  let hostd: number;
  /** With CID 33: in it one program uses memory of its host, and one vsock. */
  let one: Inner;
  /** With CID 34. */
  let other: Inner;

  const hostShowsNext = async (doing: () => unknown, pattern: RegExp): Promise<string> => {
    const begin = host.console().length;
    const shown = (): string => host.console().slice(begin);
    await doing();
    await until(`${pattern} at the host`, () => pattern.test(shown()), LIMIT).catch((error: unknown) =>
      assert.fail(`${String(error)}\n${shown()}`),
    );
    return shown();
  };
  const startHostd = async (): Promise<void> => {
    await hostShowsNext(async () => {
      hostd = await host.beside(
        `/bin/vgpu-hostd --device software --listen vsock:14833 ${CONTROL} --config ${CONF}`,
      );
    }, /device 0:/);
  };
  const sessions = async (machine: Inner): Promise<readonly string[]> =>
    [...(await machine.run('/bin/vgpu-probe --sessions')).matchAll(/"carrier":"([^"]*)"/g)].map(
      ([, carrier = '']) => carrier,
    );
  const goesOn = async (machine: Inner, what: string): Promise<void> => {
    const now = ticks(machine.console());
    await until(what, () => ticks(machine.console()) > now + 4, LIMIT).catch((error: unknown) =>
      assert.fail(`${String(error)}\n${machine.console()}\nits host:\n${host.console()}`),
    );
  };

  before(async () => {
    const first = `allow vsock cid=33 reconnect=${RECONNECT_S} vm-memory=${MEMORY.file}`;
    const programs = ['programs/vm_memory'].map(builtFile);
    host = await startHostMachine(scratch.path, {
      memory: 1536,
      modules: NESTED.modules,
      programs: [...NESTED.programs, '/bin/cp'],
      files: [
        ...innerFiles(programs),
        { name: 'run/hostd.conf', content: Buffer.from(`${first}\ndeny any\n`) },
        {
          name: 'conf/both',
          content: Buffer.from(`${first}\nallow vsock cid=34 reconnect=5\ndeny any\n`),
        },
      ],
    });
    await startHostd();
    [one, other] = await Promise.all([
      startInner(host, { cid: 33, port: 2, shared: MEMORY }),
      startInner(host, { cid: 34, port: 3 }),
    ]);
  });
  after(() => {
    if (process.env['VGPU_TEST_TRANSCRIPT'] !== undefined)
      process.stderr.write(`${host.console()}\n33:\n${one.console()}\n34:\n${other.console()}`);
    host.stop();
    scratch.remove();
  });

  it('compute over vsock:2:14833, and through memory of their host, which knows them by their CIDs', async () => {
    for (const [settings, way] of [
      ['', "through the VM's shared memory"],
      ['VGPU_VM_MEMORY=none ', 'over the socket'],
    ]) {
      const shown = await one.run(`${settings}/bin/ptx_guest /ptx 80`);
      assert.match(shown, new RegExp(`at vsock:2:14833: 1 device\\(s\\), ${way}`));
      assert.match(shown, /vector_add 0 wrong 0/);
      assert.match(shown, /fault 700 again 700/);
      assert.match(shown, /vm: exit 0/);
    }
    assert.equal([...host.console().matchAll(/session \d+: vsock, cid 33, port \d+/g)].length, 2);
  });

  it('are served only if a rule allows their CID', async () => {
    assert.match(await other.run('/bin/ptx_guest /ptx 80'), /its hostd.conf does not allow this guest/);
    assert.match(host.console(), /refused vsock, cid 34, /);
    await host.run(`/bin/cp /conf/both ${CONF}`);
    await host.run(`/bin/vgpu-hostd reload ${CONTROL}`);
    assert.match(await other.run('/bin/ptx_guest /ptx 80'), /vector_add 0 wrong 0/);
  });

  it('see their own sessions, and none of the other', async () => {
    await one.beside(`VGPU_RECONNECT=${RECONNECT_S} /bin/vm_memory works_on`);
    await one.beside(`VGPU_RECONNECT=${RECONNECT_S} VGPU_VM_MEMORY=none /bin/vm_memory works_on`);
    await other.beside('/bin/vm_memory works_on');
    await one.shows(/(tick 2\n[\s\S]*){2}/);
    await other.shows(/tick 2\n/);
    assert.deepEqual((await sessions(one)).toSorted(), ['vm-memory', 'vsock']);
    assert.deepEqual(await sessions(other), ['vsock']);
  });

  it('come back to a daemon that replaces one that was killed', async () => {
    await hostShowsNext(() => host.send(`kill 9 ${hostd}`), /vm: \d+ ended -9/);
    await startHostd();
    await one.shows(/^back$[\s\S]*^back$/m);
    await other.shows(/^back$/m);
    await goesOn(one, 'the one to compute again');
    await goesOn(other, 'the other to compute again');
    assert.deepEqual((await sessions(one)).toSorted(), ['vm-memory', 'vsock']);
  });

  it('go on with the successor of their daemon', async () => {
    const told = await hostShowsNext(
      () => host.run(`/bin/vgpu-hostd hand-over ${CONTROL}`),
      /process \d+, serves now/,
    );
    hostd = Number(/process (\d+), serves now/.exec(told)?.[1]);
    await goesOn(one, 'the one to go on');
    await goesOn(other, 'the other to go on');
    assert.equal([...one.console().matchAll(/^lost$/gm)].length, 2, 'not again');
  });

  it('go on after a pause, in the same sessions', async () => {
    await one.monitor('stop');
    const paused = ticks(one.console());
    await sleep(PAUSE_MS);
    assert.ok(ticks(one.console()) <= paused + 2, 'it was paused');
    await goesOn(other, 'the other to compute meanwhile');
    await one.monitor('cont');
    await goesOn(one, 'the paused one to go on');
    assert.equal([...one.console().matchAll(/^lost$/gm)].length, 2, 'not again');
  });

  it('end their sessions after the time to reconnect when they are killed', async () => {
    const shown = await hostShowsNext(() => host.send(`kill 9 ${other.pid}`), /its guest did not come back/);
    assert.match(shown, /the connection broke; waiting 5 s for its guest/);
    await goesOn(one, 'the one to compute');
  });

  it('go on over vsock in another qemu that continues a saved state, and begin again in memory of the host', async () => {
    await one.monitor('migrate "exec:cat >/run/saved"');
    let state = '';
    for (const end = Date.now() + LIMIT; !state.includes('completed') && Date.now() < end; )
      state = await one.monitor('info migrate');
    assert.match(state, /Migration status: completed/);
    const waiting = /session \d+: the connection broke; waiting \d+ s for its guest/;
    await hostShowsNext(() => one.monitor('quit'), new RegExp(`vm: ${one.pid} ended 0`));
    assert.match(host.console(), waiting);
    const now = one.console().length;
    const shown = await hostShowsNext(async () => {
      one = await startInner(host, { cid: 33, port: 2, shared: MEMORY, saved: '/run/saved' });
    }, /its guest is back after \d+ ms/);
    await one.shows(/session \d+ continues after \d+ ms/);
    // The host has written into the memory after the state was saved. It sees that, and does not go on with what is there.
    await one.shows(/^lost$(?:[\s\S]*^lost$){2}[\s\S]*through the VM's shared memory[\s\S]*^back$/m);
    assert.match(shown + host.console(), /its rings were changed: the VM was restored/);
    assert.equal(
      [
        ...one
          .console()
          .slice(now)
          .matchAll(/^lost$/gm),
      ].length,
      1,
      'only the one in memory',
    );
    await goesOn(one, 'both to go on');
  });

  it('end the sessions from before a reset', async () => {
    await one.showsNext(
      () => hostShowsNext(() => one.monitor('system_reset'), /(session \d+: ended[\s\S]*){2}/),
      /vm: listens\n/,
    );
    assert.match(await one.run('/bin/ptx_guest /ptx 80'), /vector_add 0 wrong 0/);
  });
});
