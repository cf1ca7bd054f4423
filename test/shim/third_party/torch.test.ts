/**
 * PyTorch with CUDA 13's libraries, kernels skipped: its own are machine code without PTX. What is tested is that
 * every call of it, cuBLAS, cuDNN and cuFFT is answered.
 */
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { type Host, scratchDirectory, startHost, VARIANT } from '../shim_host.js';
import { findPython, stepsPass } from './python_steps.js';

const long = process.env['VGPU_TEST_LONG'] === '1';

/** PyTorch was built for CUDA 13 and has its libraries. */
const python = findPython(
  'VGPU_TEST_TORCH',
  'venv-torch',
  'import importlib.metadata as m; m.version("nvidia-cublas"); assert "+cpu" not in m.version("torch")',
);
const skip =
  VARIANT !== 'shim'
    ? 'a program that is not sanitized cannot load a sanitized library'
    : python === undefined
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

  const passes = (steps: readonly string[]): Promise<void> =>
    stepsPass(python ?? '', 'torch_steps.py', steps, host, {
      TORCHINDUCTOR_CACHE_DIR: path.join(scratch.path, 'inductor'),
      TRITON_CACHE_DIR: path.join(scratch.path, 'triton'),
    });

  it('multiplies in three types, trains, replays a graph and runs out of memory as it should', async () => {
    await passes(['mm', 'bf16', 'half', 'train', 'graph', 'memory', 'expandable']);
  });

  it('convolves, attends, transforms, solves and compiles', {
    skip: long ? false : '--long only',
  }, async () => {
    await passes(['convolution', 'attention', 'fft', 'solve', 'svd', 'sparse', 'compile']);
  });
});
