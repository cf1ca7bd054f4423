/**
 * A host and its guests on one kernel that has vsock's loopback: the daemon's own vsock listener, which sees each guest's
 * CID. The kernel is that of a virtual machine, because the one here may have no vsock.
 */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { builtFile, scratchDirectory, until } from '../shim_host.js';
import { type HostMachine, startHostMachine } from './host_machine.js';
import { whyNoMachine } from './machine.js';

const LIMIT = 60_000;
const LOCAL = 'VGPU_HOST=vsock:1:14833';
const CONTROL = '--control /run/control';
const CONF = '/run/hostd.conf';

describe('vgpu-hostd at a vsock socket of its own kernel', { skip: whyNoMachine }, () => {
  const scratch = scratchDirectory();
  let machine: HostMachine;
  let hostd: number;

  /** Waits for what the console shows from now on, while and after `doing` it. */
  const showsNext = async (doing: () => unknown, ...patterns: RegExp[]): Promise<string> => {
    const begin = machine.console().length;
    const shown = (): string => machine.console().slice(begin);
    await doing();
    await until(
      `${patterns.join(', ')} in the machine`,
      () => patterns.every((one) => one.test(shown())),
      LIMIT,
    ).catch((error: unknown) => assert.fail(`${String(error)}\n${shown()}`));
    return shown();
  };
  const startHostd = async (port = 14833): Promise<void> => {
    const line = `/bin/vgpu-hostd --device software --listen vsock:${port} ${CONTROL} --config ${CONF}`;
    await showsNext(async () => {
      hostd = await machine.beside(line);
    }, /device 0:/);
  };
  const useRules = async (rules: string): Promise<void> => {
    await machine.run(`/bin/cp /conf/${rules} ${CONF}`);
    assert.match(await machine.run(`/bin/vgpu-hostd reload ${CONTROL}`), /vm: exit 0/);
  };
  const startGuest = async (): Promise<number> => {
    let pid = 0;
    await showsNext(async () => {
      pid = await machine.beside(`${LOCAL} /bin/vm_memory works_on`);
    }, /tick 2\n/);
    return pid;
  };

  before(async () => {
    const allow = Buffer.from('allow vsock cid=1 sessions=8\ndeny any\n');
    machine = await startHostMachine(scratch.path, {
      modules: ['vsock_loopback'],
      programs: ['/bin/cp', ...['programs/vm_memory', 'programs/crowd'].map(builtFile)],
      files: [
        { name: 'run/hostd.conf', content: allow },
        { name: 'conf/allow', content: allow },
        { name: 'conf/deny', content: Buffer.from('allow vsock cid=3-4294967295\nallow unix\ndeny any\n') },
      ],
    });
    await startHostd();
  });
  after(() => {
    if (process.env['VGPU_TEST_TRANSCRIPT'] !== undefined) process.stderr.write(machine.console());
    machine.stop();
    scratch.remove();
  });

  it('serves programs that come over CID 1, or over CID 2, and sees both as CID 1', async () => {
    for (const cid of [1, 2]) {
      const shown = await machine.run(`VGPU_HOST=vsock:${cid}:14833 /bin/ptx_guest /ptx 80`);
      assert.match(shown, new RegExp(`at vsock:${cid}:14833: 1 device\\(s\\), over the socket`));
      assert.match(shown, /session \d+: vsock, cid 1, port \d+/);
      assert.match(shown, /vector_add 0 wrong 0/);
      assert.match(shown, /fault 700 again 700/);
      assert.match(shown, /vm: exit 0/);
    }
  });

  it('turns away a CID that no rule allows, and serves it again after the rules were changed', async () => {
    await useRules('deny');
    const refused = await machine.run(`${LOCAL} /bin/ptx_guest /ptx 80`);
    assert.match(refused, /begin (?!0\n)\d+/);
    assert.match(refused, /no host: it refused the session: its hostd\.conf does not allow this guest/);
    assert.match(refused, /refused vsock, cid 1/);
    assert.doesNotMatch(refused, /vector_add 0/);
    await useRules('allow');
    assert.match(await machine.run(`${LOCAL} /bin/ptx_guest /ptx 80`), /vector_add 0 wrong 0/);
  });

  it('ends the session of a killed program at once, because the kernel closes for it', async () => {
    const guest = await startGuest();
    const shown = await showsNext(() => machine.send(`kill 9 ${guest}`), /session \d+: ended/);
    assert.doesNotMatch(shown, /waiting \d+ s for its guest/);
  });

  it('hands its listener over to a successor, which serves old and new guests', async () => {
    const guest = await startGuest();
    const told = await showsNext(
      () => machine.run(`/bin/vgpu-hostd hand-over ${CONTROL}`),
      /process \d+, serves now/,
      /tick \d+\n[\s\S]*tick \d+\n/,
    );
    assert.doesNotMatch(told, /^lost$/m);
    hostd = Number(/process (\d+), serves now/.exec(told)?.[1]);
    assert.match(await machine.run(`${LOCAL} /bin/ptx_guest /ptx 80`), /vector_add 0 wrong 0/);
    await showsNext(() => machine.send(`kill 9 ${guest}`), /session \d+: ended/);
  });

  it('is found again by a program that lost it, at the same port, after it was killed', async () => {
    const guest = await startGuest();
    await showsNext(() => machine.send(`kill 9 ${hostd}`), /connecting again/);
    // The new one does not know the session: the program is told so, and begins another one.
    await showsNext(startHostd, /the host does not know the session any more/, /^back$[\s\S]*tick \d+\n/m);
    await showsNext(() => machine.send(`kill 9 ${guest}`), /session \d+: ended/);
  });

  it('lets a crowd wait while it is busy, where the kernel would refuse what does not fit into its queue', async () => {
    machine.send(`kill 19 ${hostd}`);
    assert.match(await machine.run(`${LOCAL} /bin/crowd 300`), /connected 300, refused 0 /);
    machine.send(`kill 18 ${hostd}`);
    assert.match(await machine.run(`${LOCAL} /bin/ptx_guest /ptx 80`), /vector_add 0 wrong 0/);
  });
});
