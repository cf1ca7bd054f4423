/** `vgpu-hostd --self-check`: what a confined worker can do with the driver, and what is denied to it. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import path from 'node:path';
import { describe, it } from 'node:test';
import { ROOT } from '../cuda/private_programs.js';
import { builtFile, scratchDirectory } from '../shim_host.js';
import { standIn, standInNvml } from './stand_in.js';
import { profile, twoDevices } from './two_devices.js';

async function check(
  words: string,
  more: readonly string[] = [],
  variables: Readonly<Record<string, string>> = {},
  device = 'h100-80gb',
): Promise<{ readonly status: number | null; readonly stdout: string; readonly stderr: string }> {
  const { args, env } = await standIn(words, path.resolve(ROOT, 'profiles/devices', `${device}.json`));
  return spawnSync(builtFile('vgpu-hostd'), ['--device', 'cuda', '--self-check', ...args, ...more], {
    encoding: 'utf8',
    timeout: 60_000,
    env: { ...process.env, ...env, ...variables },
  });
}

describe('vgpu-hostd --self-check', () => {
  it('takes each step that a session takes, with a driver that listens, reads /proc and starts a thread', async () => {
    const { status, stdout } = await check('always');
    assert.equal(status, 0, stdout);
    for (const step of [
      ...['cuInit', 'a context', 'a context of a second process at the same time', 'an allocation'],
      ...['compiling a kernel', 'a launch', 'a copy', 'registering shared memory', 'a captured graph'],
    ])
      assert.match(stdout, new RegExp(`^${step}: good$`, 'm'));
    assert.match(stdout, /^driver: .*, CUDA 13\.0$/m);
    assert.match(stdout, /^ {2}it took \d+ ms\n[\s\S]*^ {2}it is at 0x[0-9a-f]+$/m);
    assert.match(stdout, /^MPS: not used/m);
    assert.doesNotMatch(stdout, /denied/);
    assert.match(stdout, /^a worker can use this driver$/m);
  });

  it("gives the driver the addresses of a worker's driver", { skip: process.arch !== 'x64' }, async () => {
    const { status, stderr } = await check('wide');
    assert.equal(status, 0, stderr);
    // The daemon prints the first address when it lists its devices, the two confined processes print the others.
    const [, ...confined] = [...stderr.matchAll(/a TiB at 0x([0-9a-f]+)/g)].map(([, at]) =>
      BigInt(`0x${at}`),
    );
    assert.equal(confined.length, 2, stderr);
    for (const address of confined) assert.ok(address < 0x7e00_0000_0000n, stderr);
  });

  it('holds sixteen streams while memory is freed, on a device that waits for them', async () => {
    const { status, stdout } = await check('hardware');
    assert.equal(status, 0, stdout);
    assert.match(stdout, /^gates of 16 streams beside cuMemFree: good$/m);
  });

  it('says what to change when the GPU is for one process only', async () => {
    const { status, stdout } = await check('exclusive');
    assert.equal(status, 1, stdout);
    assert.match(stdout, /^warning: device 0 is in compute mode 3: it serves one session at a time;/m);
    assert.match(stdout, /^a context of a second process .* CUresult 46 .*: nvidia-smi -c DEFAULT$/m);
  });

  it('says what an old driver means for consumers, and that persistence mode is off', async () => {
    const nvml = ['--nvml-library', await standInNvml()];
    const old = await check('always', nvml, { STAND_IN_VERSION: '550.163.01' }, 'p40');
    assert.match(old.stdout, /^driver: 550\.163\.01,/m);
    assert.match(old.stdout, /^warning: device 0 is of compute capability 6\.1: Ollama .*driver 570 to 580/m);
    assert.match(old.stdout, /^warning: persistence mode of device 0 is off: .*nvidia-persistenced/m);
    const recent = { STAND_IN_VERSION: '580.65.06', STAND_IN_PERSISTENCE: '1' };
    assert.doesNotMatch((await check('always', nvml, recent, 'p40')).stdout, /^warning: (?:device|pers)/m);
  });

  it('lists the MIG instances of a GPU, and runs each step on one of them', async (t) => {
    const scratch = scratchDirectory();
    t.after(() => scratch.remove());
    twoDevices(`${scratch.path}/two.json`);
    const uuids = ['a100-40gb', 'h200'].map((name) => profile(name).devices[0]?.uuid.slice(4) ?? '');
    const nvml = ['--nvml-library', await standInNvml()];
    const { status, stdout } = await check(
      'mig',
      nvml,
      { STAND_IN_MIG: uuids.join() },
      `${scratch.path}/two`,
    );
    assert.equal(status, 0, stdout);
    for (const index of [0, 1])
      assert.match(stdout, new RegExp(`^device ${index}: .*, a MIG instance$`, 'm'));
    assert.match(stdout, /^a worker can use this driver$/m);
  });

  it('names the system calls that were denied, also when the driver does without them', async () => {
    const { status, stdout } = await check('greedy');
    assert.equal(status, 0, stdout);
    assert.match(stdout, /^denied: bpf, 2 times$/m, 'by both processes');
    assert.match(stdout, /^denied: accept4, 2 times$/m);
  });

  it('says which step fails, and what of the devices cannot be opened', async () => {
    const { status, stdout } = await check('broken');
    assert.equal(status, 1, stdout);
    assert.match(stdout, /^an allocation: good$/m);
    assert.match(stdout, /^compiling a kernel failed with CUresult 700 in a confined process/m);
    if (!existsSync('/dev/nvidia0')) assert.match(stdout, /^\/dev\/nvidia0: No such file/m);
  });

  it('has nothing to check of the software device', () => {
    const ended = spawnSync(builtFile('vgpu-hostd'), ['--device', 'software', '--self-check'], {
      encoding: 'utf8',
    });
    assert.deepEqual(
      [ended.status, ended.stdout],
      [0, '--device software needs nothing of this machine: nothing to check\n'],
    );
  });
});
