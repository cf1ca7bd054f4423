/**
 * `vgpu-hostd --device cuda`. There is no GPU here: the driver behind it is our own library with a software
 * device behind that, or NVIDIA's real one on a machine where it finds nothing.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { after, afterEach, before, describe, it } from 'node:test';
import { ROOT, runProgram } from '../cuda/private_programs.js';
import { fetched } from '../nvml/hostd.js';
import {
  askAll,
  builtFile,
  type Host,
  isIdle,
  SHIM,
  type Shell,
  scratchDirectory,
  sessionsNow,
  startChain,
  startHost,
  startShell,
  until,
  VARIANT,
} from '../shim_host.js';
import { CUDA, op, WireClient, words } from '../wire/wire_client.js';

const smi = await fetched('driver-550', 'usr/lib/nvidia/current/nvidia-smi');
const NVIDIA = 'usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.1';
const drivers = [
  {
    version: '535',
    ...(await fetched('driver-535', NVIDIA)),
    says: /is of CUDA 12\.2, and vgpu-hostd needs CUDA 12\.4: install driver 550 or newer/,
  },
  {
    version: '550',
    ...(await fetched('driver-550', NVIDIA)),
    says: /cuInit failed with 100 \(CUDA_ERROR_NO_DEVICE\); the driver is there, but it sees no GPU/,
  },
];

/** The daemon's message when it cannot serve. */
function refusal(args: readonly string[], env: Readonly<Record<string, string>> = {}) {
  const scratch = scratchDirectory();
  const ended = spawnSync(
    builtFile('vgpu-hostd'),
    ['--device', 'cuda', '--listen', `unix:${scratch.path}/s`, ...args],
    { encoding: 'utf8', timeout: 20_000, env: { ...process.env, ...env } },
  );
  const socket = existsSync(`${scratch.path}/s`);
  scratch.remove();
  return { status: ended.status, stderr: ended.stderr, socket };
}

