/**
 * Refusals and restrictions of a real driver before the first kernel: an old version, exclusive-process mode, MIG, MPS.
 * The driver is the stand-in (programs/stand_in_driver.c).
 */
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { runProgram } from '../cuda/private_programs.js';
import { buildCaller, makeCalls } from '../nvml/calls.js';
import {
  askAll,
  builtFile,
  type Host,
  type Shell,
  scratchDirectory,
  sessionsNow,
  startShell,
  until,
} from '../shim_host.js';
import { standIn, standInNvml, startStandIn } from './stand_in.js';
import { profile, twoDevices } from './two_devices.js';

const OUT_OF_MEMORY = 2;
const DEVICE_UNAVAILABLE = 46;
const MIB = 1 << 20;

describe('a driver with limits', () => {
  let scratch: ReturnType<typeof scratchDirectory>;
  let host: Host | undefined;
  let shells: Shell[] = [];
  const open = (address: string): Shell => {
    const shell = startShell({ VGPU_HOST: address });
    shells.push(shell);
    return shell;
  };
  const check = async (
    words: string,
    args: readonly string[],
    env: Readonly<Record<string, string>> = {},
    file?: string,
  ) => {
    const stand = await standIn(words, file);
    return runProgram(builtFile('vgpu-hostd'), ['--device', 'cuda', ...stand.args, ...args], {
      env: { ...stand.env, ...env },
      limit: 60_000,
    });
  };

  beforeEach(() => {
    scratch = scratchDirectory();
  });
  afterEach(async () => {
    for (const shell of shells) shell.kill();
    shells = [];
    await host?.stop();
    host = undefined;
    scratch.remove();
  });

  it('is refused at the start when it is older than CUDA 12.4, with the driver that is needed', async () => {
    const ended = await check('version=12020', ['--check-config']);
    assert.equal(ended.code, 3, ended.stdout + ended.stderr);
    assert.match(ended.stderr, /is of CUDA 12\.2, and vgpu-hostd needs CUDA 12\.4: install driver 550 or/);
    assert.equal((await check('version=12040', ['--self-check'])).code, 0);
  });

  it('in exclusive-process mode serves one session, and logs the mode and the refusal of another', async () => {
    host = await startStandIn('exclusive', { listen: `unix:${scratch.path}/s` });
    await host.logged(/device 0 is in compute mode Exclusive_Process: only one session at a time can use it/);
    const [first, second] = [open(host.address), open(host.address)];
    await askAll(first, ['init', 'ctx 0', 'alloc 4096']);
    await askAll(second, ['init']);
    assert.equal((await second.ask('ctx 0')).result, DEVICE_UNAVAILABLE);
    await host.logged(/makes no context on device 0 \(CUDA_ERROR_DEVICE_UNAVAILABLE\): .*nvidia-smi -c DEF/);
    assert.equal(await first.end(), 0);
    const exclusive = host;
    await until('its session to end', () => sessionsNow(exclusive) === 1, 20_000);
    await askAll(second, ['ctx 0']);
  });

  it('counts to memory= what the driver uses for a session, as NVML tells, and shows it', async () => {
    const used = `${scratch.path}/used`;
    const nvmlTells = (mib: number): void => writeFileSync(used, String(mib * MIB));
    const control = ['--control', `${scratch.path}/control`];
    nvmlTells(400);
    const started = await startStandIn('always', {
      listen: `unix:${scratch.path}/s`,
      args: [...control, '--nvml-library', await standInNvml(), '--config', conf('allow any memory=512M\n')],
      env: { STAND_IN_BYTES: used },
    });
    host = started;
    const shell = open(started.address);
    await askAll(shell, ['init', 'ctx 0']);
    const status = async (command: string): Promise<string> =>
      (
        await runProgram(builtFile('vgpu-hostd'), [
          command,
          ...(command === 'metrics' ? [] : ['--json']),
          ...control,
        ])
      ).stdout;

    // Of 512 MiB 400 are the context's.
    assert.equal((await shell.ask(`alloc ${200 * MIB}`)).result, OUT_OF_MEMORY);
    const { sessions } = JSON.parse(await status('status')) as { sessions: Record<string, unknown>[] };
    assert.deepEqual([sessions[0]?.['memory'], sessions[0]?.['driverMemory']], [400 * MIB, 400 * MIB]);
    assert.match(
      await status('metrics'),
      new RegExp(`^vgpu_hostd_session_driver_memory_bytes\\{session="1",.*\\} ${400 * MIB}$`, 'm'),
    );
    await askAll(shell, [`alloc ${100 * MIB}`]);

    // The driver needs less now. NVML is asked again before anything is refused.
    nvmlTells(150);
    await askAll(shell, [`alloc ${300 * MIB}`]);
    // Without a value the account stays as it is.
    writeFileSync(used, 'N/A');
    assert.equal((await shell.ask(`alloc ${200 * MIB}`)).result, OUT_OF_MEMORY);
    await askAll(shell, [`alloc ${50 * MIB}`]);
    assert.equal(await shell.end(), 0);
    await until('the end of its account', () => sessionsNow(started) === 0, 20_000);
    const ended = JSON.parse(await status('status')) as { devices: { used: number }[] };
    assert.equal(ended.devices[0]?.used, 0);
  });

  it('counts to memory= what pools keep, once, and until the driver releases it', async () => {
    const used = `${scratch.path}/used`;
    writeFileSync(used, String(100 * MIB));
    host = await startStandIn('pools', {
      listen: `unix:${scratch.path}/s`,
      args: ['--nvml-library', await standInNvml(), '--config', conf('allow any memory=512M\n')],
      env: { STAND_IN_BYTES: used },
    });
    const shell = open(host.address);
    const use = async (mib: number): Promise<string> =>
      (await askAll(shell, [`poolalloc ${mib * MIB}`])).values[0] ?? '';
    // The first 100 MiB are the context's. The pool keeps 300 MiB.
    await askAll(shell, ['init', 'ctx 0', `poolkeep ${2 ** 40}`]);
    await askAll(shell, [`poolfree ${await use(300)}`, 'streamsync 0']);
    assert.equal((await shell.ask(`alloc ${200 * MIB}`)).result, OUT_OF_MEMORY);
    const again = await use(300);
    const more = await use(100);
    assert.equal((await shell.ask(`poolalloc ${50 * MIB}`)).result, OUT_OF_MEMORY);
    await askAll(shell, [`poolfree ${again}`, `poolfree ${more}`, `pooltrim ${50 * MIB}`]);
    const memory = (await askAll(shell, [`alloc ${300 * MIB}`])).values[0] ?? '';
    await askAll(shell, [`free ${memory}`, 'sync', 'pooltrim 0']);

    // Without a threshold the driver releases the memory when the program waits for the stream.
    await askAll(shell, ['poolkeep 0', `poolfree ${await use(300)}`]);
    assert.equal((await shell.ask(`alloc ${200 * MIB}`)).result, OUT_OF_MEMORY);
    const whole = (await askAll(shell, ['streamsync 0', `alloc ${400 * MIB}`])).values[0] ?? '';
    await askAll(shell, [`free ${whole}`, 'sync']);
  });

  it('releases what pools keep when a program waits, also if there is nothing to wait for', async () => {
    const started = await startStandIn('pools', {
      listen: `unix:${scratch.path}/s`,
      args: ['--config', conf('allow any memory=512M\n')],
    });
    host = started;
    for (const [free, before, wait] of [
      ['poolfree', ['streamsync 0'], 'streamsync 0'],
      ['free', ['streamsync 0'], 'streamsync 0'],
      ['poolfree', ['streamquery 0'], 'streamsync 0'],
      ['poolfree', ['sync'], 'sync'],
      ['poolfree', ['record EVENT 0', 'eventsync EVENT'], 'eventsync EVENT'],
    ] as const) {
      const shell = open(started.address);
      await askAll(shell, ['init', 'ctx 0', `poolkeep ${2 ** 40}`]);
      const event = (await askAll(shell, ['event 0'])).values[0] ?? '';
      const named = (line: string): string => line.replace('EVENT', event);
      const memory = (await askAll(shell, [`poolalloc ${300 * MIB}`])).values[0] ?? '';
      await askAll(shell, [`${free} ${memory}`, ...before.map(named), 'poolkeep 0']);
      assert.equal((await shell.ask(`alloc ${400 * MIB}`)).result, OUT_OF_MEMORY);
      await askAll(shell, [named(wait), `alloc ${400 * MIB}`]);
      assert.equal(await shell.end(), 0);
      await until('the end of the session', () => sessionsNow(started) === 0, 20_000);
    }
  });

  it('counts what a destroyed pool keeps until the driver has released it', async () => {
    host = await startStandIn('pools', {
      listen: `unix:${scratch.path}/s`,
      args: ['--config', conf('allow any memory=512M\n')],
    });
    const shell = open(host.address);
    const make = async (): Promise<string> => {
      const pool = (await askAll(shell, ['poolmake'])).values[0] ?? '';
      await askAll(shell, [`poolkeep ${2 ** 40} ${pool}`]);
      return pool;
    };
    const use = async (mib: number, pool: string): Promise<string> =>
      (await askAll(shell, [`poolalloc ${mib * MIB} ${pool}`])).values[0] ?? '';
    await askAll(shell, ['init', 'ctx 0']);
    // The pool's memory is freed before the pool is destroyed.
    const unused = await make();
    await askAll(shell, [`poolfree ${await use(300, unused)}`, 'streamsync 0']);
    assert.equal((await shell.ask(`alloc ${300 * MIB}`)).result, OUT_OF_MEMORY);
    const memory = (await askAll(shell, [`pooldestroy ${unused}`, `alloc ${500 * MIB}`])).values[0] ?? '';
    await askAll(shell, [`free ${memory}`]);
    // And a part of it afterwards.
    const used = await make();
    const [first, second] = [await use(200, used), await use(100, used)];
    await askAll(shell, [`poolfree ${first}`, 'streamsync 0', `pooldestroy ${used}`]);
    assert.equal((await shell.ask(`alloc ${300 * MIB}`)).result, OUT_OF_MEMORY);
    await askAll(shell, [`poolfree ${second}`, `alloc ${500 * MIB}`]);
  });

  it('counts memory that a refused allocation leaves in its pool', async () => {
    host = await startStandIn('pools,units=64', {
      listen: `unix:${scratch.path}/s`,
      args: ['--config', conf('allow any memory=512M\n')],
    });
    const shell = open(host.address);
    // The pool reserves 384 MiB. With 10 MiB more it would reserve 448 MiB, which exceed the limit.
    await askAll(shell, ['init', 'ctx 0', `poolalloc ${380 * MIB}`, `alloc ${110 * MIB}`]);
    assert.equal((await shell.ask(`poolalloc ${10 * MIB}`)).result, OUT_OF_MEMORY);
    assert.equal((await shell.ask(`alloc ${15 * MIB}`)).result, OUT_OF_MEMORY);
    await askAll(shell, ['streamsync 0', `alloc ${15 * MIB}`]);
  });

  it('is asked ten times a second at most while allocations are refused', async () => {
    const used = `${scratch.path}/used`;
    writeFileSync(used, String(100 * MIB));
    const started = await startStandIn('always', {
      listen: `unix:${scratch.path}/s`,
      args: ['--nvml-library', await standInNvml(), '--config', conf('allow any memory=512M\n')],
      env: { STAND_IN_BYTES: used, STAND_IN_ASKED: '1' },
    });
    host = started;
    const shell = open(started.address);
    const begun = performance.now();
    await askAll(shell, ['init', 'ctx 0']);
    for (let i = 0; i < 100; i++) assert.equal((await shell.ask(`alloc ${500 * MIB}`)).result, OUT_OF_MEMORY);
    const seconds = (performance.now() - begun) / 1000;
    assert.equal(await shell.end(), 0);
    const asked = started.log().split('asked for processes').length - 1;
    assert.ok(asked >= 1 && asked <= 3 + 11 * seconds, `${asked} questions in ${seconds} s`);
  });

  it('is asked once a second for what it uses, also where NVML does not list the process', async () => {
    const used = `${scratch.path}/used`;
    writeFileSync(used, 'N/A');
    const started = await startStandIn('always', {
      listen: `unix:${scratch.path}/s`,
      args: ['--nvml-library', await standInNvml()],
      env: { STAND_IN_BYTES: used, STAND_IN_ASKED: '1' },
    });
    host = started;
    const shell = open(started.address);
    const begun = performance.now();
    await askAll(shell, ['init', 'ctx 0', ...Array.from({ length: 60 }, () => 'sync')]);
    const seconds = (performance.now() - begun) / 1000;
    assert.equal(await shell.end(), 0);
    const asked = started.log().split('asked for processes').length - 1;
    assert.ok(asked >= 1 && asked <= 3 + seconds, `${asked} questions in ${seconds} s`);
  });

  it('with MIG is asked about all instances at the same time', async () => {
    const uuids = ['a100-40gb', 'h200'].map((name) => profile(name).devices[0]?.uuid.slice(4) ?? '');
    const ended = await check(
      'mig,together=100',
      ['--check-config', '--nvml-library', await standInNvml(), '--config', conf('allow any\n')],
      { STAND_IN_MIG: uuids.join() },
      twoDevices(`${scratch.path}/two.json`),
    );
    assert.equal(ended.code, 0, ended.stdout + ended.stderr);
  });

  it('has the pipe directory of MPS in its workers where hostd.conf names one, and only there', async () => {
    const environmentOf = async (text: string): Promise<string> => {
      host = await startStandIn('always', {
        listen: `unix:${scratch.path}/s`,
        args: ['--config', conf(text)],
      });
      await askAll(open(host.address), ['init', 'ctx 0']);
      const [, pid = ''] = await host.logged(/worker (\d+)$/m);
      const environment = (await runProgram('/bin/cat', [`/proc/${pid}/environ`])).stdout;
      await host.stop();
      return environment;
    };
    mkdirSync(`${scratch.path}/mps`);
    const text = `workers mps=${scratch.path}/mps\nallow any\n`;
    assert.match(await environmentOf(text), new RegExp(`CUDA_MPS_PIPE_DIRECTORY=${scratch.path}/mps\0`));
    assert.doesNotMatch(await environmentOf('allow any\n'), /MPS/);
    const hidden = await check('always', ['--self-check', '--config', conf('workers mps=/nowhere\n')]);
    assert.equal(hidden.code, 1, hidden.stdout);
    assert.match(hidden.stderr, /workers mps=\/nowhere: No such file or directory; .*BindPaths=/);
  });

  it('compiles into a directory of its own for each peer, and cannot open those of others', async () => {
    const root = path.join(scratch.path, 'cache');
    const uid = process.getuid?.() ?? 0;
    for (const directory of [root, `${root}/unix-${uid}`, `${root}/other`]) {
      mkdirSync(directory);
      chmodSync(directory, 0o777);
      writeFileSync(`${directory}/old`, '');
      chmodSync(`${directory}/old`, 0o666);
    }
    host = await startStandIn('cache', {
      listen: `unix:${scratch.path}/s`,
      env: { CACHE_DIRECTORY: root },
    });
    await askAll(open(host.address), ['init', 'ctx 0', 'alloc 4096']);
    await host.logged(/stand-in: cache: .*\n.*stand-in: cache\/\.\.\/other: .*\n/);
    assert.ok(host.log().includes(`stand-in: cache ${root}/unix-${uid}, 268435456 bytes\n`), host.log());
    assert.match(host.log(), /(?:^|wrote to stderr: )stand-in: cache: write yes, read yes, remove yes$/m);
    assert.match(
      host.log(),
      /(?:^|wrote to stderr: )stand-in: cache\/\.\.\/other: write no, read no, remove no$/m,
    );
  });

  it('is waited for with naps that the kernel does not make longer', {
    skip: process.getuid?.() !== 0 && 'only root may read the timer slack of another process',
  }, async () => {
    host = await startStandIn('always', { listen: `unix:${scratch.path}/s` });
    await askAll(open(host.address), ['init', 'ctx 0']);
    const [, pid = ''] = await host.logged(/worker (\d+)$/m);
    assert.equal(readFileSync(`/proc/${pid}/timerslack_ns`, 'utf8').trim(), '1');
  });

  it('is waited for without a system call in each call that looks for the output of kernels', {
    skip: process.getuid?.() !== 0 ? 'only root may trace another process' : whyNoStrace(),
  }, async () => {
    const [waits, trace] = [640, `${scratch.path}/trace`];
    host = await startStandIn('always', { listen: `unix:${scratch.path}/s` });
    const shell = open(host.address);
    await askAll(shell, ['init', 'ctx 0', 'info']);
    const [, pid = ''] = await host.logged(/worker (\d+)$/m);
    const tracer = spawn('strace', ['-f', '-o', trace, '-e', 'trace=lseek', '-p', pid], {
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    await once(tracer.stderr, 'data'); // "Process N attached"
    await askAll(
      shell,
      Array.from({ length: waits }, () => 'info'),
    );
    tracer.kill('SIGINT');
    await once(tracer, 'close');
    const asked = readFileSync(trace, 'utf8').split('lseek(').length - 1;
    // Only one of 64 calls checks for output that begins with zeros.
    assert.ok(asked > 0 && asked <= waits / 64 + 1, `${asked} calls of lseek in ${waits} waiting calls`);
  });

  it('is said to keep its state between programs only where NVML says so', async () => {
    const persistence = async (env: Readonly<Record<string, string>>): Promise<string> => {
      host = await startStandIn('always', {
        listen: `unix:${scratch.path}/s`,
        args: ['--nvml-library', await standInNvml()],
        env,
      });
      const lines = await makeCalls(await buildCaller('thread'), host.address, [
        'init',
        'number:persistence,0',
        'shutdown',
      ]);
      await host.stop();
      return lines[1]?.text ?? '';
    };
    assert.equal(await persistence({}), '0');
    assert.equal(await persistence({ STAND_IN_PERSISTENCE: '1' }), '1');
  });

  function whyNoStrace(): string | false {
    return spawnSync('strace', ['-V']).status === 0 ? false : 'strace is not installed';
  }

  function conf(text: string): string {
    writeFileSync(`${scratch.path}/c`, text);
    return `${scratch.path}/c`;
  }
});
