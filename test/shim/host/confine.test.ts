/** The rights of a worker on the host after a guest has taken it over: it can compute and answer, nothing else. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { after, afterEach, before, describe, it } from 'node:test';
import { ROOT, runProgram } from '../cuda/private_programs.js';
import {
  askAll,
  builtFile,
  type Host,
  type Shell,
  scratchDirectory,
  sessionsNow,
  startHost,
  startShell,
  until,
  VARIANT,
  workerOf,
} from '../shim_host.js';
import { WireClient, words } from '../wire/wire_client.js';

const HOSTILE = 0x66;
/** The daemon looks for profiles beside itself; this one lies elsewhere. */
const PROFILE = ['--profile', path.join(ROOT, 'profiles/devices/h100-80gb.json')];
const X86 = process.arch === 'x64';
/** System calls of x86-64, by name. */
const CALLS = {
  open: 2,
  mmap: 9,
  mprotect: 10,
  mremap: 25,
  ioctl: 16,
  getpid: 39,
  socket: 41,
  connect: 42,
  accept: 43,
  listen: 50,
  clone: 56,
  fork: 57,
  execve: 59,
  kill: 62,
  fcntl: 72,
  ptrace: 101,
  setuid: 105,
  prctl: 157,
  mount: 165,
  tgkill: 234,
  openat: 257,
  newfstatat: 262,
  unshare: 272,
  process_vm_readv: 310,
  memfd_create: 319,
  bpf: 321,
  execveat: 322,
  statx: 332,
  io_uring_setup: 425,
  pidfd_open: 434,
  clone3: 435,
} as const;
type Name = keyof typeof CALLS;

const [EPERM, EBADF, ENOMEM, EACCES, EFAULT, ENOSYS] = [-1, -9, -12, -13, -14, -38];

const mapsOf = (pid: number): string => readFileSync(`/proc/${pid}/maps`, 'utf8');
/** VGPU_OP_FORGE of programs/hostile_hostd.c */
const FORGE = 0x67;
const THREAD = 0x10000 | 0x100; // CLONE_THREAD | CLONE_VM

