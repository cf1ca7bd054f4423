/**
 * PyTorch with CUDA 13's libraries, kernels skipped: its own are machine code without PTX. What is tested is that
 * every call of it, cuBLAS, cuDNN and cuFFT is answered.
 */
import { after, before, describe, it } from 'node:test';
import { type Host, scratchDirectory, startHost } from '../shim_host.js';
import { findPython, long, skipPython, stepsPass } from './python_steps.js';

/** PyTorch was built for CUDA 13 and has its libraries. */
const python = findPython(
  'VGPU_TEST_TORCH',
  'torch-pip',
  'import importlib.metadata as m; m.version("nvidia-cublas"); assert "+cpu" not in m.version("torch")',
);
const skip =
  skipPython || (python === undefined && 'no PyTorch with CUDA 13 (scripts/fetch-packages torch-pip)');

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
    stepsPass(python ?? '', 'torch_steps.py', steps, host, scratch.path);

  it('multiplies in three types, trains, replays a graph and runs out of memory as it should', async () => {
    await passes(['mm', 'bf16', 'half', 'train', 'graph', 'memory', 'expandable']);
  });

  it('convolves, attends, transforms, solves and compiles', {
    skip: long ? false : '--long only',
  }, async () => {
    await passes(['convolution', 'attention', 'fft', 'solve', 'svd', 'sparse', 'compile']);
  });
});