describe('a host with --device cuda', () => {
  const scratch = scratchDirectory();
  let host: Host;
  let shells: Shell[] = [];
  const open = (): Shell => {
    const shell = startShell({ VGPU_HOST: host.address });
    shells.push(shell);
    return shell;
  };
  before(async () => {
    host = await startChain(scratch.path);
  });
  afterEach(async () => {
    for (const shell of shells) shell.kill();
    shells = [];
    await until('the sessions to end', () => isIdle(host), 20_000);
  });
  after(async () => {
    await host.stop();
    scratch.remove();
  });

  it('begins without a word of an error', () => {
    assert.doesNotMatch(host.log(), /^vgpu-hostd: *$/m);
    assert.match(host.log(), /device 0: /);
  });

  it('never loses that the device behind its driver is simulated', async () => {
    await host.logged(/device 0: NVIDIA H100 80GB HBM3 \(simulated\), 81079 MiB/);
    const probe = await runProgram(builtFile('vgpu-probe'), ['--json'], {
      env: { LD_LIBRARY_PATH: SHIM, VGPU_HOST: host.address },
      limit: 20_000,
    });
    const answer = JSON.parse(probe.stdout);
    assert.equal(answer.ok, true, probe.stdout);
    assert.equal(answer.simulated, true);
    assert.equal(answer.roundTrip.ok, true);
    assert.equal(answer.nvml.driver, '580.65.06');
  });

  it('opens the driver only for a session that computes', async () => {
    const shell = open();
    const opened = async (): Promise<boolean> =>
      (
        await runProgram('/bin/grep', ['-c', 'libcuda.so.1', `/proc/${worker()}/maps`], {
          env: {},
        })
      ).code === 0;
    const worker = (): string => /session \d+: unix, .* worker (\d+)\n.*\n?$/.exec(host.log())?.[1] ?? 'none';
    await askAll(shell, ['init', 'count', 'name 0', 'total 0', 'attributes', 'retain 0']);
    assert.equal(await opened(), false, 'facts and a primary context that nothing uses');
    await askAll(shell, ['ctx 0']);
    assert.equal(await opened(), true);
  });

  it('gives the driver no image whose parts lie outside of it, nor a pointer of the guest', async () => {
    const client = await WireClient.greeted(host.address.slice('unix:'.length), 1, 'socket');
    const context = 16n;
    assert.equal((await client.call(op('cuDevicePrimaryCtxRetain'), words(context, 0, 0))).status, 0);
    const cubin = readFileSync(path.join(ROOT, 'test/fixtures/code/kernels.sm_90.cubin'));
    const changed = (change: (bytes: Buffer) => void): Buffer => {
      const bytes = Buffer.from(cubin);
      change(bytes);
      return bytes;
    };
    const sections = Number(cubin.readBigUInt64LE(40));
    const [wrapper, far] = [Buffer.alloc(32), 1n << 40n];
    wrapper.writeUInt32LE(0x466243b1, 0);
    wrapper.writeBigUInt64LE(0x7fff_0000_0000n, 8);
    let module = 100n;
    for (const [what, image, result] of [
      ["nvcc's wrapper", wrapper, 200],
      ['sections far away', changed((b) => b.writeBigUInt64LE(far, 40)), 200],
      ['a section far away', changed((b) => b.writeBigUInt64LE(far, sections + 64 + 24)), 200],
      ['a section name beyond the names', changed((b) => b.writeUInt32LE(0x7fff_ffff, sections + 64)), 200],
      ['another machine', changed((b) => b.writeUInt16LE(62, 18)), 200],
      ['half of it', cubin.subarray(0, cubin.length >> 1), 200],
      ['all of it', cubin, 0],
    ] as const) {
      const hash = createHash('sha256').update(image).digest();
      const size = words(BigInt(image.length));
      client.post(CUDA | 930, Buffer.concat([hash, size, words(0n)]), image);
      const reply = await client.call(
        op('cuModuleLoadDataEx'),
        Buffer.concat([words(context, module++), hash, size]),
      );
      assert.equal(reply.status !== 0 ? reply.status : reply.body.readInt32LE(0), result, what);
    }
    client.close();
    await host.logged(/an image: nvcc's wrapper, which is a pointer of the guest's/);
  });

  it('gives a graph no conditions but its own, and no more of them than handles', async () => {
    const own = scratchDirectory();
    const small = await startChain(own.path, [], ['--session-handles', '40']);
    const client = await WireClient.greeted(small.address.slice('unix:'.length), 1, 'socket');
    const context = 16n;
    const condition = async (graph: bigint): Promise<{ status: number; handle: bigint }> => {
      const made = await client.call(op('cuGraphConditionalHandleCreate'), words(context, graph, 0, 0));
      return { status: made.status, handle: made.status === 0 ? made.body.readBigUInt64LE(0) : 0n };
    };
    const node = (symbol: string, body: Buffer): Buffer =>
      Buffer.concat([words(op(symbol), body.length, 0, 0), body, Buffer.alloc(-body.length & 7)]);
    const instantiate = async (exec: bigint, graph: bigint, handle: bigint): Promise<number> => {
      client.post(
        op('graph_nodes'),
        words(context, exec),
        Buffer.concat([
          node('graph_values', words(context, 0n, graph, 1, 1)),
          node('graph_condition', words(context, 0n, handle, 0, 1)),
          node('graph_body', words(context, 0n, 0, 0)),
        ]),
      );
      return (await client.call(op('cuGraphInstantiateWithFlags'), words(context, exec, 0n, 3, 0))).status;
    };
    try {
      assert.equal((await client.call(op('cuDevicePrimaryCtxRetain'), words(context, 0, 0))).status, 0);
      const [first, second] = [await condition(1n), await condition(2n)];
      assert.deepEqual([first.status, second.status], [0, 0]);
      assert.equal(await instantiate(100n, 1n, second.handle), 400, "another graph's");
      assert.equal(await instantiate(101n, 1n, 1n << 60n), 400, "nobody's");
      assert.equal(await instantiate(102n, 1n, first.handle), 0);
      let made = 2;
      for (let graph = 3n; graph < 60n && (await condition(graph)).status === 0; graph++) made++;
      assert.ok(made > 30 && made < 40, `${made} conditions`);
      client.post(op('graph_conditions_drop'), words(3n));
      assert.equal((await condition(4n)).status, 0);
      assert.equal((await condition(4n)).status, 2);
    } finally {
      client.close();
      await small.stop();
      own.remove();
    }
  });

  it('refuses addresses of another session, unused addresses, and ends that overrun', async () => {
    const first = open();
    const second = open();
    const address = (await askAll(first, ['init', 'ctx 0', 'alloc 4096'])).values[0] ?? '';
    await askAll(second, ['init', 'ctx 0']);
    for (const line of [`trip ${address} 16 1`, `free ${address}`, 'trip 0 16 1', `set8 ${address} 0 1`]) {
      assert.equal((await second.ask(line)).result, 1, line);
    }
    assert.equal((await first.ask(`trip ${address} 4097 1`)).result, 1);
    assert.equal((await first.ask(`trip ${address} 4096 1`)).result, 0);
  });

  it('frees what a session held when it is killed', async () => {
    const watcher = open();
    const whole = (await askAll(watcher, ['init', 'ctx 0', 'info'])).values[0];
    const greedy = open();
    await askAll(greedy, ['init', 'ctx 0', 'alloc 0x100000000']);
    assert.notEqual((await watcher.ask('info')).values[0], whole);
    greedy.kill();
    await until('its session to end', () => sessionsNow(host) === 1);
    // The driver behind has a process of its own that must see the end first; with TSan its end takes a second.
    let now = '';
    const end = performance.now() + 30_000;
    while (now !== whole && performance.now() < end) now = (await watcher.ask('info')).values[0] ?? '';
    assert.equal(now, whole);
  });

  const smiSkip =
    VARIANT === 'shim' ? smi.skip : 'a program that is not sanitized cannot load a sanitized library';
  it("tells the device's own used memory to NVIDIA's nvidia-smi", { skip: smiSkip }, async () => {
    const query = ['--query-gpu=name,driver_version,memory.used,power.limit', '--format=csv,noheader'];
    const ask = async (): Promise<string> =>
      (
        await runProgram(smi.path, query, {
          env: { LD_LIBRARY_PATH: SHIM, VGPU_HOST: host.address },
          limit: 20_000,
        })
      ).stdout.trim();
    const about = 'NVIDIA H100 80GB HBM3 (simulated), 580.65.06';
    assert.match(await ask(), new RegExp(`^${about.replace(/[()]/g, '\\$&')}, 0 MiB, 700\\.00 W$`));
    await askAll(open(), ['init', 'ctx 0', `alloc ${300 * 1024 * 1024}`]);
    assert.match(await ask(), /, 300 MiB, /);
  });

  it('holds each session to its limits', async () => {
    const limited = await startHost({
      device: 'cuda',
      listen: `unix:${scratch.path}/limited`,
      args: [
        '--cuda-library',
        builtFile('libcuda.so.1'),
        '--session-memory',
        '1000000',
        '--session-handles',
        '5',
      ],
      env: { VGPU_HOST: `unix:${scratch.path}/behind` },
    });
    try {
      const shell = startShell({ VGPU_HOST: limited.address });
      shells.push(shell);
      await askAll(shell, ['init', 'ctx 0', 'alloc 900000']);
      assert.equal((await shell.ask('alloc 200000')).result, 2);
      await askAll(shell, ['alloc 100', 'alloc 100', 'alloc 100']);
      assert.equal((await shell.ask('alloc 100')).result, 2, 'five handles and allocations');
    } finally {
      await limited.stop();
    }
  });
});

