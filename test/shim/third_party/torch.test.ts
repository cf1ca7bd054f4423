/**
 * PyTorch with CUDA 13's libraries, kernels skipped: its own are machine code without PTX. What is tested is that
 * every call of it, cuBLAS, cuDNN and cuFFT is answered.
 */
import assert from 'node:assert/strict';
import { execFile, spawnSync } from 'node:child_process';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { promisify } from 'node:util';
import { ROOT } from '../cuda/private_programs.js';
import { type Host, SHIM, scratchDirectory, startHost } from '../shim_host.js';

const run = promisify(execFile);
const long = process.env['VGPU_TEST_LONG'] === '1';

/** A Python whose PyTorch was built for CUDA 13 and has its libraries; undefined: none here. */
function findPython(): string | undefined {
  const named = process.env['VGPU_TEST_TORCH'];
  const cached = path.join(ROOT, '.cache/venv-torch/bin/python');
  const question =
    'import importlib.metadata as m; m.version("nvidia-cublas"); assert "+cpu" not in m.version("torch")';
  return (named === undefined ? [cached, 'python3'] : [named]).find(
    (python) => spawnSync(python, ['-c', question], { stdio: 'ignore' }).status === 0,
  );
}

const python = findPython();
const skip =
  python === undefined
    ? 'no PyTorch with CUDA 13 (python3 -m venv .cache/venv-torch; .cache/venv-torch/bin/pip install torch numpy)'
    : false;

describe('PyTorch, its kernels skipped', { skip }, () => {
  const scratch = scratchDirectory();
  let host: Host;
  before(async () => {
    host = await startHost({ listen: `unix:${scratch.path}/s`, args: ['--software-kernels=skip'] });
  });
  after(async () => {
    await host.stop();
    scratch.remove();
  });

  const passes = async (steps: readonly string[]): Promise<void> => {
    const { stdout } = await run(
      python ?? '',
      [path.join(ROOT, 'test/shim/programs/torch_steps.py'), ...steps],
      {
        env: {
          ...process.env,
          LD_LIBRARY_PATH: SHIM,
          VGPU_HOST: host.address,
          TORCHINDUCTOR_CACHE_DIR: path.join(scratch.path, 'inductor'),
          TRITON_CACHE_DIR: path.join(scratch.path, 'triton'),
        },
        timeout: 600_000,
      },
    );
    assert.deepEqual(
      stdout.trim().split('\n'),
      steps.map((step) => `${step} ok`),
    );
  };

  it('multiplies in three types, trains, replays a graph and runs out of memory as it should', async () => {
    await passes(['mm', 'bf16', 'half', 'train', 'graph', 'memory', 'expandable']);
  });

  it('convolves, attends, transforms, solves and compiles', {
    skip: long ? false : '--long only',
  }, async () => {
    await passes(['convolution', 'attention', 'fft', 'solve', 'svd', 'sparse', 'compile']);
  });
});
