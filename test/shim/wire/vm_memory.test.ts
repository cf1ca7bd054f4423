// Rings and pinned memory in memory that a VM has from its host. Here a file stands for the PCI device; a real VM is
// in ../vm.

import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import {
  closeSync,
  existsSync,
  openSync,
  readFileSync,
  readSync,
  rmSync,
  truncateSync,
  writeSync,
} from 'node:fs';
import { after, afterEach, beforeEach, describe, it } from 'node:test';
import { promisify } from 'node:util';
import {
  askAll,
  builtFile,
  forksWithoutSignals,
  type Host,
  isIdle,
  SHIM,
  type Shell,
  scratchDirectory,
  signalOther,
  startHost,
  startShell,
  until,
} from '../shim_host.js';
import { makeVmMemory, type VmMemory } from '../support/vm_memory.js';

const MIB = 1 << 20;
/** Where the first place begins (VGPU_VM_STEP): the rings of the first session. */
const PLACES = 65536;

describe("a VM's shared memory", () => {
  const scratch = scratchDirectory();
  let host: Host;
  let memory: VmMemory;
  let shells: Shell[] = [];
  /** Programs that write on, by their pid: the argument they have. */
  const writers = new Map<number, string>();

  const begin = async (megabytes: number): Promise<void> => {
    memory = makeVmMemory(scratch.path, megabytes);
    host = await startHost({ listen: `unix:${scratch.path}/s`, args: memory.args });
  };
  const open = (env: Readonly<Record<string, string>> = memory.env): Shell => {
    const shell = startShell({ VGPU_HOST: host.address, VGPU_LOG: 'stderr', ...env });
    shells.push(shell);
    return shell;
  };
  const compute = async (shell: Shell): Promise<void> => {
    await askAll(shell, ['init', 'retain 0', 'use 1']);
    const address = (await askAll(shell, ['alloc 300000'])).values[0] ?? '';
    await askAll(shell, [`trip ${address} 300000 7`]);
  };
  const environment = (): Record<string, string | undefined> => ({
    ...process.env,
    LD_LIBRARY_PATH: SHIM,
    VGPU_HOST: host.address,
    ...memory.env,
  });

  after(() => scratch.remove());
  beforeEach(() => {
    shells = [];
  });
  afterEach(async () => {
    for (const shell of shells) shell.kill();
    for (const [pid, how] of writers) signalOther(pid, how, 'SIGKILL');
    writers.clear();
    await host.stop();
    memory.remove();
  });

  it('carries the frames of a guest that can see it', async () => {
    await begin(64);
    const shell = open();
    await compute(shell);
    assert.match(shell.stderr(), /through the VM's shared memory/);
    await host.logged(/begins, in its VM's shared memory/);
    const probe = await promisify(execFile)(builtFile('vgpu-probe'), [], { env: environment() });
    assert.match(probe.stdout, /"carrier":"vm-memory"/);
  });

  it('that is full leaves a session to the socket, and is free again when a session ends', async () => {
    await begin(8);
    const first = open();
    await compute(first);
    const second = open();
    await compute(second);
    assert.match(second.stderr(), /over the socket/);
    await host.logged(/no room in the VM's shared memory of 8 MiB: the socket carries the frames/);
    await compute(first);
    const told = await promisify(execFile)(builtFile('vgpu-probe'), ['--sessions', '--host', host.address]);
    const ways = [...told.stdout.matchAll(/"carrier":"([^"]*)"/g)].map(([, way]) => way);
    assert.deepEqual(ways, ['vm-memory', 'unix'], 'the host says which is which');
    first.kill();
    second.kill();
    await until('both sessions to end', () => isIdle(host));
    const third = open();
    await compute(third);
    assert.match(third.stderr(), /through the VM's shared memory/);
  });

  it('keeps sessions apart: eight at a time compute right', async () => {
    await begin(64);
    const eight = Array.from({ length: 8 }, () => open());
    await Promise.all(eight.map(compute));
    for (const shell of eight) assert.match(shell.stderr(), /through the VM's shared memory/);
  });

  it('of another host is noticed, and the socket carries the frames', async () => {
    await begin(64);
    const other = makeVmMemory(scratch.path, 64);
    try {
      const shell = open(other.env);
      await compute(shell);
      assert.match(
        shell.stderr(),
        /shared memory cannot be used: none of this VM's has its mark; the socket carries/,
      );
      assert.match(shell.stderr(), /over the socket/);
    } finally {
      other.remove();
    }
  });

  it('has nothing left of a session that was killed when the next one begins', async () => {
    await begin(16);
    const holder = spawn(builtFile('programs/vm_memory'), ['holds'], {
      env: environment(),
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    if (holder.pid !== undefined) writers.set(holder.pid, 'holds');
    const ended = new Promise((resolve) => holder.once('close', resolve));
    await new Promise((resolve) => holder.stdout.once('data', resolve));
    const secret = Buffer.alloc(4096, 0x5a);
    assert.ok(readFileSync(memory.path).includes(secret), 'the secret lies in the shared memory');
    holder.kill('SIGKILL');
    await ended;
    await until('the session to end', () => isIdle(host));
    await promisify(execFile)(builtFile('programs/vm_memory'), ['finds_nothing'], { env: environment() });
    assert.ok(!readFileSync(memory.path).includes(secret), 'the secret is gone');
  });

  /** A program of programs/vm_memory.c that runs on, without its session: what it says when it is asked to end. */
  const startWriter = async (how: string): Promise<{ readonly pid: number; end(): Promise<string> }> => {
    const child = spawn(builtFile('programs/vm_memory'), [how], {
      env: environment(),
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    if (child.pid !== undefined) writers.set(child.pid, how);
    const closed = new Promise((resolve) => child.stdout.once('close', resolve));
    let output = '';
    child.stdout.on('data', (chunk: Buffer) => {
      output += chunk.toString();
    });
    await until('it to write', () => /writes \d+\n/.test(output), 20_000);
    const pid = Number(/writes (\d+)/.exec(output)?.[1]);
    writers.set(pid, how);
    return {
      pid,
      end: async () => {
        signalOther(pid, how, 'SIGTERM');
        await closed;
        return output.split('\n')[1] ?? '';
      },
    };
  };
  const keepsItsOwn = async (): Promise<void> => {
    await promisify(execFile)(builtFile('programs/vm_memory'), ['keeps_its_own'], { env: environment() });
  };

  describe('of a program that writes on without its session', () => {
    const lose: Readonly<Record<string, readonly [string, () => Promise<void>]>> = {
      'after its worker was killed': [
        'writes_on',
        async () => {
          process.kill(Number((await host.logged(/, worker (\d+)/))[1]), 'SIGKILL');
          await until('the session to end', () => isIdle(host));
        },
      ],
      'after its host was killed and started again': [
        'writes_on',
        async () => {
          const worker = Number((await host.logged(/, worker (\d+)/))[1]);
          host.signal('SIGKILL');
          await until('the worker to end', () => !existsSync(`/proc/${worker}`));
          await host.stop();
          rmSync(`${scratch.path}/s`, { force: true });
          host = await startHost({ listen: `unix:${scratch.path}/s`, args: memory.args });
        },
      ],
      'as a child whose parent has ended': [
        'child_writes_on',
        () => until('the session to end', () => isIdle(host)),
      ],
    };
    for (const [when, [how, happens]] of Object.entries(lose)) {
      const skip = how === 'child_writes_on' && forksWithoutSignals;
      it(`is nobody else's ${when}, and keeps its content`, { skip }, async () => {
        await begin(64);
        const writer = await startWriter(how);
        await host.logged(/begins, in its VM's shared memory/);
        await happens();
        await keepsItsOwn();
        await host.logged(/begins, in its VM's shared memory/);
        assert.equal(await writer.end(), 'kept');
      });
    }

    it('is free again when the program has ended, however it did', async () => {
      await begin(8);
      const writer = await startWriter('writes_on');
      process.kill(Number((await host.logged(/, worker (\d+)/))[1]), 'SIGKILL');
      await until('the session to end', () => isIdle(host));
      const other = open();
      await compute(other);
      assert.match(other.stderr(), /over the socket/);
      assert.ok(signalOther(writer.pid, 'writes_on', 'SIGKILL'));
      await until('it to end', () => !existsSync(`/proc/${writer.pid}/maps`));
      const third = open();
      await compute(third);
      assert.match(third.stderr(), /through the VM's shared memory/);
    });
  });

  it('is used again by a program that lost its host and comes back', async () => {
    await begin(8);
    const shell = open();
    await compute(shell);
    for (let round = 0; round < 3; round++) {
      host.signal('SIGKILL');
      await host.stop();
      rmSync(`${scratch.path}/s`, { force: true });
      host = await startHost({ listen: `unix:${scratch.path}/s`, args: memory.args });
      await shell.ask('sync');
      await compute(shell);
      await host.logged(/begins, in its VM's shared memory/);
    }
  });

  it('that is overwritten ends that session and no other', async () => {
    await begin(64);
    const [victim, other] = [open(), startShell({ VGPU_HOST: host.address })];
    shells.push(other);
    await compute(victim);
    await compute(other);
    const file = openSync(memory.path, 'r+');
    // Each end writes its own index again with its next frame: it is spoiled while the worker has one before it.
    const worker = Number((await host.logged(/session 1: .*, worker (\d+)/))[1]);
    const tail = (): bigint => {
      const index = Buffer.alloc(8);
      readSync(file, index, 0, 8, PLACES);
      return index.readBigUInt64LE();
    };
    const before = tail();
    process.kill(worker, 'SIGSTOP');
    const asked = askAll(victim, ['sync']);
    await until('the frame to be in the ring', () => tail() !== before, 20_000);
    writeSync(file, Buffer.alloc(1024, 0xff), 0, 1024, PLACES);
    process.kill(worker, 'SIGCONT');
    await assert.rejects(asked);
    closeSync(file);
    await compute(other);
    assert.ok(host.running());
  });

  it('that is truncated ends that session and no other', async () => {
    await begin(64);
    const [victim, other] = [open(), startShell({ VGPU_HOST: host.address })];
    shells.push(other);
    await compute(victim);
    await compute(other);
    truncateSync(memory.path, 0);
    // Its own rings are gone, too: the guest's process is ended by the kernel, or is told that it lost its host.
    await assert.rejects(askAll(victim, ['alloc 4096', 'sync', 'sync']));
    await until('the session to end', () => /ended/.test(host.log()));
    await compute(other);
    assert.ok(host.running());
  });

  it('that is missing, too small or not a file is logged, and the socket carries the frames', async () => {
    await begin(64);
    for (const [make, why] of [
      [() => truncateSync(memory.path, 4 * MIB), /4194304 bytes, less than 8 MiB/],
      [() => memory.remove(), /No such file or directory; the socket carries the frames/],
    ] as const) {
      make();
      const stand = makeVmMemory(scratch.path, 64);
      try {
        const shell = open(stand.env);
        await compute(shell);
        assert.match(shell.stderr(), /over the socket/);
      } finally {
        stand.remove();
      }
      await host.logged(why);
    }
    assert.match(host.log(), /vm-memory=\S+ of line 1/);
  });

  it('is not used with VGPU_TRANSPORT=socket or VGPU_VM_MEMORY=none', async () => {
    await begin(64);
    for (const [env, how] of [
      [{ VGPU_TRANSPORT: 'socket' }, /over the socket/],
      [{ VGPU_VM_MEMORY: 'none' }, /through shared memory/],
    ] as const) {
      const shell = open({ ...memory.env, ...env });
      await compute(shell);
      assert.match(shell.stderr(), how);
    }
  });
});