describe('a host with --device cuda and no GPU', () => {
  for (const { version, path: library, skip, says } of drivers) {
    it(`says so in words, with NVIDIA's driver ${version}`, { skip }, () => {
      const nvml = path.join(path.dirname(library), 'libnvidia-ml.so.1');
      const ended = refusal(['--cuda-library', library, '--nvml-library', nvml]);
      assert.equal(ended.status, 3, ended.stderr);
      assert.match(ended.stderr, says);
      assert.equal(ended.socket, false);
    });
  }

  it('names the library that is not there', () => {
    const ended = refusal(['--cuda-library', '/nonexistent/libcuda.so.1']);
    assert.equal(ended.status, 3);
    assert.match(ended.stderr, /no CUDA driver: \/nonexistent\/libcuda\.so\.1: cannot open shared object/);
  });

  it('takes no other library for a driver', () => {
    const ended = refusal(['--cuda-library', 'libc.so.6']);
    assert.equal(ended.status, 3);
    assert.match(ended.stderr, /libc\.so\.6 is not a CUDA driver: it lacks cuInit/);
  });

  it('says so when the driver behind has no host', () => {
    const ended = refusal(['--cuda-library', builtFile('libcuda.so.1')], {
      VGPU_HOST: 'unix:/nonexistent/s',
    });
    assert.equal(ended.status, 3);
    assert.match(ended.stderr, /cuInit failed with 100 \(CUDA_ERROR_NO_DEVICE\)/);
  });
});
