import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { fetched, type Hostd, startHostd } from '../nvml/hostd.js';
import { buildProgram, ROOT, runProgram } from './private_programs.js';

const LIBRARY = 'usr/lib/x86_64-linux-gnu';
const runtimes = [
  { version: 11080, ...(await fetched('cudart-11', `${LIBRARY}/libcudart.so.11.0`)) },
  { version: 12040, ...(await fetched('cudart-12', `${LIBRARY}/libcudart.so.12`)) },
  { version: 13000, ...(await toolkit()) },
];

/** The runtime of a CUDA toolkit on this machine, if there is one. */
async function toolkit(): Promise<{ path: string; skip: string | false }> {
  const file = '/usr/local/cuda/lib64/libcudart.so.13';
  const { code } = await runProgram('test', ['-e', file]);
  return { path: file, skip: code === 0 ? false : 'no CUDA 13 toolkit on this machine' };
}

describe("NVIDIA's own runtimes through the shim", () => {
  let host: Hostd;
  let two: Hostd;
  let scratch = '';
  let program = '';
  before(async () => {
    program = await buildProgram({
      name: 'private_runtime',
      sources: ['test/shim/programs/private_runtime.c'],
      sanitize: 'none',
    });
    host = await startHostd();
    scratch = await mkdtemp(path.join(os.tmpdir(), 'runtime-'));
    const devices = [];
    for (const [bus, name] of ['t4', 'l40s'].entries()) {
      const profile = JSON.parse(
        await readFile(path.join(ROOT, 'profiles', 'devices', `${name}.json`), 'utf8'),
      );
      devices.push({ ...profile.devices[0], pci: { address: `000${bus}:4${bus}:0${bus}.0` } });
    }
    const file = path.join(scratch, 'two.json');
    await writeFile(file, JSON.stringify({ schema: 1, devices }));
    two = await startHostd(['--profile', file]);
  });
  after(async () => {
    await host.stop();
    await two.stop();
    await rm(scratch, { recursive: true, force: true });
  });

  for (const { version, path: library, skip } of runtimes) {
    it(`cudart ${version} starts, finds the device and moves memory`, { skip }, async () => {
      const ended = await runProgram(program, [library], { env: host.env });
      assert.equal(ended.stderr, '');
      assert.equal(ended.code, 0);
      assert.deepEqual(JSON.parse(ended.stdout), {
        driver: 13000,
        runtime: version,
        count: 1,
        name: 'NVIDIA H100 80GB HBM3 (simulated)',
        memory: 85017755648,
        processors: 132,
        compute: '9.0',
        total: 85017755648,
        taken: 8 * 1024 * 1024,
        kept: 0,
        equal: true,
      });
    });

    it(`cudart ${version} without a host says that there is no device`, { skip }, async () => {
      const env = { ...host.env, VGPU_HOST: 'unix:/nonexistent.sock' };
      const ended = await runProgram(program, [library], { env, limit: 10_000 });
      assert.equal(ended.signal, null);
      assert.equal(ended.code, 1);
      assert.match(ended.stderr, /^cuda\w+: 100 no CUDA-capable device is detected\n$/);
    });
  }

  // The runtime checks the answer over all devices that it is told of, in the order in which it is told
  // them; a wrong one would be error 103.
  for (const { version, path: library, skip } of runtimes) {
    for (const [visible, name, count] of [
      ['0,1', 'Tesla T4 (simulated)', 2],
      ['1,0', 'NVIDIA L40S (simulated)', 2],
      ['GPU-5a0d1c6e-8048', 'NVIDIA L40S (simulated)', 1],
    ] as const) {
      it(`cudart ${version} accepts two devices as CUDA_VISIBLE_DEVICES=${visible} orders them`, {
        skip,
      }, async () => {
        const ended = await runProgram(program, [library], {
          env: { ...two.env, CUDA_VISIBLE_DEVICES: visible },
        });
        assert.equal(ended.code, 0, ended.stderr);
        const seen = JSON.parse(ended.stdout);
        assert.deepEqual([seen.name, seen.count, seen.equal], [name, count, true]);
      });
    }

    // Both profiles name the same bus, so the second device is given another one.
    it(`cudart ${version} accepts the devices of two profiles`, { skip }, async () => {
      const both = await startHostd(['--profile', 'a100-40gb', '--profile', 'h100-80gb']);
      try {
        const ended = await runProgram(program, [library], { env: both.env });
        assert.equal(ended.code, 0, ended.stderr);
        const seen = JSON.parse(ended.stdout);
        assert.deepEqual([seen.count, seen.equal], [2, true]);
      } finally {
        await both.stop();
      }
    });
  }
});
