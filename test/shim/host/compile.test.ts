/** vgpu-hostd --software-compile: a session has a confined process that compiles, and code that nobody can write. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, it } from 'node:test';
import { compiles } from '../ptx/compiled.js';
import {
  askAll,
  builtFile,
  type Host,
  scratchDirectory,
  startHost,
  startShell,
  until,
} from '../shim_host.js';

delete process.env['PTX_COMPILE']; // these tests choose

/** Each thread adds 1 to 100 in memory of its own, and traps if the sum is wrong. */
const PTX = `.version 6.0
.target sm_50
.address_size 64
.global .align 4 .b8 sums[65536];
.visible .entry adds()
{
  .reg .b32 %r<8>; .reg .b64 %d<4>; .reg .pred %p<3>;
  mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x;
  mad.lo.u32 %r1, %r2, %r3, %r1;
  mul.wide.u32 %d1, %r1, 4;
  mov.u64 %d2, sums;
  add.u64 %d2, %d2, %d1;
  mov.u32 %r4, 0; mov.u32 %r5, 0;
  st.global.u32 [%d2], %r5;
again:
  add.u32 %r4, %r4, 1;
  ld.global.u32 %r5, [%d2];
  add.u32 %r5, %r5, %r4;
  st.global.u32 [%d2], %r5;
  setp.lt.u32 %p1, %r4, 100;
  @%p1 bra again;
  setp.ne.u32 %p2, %r5, 5050;
  @%p2 trap;
  ret;
}
`;

interface Process {
  readonly pid: number;
  readonly parent: number;
  readonly status: string;
  readonly maps: string;
}

function processes(name: string): Process[] {
  return readdirSync('/proc')
    .filter((entry) => /^\d+$/.test(entry))
    .flatMap((entry) => {
      try {
        const status = readFileSync(`/proc/${entry}/status`, 'utf8');
        if (/^Name:\t(.*)$/m.exec(status)?.[1] !== name) return [];
        const parent = Number(/^PPid:\t(\d+)$/m.exec(status)?.[1]);
        return [{ pid: Number(entry), parent, status, maps: readFileSync(`/proc/${entry}/maps`, 'utf8') }];
      } catch {
        return []; // it has ended
      }
    });
}

const childOf = (pid: number, name: string): Process | undefined =>
  processes(name).find((process) => process.parent === pid);

/** The compiler of the only session. It can start, and get its name, after the session has begun to serve. */
async function compilerOf(host: Host): Promise<{ readonly worker: Process; readonly compiler: Process }> {
  const worker = (): Process | undefined => childOf(host.pid, 'vgpu-hostd');
  const compiler = (): Process | undefined => childOf(worker()?.pid ?? 0, 'vgpu-compiler');
  await until('the compiler', () => compiler() !== undefined);
  const both = { worker: worker(), compiler: compiler() };
  assert.ok(both.worker !== undefined && both.compiler !== undefined);
  return { worker: both.worker, compiler: both.compiler };
}

function statusOf(control: string, ...options: readonly string[]): string {
  const args = ['status', ...options, '--control', control];
  return spawnSync(builtFile('vgpu-hostd'), args, { encoding: 'utf8' }).stdout;
}

async function statusWith(...args: readonly string[]): Promise<string> {
  const scratch = scratchDirectory();
  const control = `${scratch.path}/control`;
  const host = await startHost({ listen: `unix:${scratch.path}/s`, args: [...args, '--control', control] });
  try {
    return statusOf(control);
  } finally {
    await host.stop();
    scratch.remove();
  }
}

async function session(
  args: readonly string[],
  during: (host: Host, launch: () => Promise<number>, control: string) => Promise<void>,
): Promise<void> {
  const scratch = scratchDirectory();
  const host = await startHost({
    listen: `unix:${scratch.path}/s`,
    args: [...args, '--control', `${scratch.path}/control`],
  });
  const shell = startShell({ VGPU_HOST: host.address }, 'code_shell');
  try {
    writeFileSync(path.join(scratch.path, 'adds.ptx'), PTX);
    await askAll(shell, ['begin', `load 0 ${scratch.path}/adds.ptx`, 'function 1 0 adds']);
    const launch = async (): Promise<number> => {
      const { result } = await askAll(shell, ['launch 1 64 1 1 256 1 1 0 00', 'sync']);
      return result;
    };
    await during(host, launch, `${scratch.path}/control`);
  } finally {
    shell.kill();
    await host.stop();
    scratch.remove();
  }
}