describe('a worker that was taken over', {
  skip:
    VARIANT.includes('sanitize') || VARIANT.includes('thread')
      ? 'a sanitizer needs more calls than a worker'
      : !X86 && 'the numbers are those of x86-64',
}, () => {
  const scratch = scratchDirectory();
  const clients: WireClient[] = [];
  let host: Host;

  const greeted = async (socket = 's'): Promise<WireClient> => {
    const client = await WireClient.greeted(`${scratch.path}/${socket}`);
    clients.push(client);
    return client;
  };
  /** Greets, and gives the pid of this session's worker; the log has those of earlier ones, too. */
  const newWorker = async (): Promise<number> => {
    const workers = (): number[] => [...host.log().matchAll(/worker (\d+)$/gm)].map(([, pid]) => Number(pid));
    const before = workers().length;
    await greeted();
    await until('the worker to be told of', () => workers().length > before);
    return workers()[before] ?? 0;
  };
  const ask = async (
    client: WireClient,
    name: Name,
    args: readonly number[] = [],
    thread = false,
  ): Promise<number> => {
    const six = Array.from({ length: 6 }, (_, i) => BigInt(args[i] ?? 0));
    const told = await client.call(HOSTILE, words(BigInt(CALLS[name]), ...six, thread ? 1n : 0n));
    assert.equal(told.status, 0);
    return Number(told.body.readBigInt64LE(0));
  };
  /** Asks for a call that ends the worker, and waits until the log has it. */
  const die = async (name: Name, args: readonly number[] = [], thread = false): Promise<void> => {
    const client = await greeted();
    await assert.rejects(ask(client, name, args, thread), /the session ended/);
    const line = new RegExp(`signal 31: seccomp, system call ${CALLS[name]} \\(${name}\\)`);
    await until(`the log to name ${name}`, () => line.test(host.log()), 20_000);
  };

  before(async () => {
    host = await startHost({
      listen: `unix:${scratch.path}/s`,
      program: 'programs/hostile_hostd',
      args: PROFILE,
    });
  });
  afterEach(async () => {
    for (const client of clients.splice(0)) client.close();
    const shell = startShell({ VGPU_HOST: host.address });
    try {
      await askAll(shell, ['use 1']);
      // Otherwise the next test could use this log line as its own.
      await workerOf(host, shell.pid);
    } finally {
      shell.kill();
    }
    await until('the sessions to end', () => sessionsNow(host) === 0);
    assert.equal(host.running(), true);
  });
  after(async () => {
    assert.equal(await host.stop(), 0);
    scratch.remove();
  });

  for (const [name, args] of [
    ['execve', []],
    ['execveat', []],
    ['socket', [1, 1, 0]],
    ['connect', []],
    ['fork', []],
    ['clone', [17]],
    ['kill', [process.pid, 0]],
    ['tgkill', [process.pid, process.pid, 0]],
    ['ptrace', [16, process.pid]],
    ['process_vm_readv', [process.pid]],
    ['setuid', [0]],
    ['mount', []],
    ['unshare', [0x10000000]],
    ['bpf', []],
    ['io_uring_setup', [1, 0]],
    ['pidfd_open', [process.pid, 0]],
    ['prctl', [4, 1]],
    ['mmap', [0, 4096, 7, 0x22, -1, 0]],
    ['mprotect', [0, 4096, 5]],
    ['fcntl', [2, 8, process.pid]],
  ] as const satisfies readonly (readonly [Name, readonly number[]])[]) {
    it(`ends with its session when it asks for ${name}(${args.join(', ')}), and the log says so`, async () => {
      const other = await greeted();
      await die(name, args);
      assert.equal((await other.call(2)).status, 0, "another guest's session goes on");
    });
  }

  it("writes no line of the log in the daemon's name or in that of another session", async () => {
    const begun = (): string[] =>
      [...host.log().matchAll(/session (\d+): [^\n]*, worker \d+$/gm)].map(([, session = '']) => session);
    const before = begun().length;
    const client = await greeted();
    await until('the session to be logged', () => begun().length > before);
    const own = begun()[before] ?? '';
    const forge = async (bytes: Buffer): Promise<void> => {
      const told = await client.call(FORGE, Buffer.alloc(0), bytes);
      assert.equal(told.status, 0);
    };
    await forge(Buffer.from('vgpu-hostd: forged one\nvgpu-hostd: session 999: forged end\n'));
    const header = Buffer.alloc(16);
    header[0] = 1;
    const parts = (...texts: string[]): Buffer =>
      Buffer.concat([header, ...texts.map((text) => Buffer.from(`${text}\0`))]);
    await forge(parts('refused', '', 'forged two\nvgpu-hostd: session 999: forged end'));
    await forge(parts('no"word', '', 'forged three'));
    await forge(Buffer.concat([header, Buffer.from('refused')]));
    await host.logged(/forged two/);
    const lines = host.log().split('\n');
    const forged = lines.filter((line) => line.includes('forged') || line.includes('session 999'));
    assert.deepEqual(forged, [
      `vgpu-hostd: session ${own}: the worker wrote to stderr: vgpu-hostd: forged one`,
      `vgpu-hostd: session ${own}: the worker wrote to stderr: vgpu-hostd: session 999: forged end`,
      `vgpu-hostd: session ${own}: forged two?vgpu-hostd: session 999: forged end`,
    ]);
  });

  it('ends when another thread of it asks, too', async () => {
    await die('execve', [], true);
  });

  it('is refused files, and the C library does without', async () => {
    const client = await greeted();
    assert.equal(await ask(client, 'openat', [-100, 0, 0]), EACCES);
    assert.equal(await ask(client, 'open'), EACCES);
    assert.equal(await ask(client, 'ioctl', [0, 0x5401]), EACCES);
    assert.equal(await ask(client, 'newfstatat', [-100, 0, 0, 0]), EACCES);
    assert.equal(await ask(client, 'statx', [-100, 0, 0, 0, 0]), EACCES);
    assert.equal(await ask(client, 'clone3', [0, 88]), ENOSYS);
    assert.ok((await ask(client, 'getpid')) > 0);
    assert.ok((await ask(client, 'getpid', [], true)) > 0, 'threads are there');
    assert.ok((await ask(client, 'mmap', [0, 4096, 3, 0x22, -1, 0])) > 0);
    assert.equal(await ask(client, 'memfd_create', [0, 0]), EFAULT, 'made, but for its name');
    // A thread and no process: refused for its arguments by the kernel itself, not by the filter.
    assert.equal(await ask(client, 'clone', [THREAD]), -22);
  });

  it('may ask about what it has open, as fstat of some C libraries does', async () => {
    const client = await greeted();
    const EMPTY_PATH = 0x1000;
    // They reach the kernel, which finds no room for the answer.
    assert.equal(await ask(client, 'newfstatat', [2, 0, 0, EMPTY_PATH]), EFAULT);
    assert.equal(await ask(client, 'statx', [2, 0, EMPTY_PATH, 0, 0]), EFAULT);
  });

  it('has no privileges, leaves no core and cannot gain any', async () => {
    const pid = await newWorker();
    const status = readFileSync(`/proc/${pid}/status`, 'utf8');
    assert.match(status, /^NoNewPrivs:\s+1$/m);
    assert.match(status, /^Seccomp:\s+2$/m);
    for (const set of ['CapInh', 'CapPrm', 'CapEff', 'CapAmb'])
      assert.match(status, new RegExp(`^${set}:\\s+0{16}$`, 'm'));
    if (process.getuid?.() === 0) {
      assert.match(status, /^CapBnd:\s+0{16}$/m);
      assert.match(status, /^Uid:\s+(6[1-5]\d{3})\s+\1\s+\1\s+\1$/m, "root's worker is nobody who exists");
      assert.match(status, /^Gid:\s+(6[1-5]\d{3})\s+\1\s+\1\s+\1$/m);
      assert.match(status, /^Groups:\s*$/m);
    }
    assert.match(readFileSync(`/proc/${pid}/limits`, 'utf8'), /^Max core file size\s+0\s+0\s/m);
  });

  it('has addresses of its own, which say nothing of where those of another worker are', async () => {
    const places = async (): Promise<string[]> =>
      [
        ...mapsOf(await newWorker()).matchAll(/^([0-9a-f]+)-.*(?:hostile_hostd|libc\.so\.6|\[stack\])$/gm),
      ].map(([, at = '']) => at);
    const [one, other] = [await places(), await places()];
    assert.ok(one.length > 3, one.join());
    assert.deepEqual(
      one.filter((at) => other.includes(at)),
      [],
    );
  });

  it('writes its own counts, and cannot come to write those of others', async () => {
    const maps = mapsOf(await newWorker());
    const client = clients.at(-1);
    assert.ok(client !== undefined);
    const tables = [...maps.matchAll(/^([0-9a-f]+)-([0-9a-f]+) (\S+) .*vgpu-accounts/gm)].map(
      ([, from = '', to = '', mode = '']) => ({ at: Number(`0x${from}`), end: Number(`0x${to}`), mode }),
    );
    const writable = tables.filter(({ mode }) => mode === 'rw-s');
    const readable = tables.filter(({ mode }) => mode === 'r--s');
    assert.equal(writable.length, 1, maps);
    assert.ok(readable.length >= 2, maps);
    assert.ok((writable[0]?.end ?? 0) - (writable[0]?.at ?? 0) <= 65536, 'a slot');
    for (const { at } of readable) assert.equal(await ask(client, 'mprotect', [at, 4096, 3]), EACCES);
    for (const { at, end } of writable)
      assert.equal(await ask(client, 'mremap', [at, end - at, 2 * (end - at), 1]), ENOMEM, 'it cannot grow');
    assert.equal(await ask(client, 'fcntl', [6, 1]), EBADF, 'nor has it the descriptor');
  });

  it('runs as the user that --user names, and the daemon does not start for one who is not', {
    skip: process.getuid?.() !== 0 && 'only root can choose',
  }, async () => {
    const other = await startHost({
      listen: `unix:${scratch.path}/other`,
      args: [...PROFILE, '--user', 'nobody'],
    });
    try {
      clients.push(await WireClient.greeted(`${scratch.path}/other`));
      const [, pid = ''] = await other.logged(/worker (\d+)$/m);
      const uid = /^nobody:[^:]*:(\d+):/m.exec(readFileSync('/etc/passwd', 'utf8'))?.[1] ?? 'none';
      await other.logged(/libcuda .* begins/);
      assert.match(readFileSync(`/proc/${pid}/status`, 'utf8'), new RegExp(`^Uid:\\s+${uid}\\s`, 'm'));
    } finally {
      await other.stop();
    }
    await assert.rejects(
      startHost({ listen: `unix:${scratch.path}/other`, args: [...PROFILE, '--user', 'noone'] }),
      /--user "noone": there is no such user/,
    );
  });

  it('is reported as killed by a signal when no filter ended it', async () => {
    process.kill(await newWorker(), 'SIGSYS');
    await until('its end', () => /killed by signal 31$/m.test(host.log()), 20_000);
  });

  it('with a real driver cannot make system calls that no driver needs, and still works', async () => {
    const front = await startHost({
      device: 'cuda',
      listen: `unix:${scratch.path}/front`,
      program: 'programs/hostile_hostd',
      args: ['--cuda-library', builtFile('libcuda.so.1'), '--nvml-library', builtFile('libnvidia-ml.so.1')],
      env: { VGPU_HOST: host.address },
    });
    let shell: Shell | undefined;
    try {
      const client = await greeted('front');
      for (const name of [
        'execve',
        'execveat',
        'ptrace',
        'mount',
        'unshare',
        'bpf',
        'io_uring_setup',
      ] as const)
        assert.equal(await ask(client, name), EPERM, name);
      const socket = await ask(client, 'socket', [1, 1, 0]);
      assert.ok(socket >= 0, 'which a driver may need');
      // NVIDIA's libcuda listens when it initializes; it never accepts a connection.
      assert.notEqual(await ask(client, 'listen', [socket, 1]), EPERM);
      assert.equal(await ask(client, 'accept', [socket, 0, 0]), EPERM);
      const worker = /, worker (\d+)$/m;
      await until('the log to name the worker', () => worker.test(front.log()), 20_000);
      const pid = worker.exec(front.log())?.[1];
      const status = readFileSync(`/proc/${pid}/status`, 'utf8');
      for (const set of ['CapInh', 'CapPrm', 'CapEff', 'CapAmb'])
        assert.match(status, new RegExp(`^${set}:\\s+0{16}$`, 'm'), 'no privilege');
      shell = startShell({ VGPU_HOST: front.address });
      await askAll(shell, ['use 1']);
    } finally {
      shell?.kill();
      await front.stop();
    }
  });

  it('may do what it likes with --no-seccomp', async () => {
    const open = await startHost({
      listen: `unix:${scratch.path}/open`,
      program: 'programs/hostile_hostd',
      args: ['--no-seccomp', ...PROFILE],
    });
    try {
      assert.ok((await ask(await greeted('open'), 'socket', [1, 1, 0])) >= 0);
    } finally {
      await open.stop();
    }
  });
});

it('vgpu-hostd says in --help that its workers are filtered', async () => {
  const { stdout } = await runProgram(builtFile('vgpu-hostd'), ['--help']);
  assert.match(stdout, /--no-seccomp/);
});
