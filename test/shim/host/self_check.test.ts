/** `vgpu-hostd --self-check`: what a confined worker can do with the driver, and what is denied to it. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { describe, it } from 'node:test';
import { builtFile, VARIANT } from '../shim_host.js';
import { standIn } from './stand_in.js';

async function check(words: string): Promise<{ readonly status: number | null; readonly stdout: string }> {
  const { args, env } = await standIn(words);
  return spawnSync(builtFile('vgpu-hostd'), ['--device', 'cuda', '--self-check', ...args], {
    encoding: 'utf8',
    timeout: 60_000,
    env: { ...process.env, ...env },
  });
}

describe('vgpu-hostd --self-check', {
  skip: VARIANT !== 'shim' && 'the software device in the same process is built without sanitizers',
}, () => {
  it('takes each step that a session takes, with a driver that listens, reads /proc and starts a thread', async () => {
    const { status, stdout } = await check('always');
    assert.equal(status, 0, stdout);
    for (const step of ['cuInit', 'a context', 'an allocation', 'compiling a kernel', 'a launch', 'a copy'])
      assert.match(stdout, new RegExp(`^${step}: good$`, 'm'));
    assert.doesNotMatch(stdout, /denied/);
    assert.match(stdout, /^a worker can use this driver$/m);
  });

  it('names the system calls that were denied, also when the driver does without them', async () => {
    const { status, stdout } = await check('greedy');
    assert.equal(status, 0, stdout);
    assert.match(stdout, /^denied: bpf, 1 time$/m);
    assert.match(stdout, /^denied: accept4, 1 time$/m);
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
      [0, '--device software: it asks nothing of this machine\n'],
    );
  });
});