describe('vgpu-hostd --software-compile', { skip: compiles }, () => {
  for (const mode of ['always', 'check', 'auto']) {
    it(`runs kernels with ${mode}`, async () => {
      await session(['--software-compile', mode], async (host, launch) => {
        for (let i = 0; i < 20; i++) assert.equal(await launch(), 0, host.log());
        const worker = childOf(host.pid, 'vgpu-hostd');
        assert.ok(worker !== undefined);
        await until('the code', () => /libLLVM/.test(childOf(worker.pid, 'vgpu-compiler')?.maps ?? ''));
        for (let i = 0; i < 20; i++) assert.equal(await launch(), 0, host.log());
      });
    });
  }

  it('keeps writing and executing apart, and confines the compiler', async () => {
    await session(['--software-compile', 'always'], async (host, launch) => {
      assert.equal(await launch(), 0);
      const { worker, compiler } = await compilerOf(host);
      const code = /^.*memfd:vgpu-compiled.*$/gm;
      assert.deepEqual(
        worker.maps.match(code)?.map((line) => line.split(' ')[1]),
        ['r-xs'],
      );
      assert.deepEqual(
        compiler.maps.match(code)?.map((line) => line.split(' ')[1]),
        ['rw-s'],
      );
      const pages = readFileSync(`/proc/${worker.pid}/smaps`, 'utf8');
      const touched = /memfd:vgpu-compiled.*\n(?:.*\n)*?Rss: +(\d+) kB/.exec(pages)?.[1];
      assert.notEqual(Number(touched), 0, 'the worker has run no compiled code');
      assert.doesNotMatch(worker.maps + compiler.maps, /^\S+ .wx/m);
      assert.doesNotMatch(worker.maps, /libLLVM/);
      assert.match(compiler.status, /^Seccomp:\t2$/m);
      assert.match(compiler.status, /^NoNewPrivs:\t1$/m);
      assert.match(compiler.status, /^CapEff:\t0+$/m);
      assert.deepEqual(readdirSync(`/proc/${compiler.pid}/fd`), ['0']);
    });
  });

  it('interprets when the compiler ends, and says so in its status', async () => {
    await session(['--software-compile', 'always'], async (host, launch, control) => {
      const { compiler } = await compilerOf(host);
      assert.match(statusOf(control), /^kernels: compiled with LLVM \d+$/m);
      process.kill(compiler.pid, 'SIGKILL');
      assert.equal(await launch(), 0, host.log());
      assert.equal(await launch(), 0, host.log());
      assert.match(
        statusOf(control),
        /^kernels: compiled with LLVM \d+, but interpreted in 1 of 1 sessions, whose compiler /m,
      );
    });
  });

  it("counts the compiler's processor time as the session's device time", async () => {
    await session(['--software-compile', 'always'], async (host, launch, control) => {
      for (let i = 0; i < 5; i++) assert.equal(await launch(), 0, host.log());
      const { compiler } = await compilerOf(host);
      // of the process and of its children that have exited
      const ticks = readFileSync(`/proc/${compiler.pid}/stat`, 'utf8').split(' ').slice(13, 17).map(Number);
      const compilerMs = 10 * ticks.reduce((sum, n) => sum + n, 0);
      const deviceMs = Number(/"deviceTime":(\d+)/.exec(statusOf(control, '--json'))?.[1]);
      assert.ok(compilerMs >= 20, `the compiler has used ${compilerMs} ms`);
      assert.ok(
        deviceMs >= compilerMs * 0.7 - 10,
        `${deviceMs} ms of device time, the compiler used ${compilerMs}`,
      );
    });
  });

  it('ends the compiler with its session', async () => {
    let pid = 0;
    await session(['--software-compile', 'auto'], async (host) => {
      pid = (await compilerOf(host)).compiler.pid;
    });
    await until(
      'its end',
      () => !existsSync(`/proc/${pid}/maps`) || readFileSync(`/proc/${pid}/maps`, 'utf8') === '',
    );
  });

  it('compiles only hot kernels with auto, and says so in its status', async () => {
    await session(['--software-compile', 'auto'], async (host, launch, control) => {
      assert.match(statusOf(control), /^kernels: compiled with LLVM \d+$/m);
      const worker = childOf(host.pid, 'vgpu-hostd');
      assert.ok(worker !== undefined);
      const code = (): number => {
        const pages = readFileSync(`/proc/${worker.pid}/smaps`, 'utf8');
        return Number(/memfd:vgpu-compiled.*\n(?:.*\n)*?Rss: +(\d+) kB/.exec(pages)?.[1]);
      };
      assert.equal(await launch(), 0, host.log());
      assert.equal(code(), 0, 'a kernel that has run once is not hot');
      const end = Date.now() + 60_000;
      while (code() === 0 && Date.now() < end) assert.equal(await launch(), 0, host.log());
      assert.notEqual(code(), 0, 'no compiled code has run');
    });
  });

  it('starts no compiler with --check, and says in its status that kernels are interpreted', async () => {
    await session(['--software-compile', 'auto', '--check', 'race'], async (host, launch, control) => {
      assert.equal(await launch(), 0, host.log());
      const worker = childOf(host.pid, 'vgpu-hostd');
      assert.ok(worker !== undefined);
      assert.equal(childOf(worker.pid, 'vgpu-compiler'), undefined);
      assert.match(statusOf(control), /^kernels: interpreted, because --check is given$/m);
    });
  });
});

describe('--software-compile', () => {
  it('can be never, and the status says so', async () => {
    const status = await statusWith('--software-compile', 'never');
    assert.match(status, /^kernels: interpreted, because --software-compile is never$/m);
  });

  it('is auto by default: kernels are compiled, or the status has the reason', async () => {
    const wanted =
      compiles === false
        ? /^kernels: compiled with LLVM \d+$/m
        : /^kernels: interpreted, because .*(no LLVM .* is installed|processor is not)/m;
    assert.match(await statusWith(), wanted);
  });

  it('refuses other words', () => {
    const { status, stderr } = spawnSync(
      builtFile('vgpu-hostd'),
      ['--device', 'software', '--software-compile', 'maybe'],
      { encoding: 'utf8' },
    );
    assert.equal(status, 2);
    assert.match(stderr, /--software-compile "maybe" is neither never nor auto nor always nor check/);
  });
});
