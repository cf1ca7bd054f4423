/**
 * numba's own CUDA target: its PTX, made by NVIDIA's NVVM, with results that numpy has as well. Where a numba finds
 * an NVVM.
 */
import { after, before, describe, it } from 'node:test';
import { type Host, scratchDirectory, startHost, VARIANT } from '../shim_host.js';
import { findPython, stepsPass } from './python_steps.js';

const long = process.env['VGPU_TEST_LONG'] === '1';

/** Where libdevice is, and NVVM unless a wheel has it. */
const CUDA_HOME = process.env['CUDA_HOME'] ?? '/usr/local/cuda';

/** numba finds both that its PTX is made with. */
const python = findPython(
  'VGPU_TEST_NUMBA',
  'venv-numba',
  'from numba.cuda.cudadrv.nvvm import NVVM, LibDevice; NVVM(); LibDevice()',
  { CUDA_HOME },
);

function reasonToSkip(): string | false {
  if (VARIANT !== 'shim') return 'a program that is not sanitized cannot load a sanitized library';
  return python === undefined
    ? 'no numba with NVVM (python3 -m venv .cache/venv-numba; .cache/venv-numba/bin/pip install numba; CUDA_HOME names the toolkit)'
    : false;
}

describe('numba', { skip: reasonToSkip() }, () => {
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
    stepsPass(python ?? '', 'numba_steps.py', steps, host, { CUDA_HOME });

  it('computes with blocks, shared memory, atomics and shuffles what numpy computes', async () => {
    await passes(['kernels', 'matrices', 'atomics', 'warps']);
  });

  it('synchronizes a grid, orders by streams, maps and manages memory, reduces, draws numbers', {
    skip: long ? false : '--long only',
  }, async () => {
    await passes(['grids', 'streams', 'shared-memory', 'functions']);
  });
});
