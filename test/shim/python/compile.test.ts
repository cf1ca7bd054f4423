/**
 * torch.compile through `vgpu-agent run`: what Inductor makes is Triton's and computes on the simulated GPU. ATen's own
 * kernels are machine code only; the CPU does them here, so that all numbers can be compared with PyTorch's on the CPU.
 */
import { after, before, describe, it } from 'node:test';
import { type Host, scratchDirectory, startHost } from '../shim_host.js';
import { findPython, long, skipPython, stepsPass } from './python_steps.js';

const python = findPython(
  'VGPU_TEST_TORCH',
  'torch-pip',
  'import importlib.metadata as m; m.version("triton"); assert "+cpu" not in m.version("torch")',
);
const skip =
  skipPython || (python === undefined && 'no PyTorch with CUDA (scripts/fetch-packages torch-pip)');

describe('torch.compile', { skip }, () => {
  const scratch = scratchDirectory();
  let host: Host;
  before(async () => {
    host = await startHost({ listen: `unix:${scratch.path}/s` });
  });
  after(async () => {
    await host.stop();
    scratch.remove();
  });

  const passes = (steps: readonly string[]): Promise<void> =>
    stepsPass(python ?? '', 'compile_steps.py', steps, host, scratch.path, {
      TORCHINDUCTOR_COMPILE_THREADS: '1',
    });

  it('computes forward and backward what PyTorch does on the CPU', async () => {
    await passes(['pointwise', 'mlp']);
  });

  it('reduces, convolves, attends, trains, rounds and multiplies by templates', {
    skip: long ? false : '--long only',
  }, async () => {
    await passes(['reductions', 'convolution', 'transformer', 'training', 'halves']);
    await passes(['flex-attention', 'matmul-templates']);
  });
});
