import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import {
  existsSync,
  lstatSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { describe, it } from 'node:test';
import { preloaded, ROOT, runProgram } from '../cuda/private_programs.js';
import { askAll, builtFile, SHIM, sessionsNow, until, VARIANT } from '../shim_host.js';
import { freePort } from '../support/free_port.js';
import { inEachTest } from './each_test.js';

const MIB = 1024 * 1024;

const UUIDS = [0, 1, 2].map((index) => `GPU-0${index}abcdef-0000-4000-8000-00000000000${index}`);

/** A profile with three devices of 1 GiB that can be told apart. */
function threeDevices(): string {
  const file = path.join(ROOT, 'profiles/devices/t4.json');
  const profile = JSON.parse(readFileSync(file, 'utf8')) as { devices: { pci: object }[] };
  const devices = UUIDS.map((uuid, index) => ({
    ...profile.devices[0],
    name: `GPU ${index}`,
    uuid,
    memory: 1024 * MIB,
    pci: { ...profile.devices[0]?.pci, address: `0000:0${index + 1}:00.0` },
  }));
  const { $schema: _schema, ...rest } = profile as unknown as Record<string, unknown>;
  return JSON.stringify({ ...rest, devices });
}

describe('vgpu-hostd', () => {
  const { at, start, open, shell: startShell } = inEachTest();

  for (const [args, complaint] of [
    [[], /--device software\|cuda is missing/],
    [['--device', 'opencl'], /"opencl" is neither software nor cuda/],
    [['--version', 'x', 'y'], /unexpected argument "x" \(see --help\)/],
    [['--help', 'status'], /unexpected argument "status"/],
    [['--device', 'software', '--frobnicate'], /frobnicate/],
    [['--device', 'software', 'word'], /"word" is not an option/],
    [['--device', 'software', '--sessions', '0'], /--sessions "0" is not a number/],
    [['--device', 'software', '--sessions', '9x'], /--sessions "9x" is not a number/],
    [['--device', 'software', '--socket-mode', '888'], /--socket-mode "888" is not an octal mode/],
    [['--device', 'software', '--profile', 'no-such-gpu'], /no-such-gpu/],
  ] as const) {
    it(`refuses "${args.join(' ')}" with exit status 2 and a reason`, async () => {
      const ended = await runProgram(builtFile('vgpu-hostd'), args, { limit: 5000 });
      assert.equal(ended.code, 2);
      assert.match(ended.stderr, complaint);
    });
  }

  it('fails when its version or help cannot be written', async () => {
    for (const word of ['--version', '--help']) {
      const ended = await runProgram('/bin/sh', [
        '-c',
        '"$0" "$1" >/dev/full',
        builtFile('vgpu-hostd'),
        word,
      ]);
      assert.equal(ended.code, 1);
      assert.match(ended.stderr, /^vgpu-hostd: cannot write to standard output: No space left/);
    }
  });

  for (const listen of [
    'tcp:0.0.0.0:14999',
    'tcp:192.0.2.1:14999',
    'tcp:[::]:14999',
    'nonsense',
    'tcp:localhost:1',
    'unix:relative',
    'vsock:x',
  ]) {
    it(`does not listen on ${listen}`, async () => {
      const ended = await runProgram(builtFile('vgpu-hostd'), ['--device', 'software', '--listen', listen], {
        limit: 5000,
      });
      assert.equal(ended.code, 1);
      assert.match(ended.stderr, /loopback addresses only|is not unix:PATH/);
    });
  }

  it('tells each listener and device, as JSON if asked', async () => {
    const host = await start(['--json']);
    const lines = host
      .log()
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { event: string; message: string });
    assert.deepEqual(
      lines.map(({ event }) => event),
      [...(process.getuid?.() === 0 && VARIANT === 'shim' ? ['user'] : []), 'listening', 'device'],
    );
    assert.equal(lines.find(({ event }) => event === 'listening')?.message, `listening on unix:${at('s')}`);
  });

  it('removes its socket when it stops, replaces one left behind, and leaves all else alone', async () => {
    const path = at('s');
    const first = await start();
    assert.equal(statSync(path).mode & 0o777, 0o666);
    assert.equal(await first.stop(), 0);
    assert.equal(existsSync(path), false);

    const killed = await start();
    killed.signal('SIGKILL');
    await until('it to die', () => !killed.running());
    assert.equal(lstatSync(path).isSocket(), true, 'left behind');
    const second = await start();
    await askAll(open(second), ['use 1']);

    const third = await runProgram(
      builtFile('vgpu-hostd'),
      ['--device', 'software', '--listen', `unix:${path}`],
      { limit: 5000 },
    );
    assert.equal(third.code, 1);
    assert.match(third.stderr, /another daemon listens there/);
    assert.equal(lstatSync(path).isSocket(), true, "the other's socket is still there");
    await askAll(open(second), ['use 2']);

    writeFileSync(at('file'), 'precious');
    symlinkSync('file', at('link'));
    for (const name of ['file', 'link']) {
      const ended = await runProgram(
        builtFile('vgpu-hostd'),
        ['--device', 'software', '--listen', `unix:${at(name)}`],
        { limit: 5000 },
      );
      assert.equal(ended.code, 1);
      assert.match(ended.stderr, /exists and is not a socket/);
    }
    assert.equal(readFileSync(at('file'), 'utf8'), 'precious');
    assert.equal(readlinkSync(at('link')), 'file');
  });

  it('listens on several sockets and says who connected', async () => {
    const address = `tcp:127.0.0.1:${await freePort()}`;
    const host = await start(['--listen', address]);
    const unix = open(host);
    await askAll(unix, ['use 1']);
    const tcp = startShell({ VGPU_HOST: address });
    await askAll(tcp, ['use 2']);
    await host.logged(/tcp, loopback, worker/);
    await host.logged(new RegExp(`session 1: unix, pid ${unix.pid}, uid ${process.getuid?.()}, gid`));
    await host.logged(/libcuda driver_shell \(guest pid \d+\) begins/);
  });

  it('takes the sockets systemd hands over and tells it when it is ready', async () => {
    const listening = at('s');
    const program = builtFile('programs/activation');
    const child = spawn(program, [listening, at('n'), builtFile('vgpu-hostd'), '--device', 'software']);
    let told = '';
    let log = '';
    child.stdout.on('data', (chunk: Buffer) => {
      told += chunk.toString();
    });
    child.stderr.on('data', (chunk: Buffer) => {
      log += chunk.toString();
    });
    const ended = new Promise((resolve) => child.once('close', resolve)); // after the last output
    await until('READY', () => told.includes('READY=1'));
    const shell = startShell({ VGPU_HOST: `unix:${listening}` });
    await askAll(shell, ['use 1']);
    assert.match(log, /listening on descriptor 3/);
    child.kill('SIGTERM');
    assert.equal(await ended, 0);
    assert.match(told, /STOPPING=1/);
    assert.equal(lstatSync(listening).isSocket(), true, "systemd's socket is not ours to remove");
  });

  it('obeys signals as soon as it listens', async () => {
    const ended = await runProgram(
      builtFile('vgpu-hostd'),
      ['--device', 'software', '--listen', `unix:${at('s')}`],
      { env: await preloaded('early_signals') },
    );
    assert.deepEqual([ended.code, ended.signal], [0, null], ended.stderr);
    assert.match(ended.stderr, /hostd.conf was read again/);
    assert.equal(existsSync(at('s')), false, 'the socket is removed');
  });

  it('shows every session the memory that all of them use, and takes back what a dead one held', async () => {
    const host = await start();
    const [first, second] = [open(host), open(host)];
    await askAll(first, ['init', 'ctx 0']);
    const total = Number((await askAll(second, ['init', 'ctx 0', 'info'])).values[1]);
    await askAll(first, [`alloc ${60 * 1024 * MIB}`]);
    assert.equal(Number((await second.ask('info')).values[0]), total - 60 * 1024 * MIB);
    assert.equal((await second.ask(`alloc ${40 * 1024 * MIB}`)).result, 2, 'more than both can have');
    first.kill();
    await until('the first session to end', () => sessionsNow(host) === 1);
    assert.equal(Number((await second.ask('info')).values[0]), total);
    await askAll(second, [`alloc ${40 * 1024 * MIB}`]);
  });

  it('uses no memory of the machine for device memory that was never written', async () => {
    const host = await start();
    const shell = open(host);
    const address = (await askAll(shell, ['init', 'ctx 0', `alloc ${70 * 1024 * MIB}`])).values[0] ?? '';
    await askAll(shell, [`set8 ${address} 0 ${70 * 1024 * MIB}`]);
    const far = `0x${(BigInt(address) + BigInt(69 * 1024 * MIB)).toString(16)}`;
    await askAll(shell, [`trip ${far} 100000 5`]);
    const worker = (await host.logged(/worker (\d+)/))[1];
    const resident =
      Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${worker}/status`, 'utf8'))?.[1]) / 1024;
    // The sanitizers keep books of their own.
    assert.ok(resident < (SHIM.endsWith('sanitize') ? 400 : 20), `${resident} MiB resident`);
  });

  it('holds a session to its limit of memory', async () => {
    const host = await start(['--session-memory', String(64 * MIB)]);
    const [first, second] = [open(host), open(host)];
    await askAll(first, ['init', 'ctx 0', `alloc ${60 * MIB}`]);
    assert.equal((await first.ask(`alloc ${8 * MIB}`)).result, 2);
    await askAll(first, [`alloc ${4 * MIB}`]);
    await askAll(second, ['init', 'ctx 0', `alloc ${60 * MIB}`]);
  });

  it('serves several devices and hides them as CUDA_VISIBLE_DEVICES says', async () => {
    writeFileSync(at('three.json'), threeDevices());
    const host = await start(['--profile', at('three.json')]);
    const visible = async (value: string | undefined): Promise<string> => {
      const shell = startShell({
        VGPU_HOST: host.address,
        ...(value === undefined ? {} : { CUDA_VISIBLE_DEVICES: value }),
      });
      const init = await shell.ask('init');
      if (init.result !== 0) return `init ${init.result}`;
      const count = Number((await shell.ask('count')).values[0]);
      const names: string[] = [];
      for (let i = 0; i < count; i++) names.push((await shell.ask(`name ${i}`)).values[1] ?? '');
      return names.join(',');
    };
    for (const [value, expected] of [
      [undefined, '0,1,2'],
      ['0', '0'],
      ['2,0', '2,0'],
      [' 1 , 2 ', '1,2'],
      ['0,2,-1,1', '0,2'],
      ['0,7,1', '0'],
      ['-1', 'init 100'],
      ['', 'init 100'],
      ['NoDevFiles', 'init 100'],
      ['1,1', 'init 100'],
      [UUIDS[1], '1'],
      [`${UUIDS[2]},${UUIDS[0]}`, '2,0'],
      [UUIDS[1]?.slice(0, 12), '1'],
      [UUIDS[2]?.toUpperCase().replace('GPU-', 'gpu-'), '2'],
      ['GPU-', 'init 100'],
      ['GPU-0', 'init 100'],
      ['GPU-ffffffff', 'init 100'],
      ['MIG-00000000-0000-0000-0000-000000000000', 'init 100'],
      [UUIDS[1]?.replace('GPU-', 'MIG-'), '1'],
      [`${UUIDS[1]},${UUIDS[1]?.replace('GPU-', 'MIG-')}`, 'init 100'],
      [`${UUIDS[1]?.replace('GPU-', 'MIG-GPU-')}/1/0`, 'init 100'],
    ] as const) {
      assert.equal(await visible(value), expected, `CUDA_VISIBLE_DEVICES=${value}`);
    }
  });

  it('keeps the memory of several devices apart', async () => {
    writeFileSync(at('three.json'), threeDevices());
    const host = await start(['--profile', at('three.json')]);
    const shell = startShell({ VGPU_HOST: host.address, CUDA_VISIBLE_DEVICES: '2,1' });
    const second = (await askAll(shell, ['init', 'ctx 1'])).values[0] ?? '';
    const address = (await askAll(shell, [`alloc ${512 * MIB}`])).values[0] ?? '';
    assert.deepEqual((await shell.ask(`pointer ${address}`)).values, ['2', '1', address]);
    assert.equal((await shell.ask('info')).values[0], String(512 * MIB));
    await askAll(shell, ['ctx 0']);
    assert.equal((await shell.ask('info')).values[0], String(1024 * MIB));
    await askAll(shell, [`alloc ${1024 * MIB}`, `push ${second}`]);
    assert.equal((await shell.ask(`alloc ${513 * MIB}`)).result, 2);
    await askAll(shell, [`trip ${address} ${3 * MIB} 7`]);
    assert.deepEqual((await shell.ask('pci 1')).values, ['0000:02:00.0', '1']);
  });
});
