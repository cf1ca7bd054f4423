/**
 * numba's own CUDA target: its PTX, made by NVIDIA's NVVM, with results that numpy has as well. Where a numba finds
 * an NVVM.
 */
import { after, before, describe, it } from 'node:test';
import { type Host, scratchDirectory, startHost } from '../shim_host.js';
import { findPython, long, skipPython, stepsPass } from './python_steps.js';

/** numba finds both that its PTX is made with. */
const python = findPython(
  'VGPU_TEST_NUMBA',
  'cuda-pip',
  'from numba.cuda.cudadrv.nvvm import NVVM, LibDevice; NVVM(); LibDevice()',
);
const skip =
  skipPython || (python === undefined && 'no numba-cuda with NVVM (scripts/fetch-packages cuda-pip)');

describe('numba', { skip }, () => {
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
    stepsPass(python ?? '', 'numba_steps.py', steps, host, scratch.path);

  it('computes with blocks, shared memory, atomics and shuffles what numpy computes', async () => {
    await passes(['kernels', 'matrices', 'atomics', 'warps']);
  });

  it('synchronizes a grid, orders by streams, maps and manages memory, reduces, draws numbers', {
    skip: long ? false : '--long only',
  }, async () => {
    await passes(['grids', 'streams', 'shared-memory', 'functions']);
  });
});
