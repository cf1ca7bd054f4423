/** CuPy through `vgpu-agent run`, which makes it give PTX to the driver: results that numpy has as well. */
import { after, before, describe, it } from 'node:test';
import { type Host, scratchDirectory, startHost } from '../shim_host.js';
import { findPython, long, skipPython, stepsPass } from './python_steps.js';

const python = findPython('VGPU_TEST_CUPY', 'cuda-pip', 'import cupy');
const skip = skipPython || (python === undefined && 'no CuPy (scripts/fetch-packages cuda-pip)');

describe('CuPy', { skip }, () => {
  const scratch = scratchDirectory();
  let host: Host;
  before(async () => {
    host = await startHost({ listen: `unix:${scratch.path}/s` });
  });
  after(async () => {
    await host.stop();
    scratch.remove();
  });

  // CUB and Thrust, which are in CuPy's wheel, are machine code only.
  const passes = (steps: readonly string[]): Promise<void> =>
    stepsPass(python ?? '', 'cupy_steps.py', steps, host, scratch.path, { CUPY_ACCELERATORS: '' });

  it('computes element by element, and kernels in CUDA C', async () => {
    await passes(['elementwise', 'raw']);
  });

  it('reduces, takes by indices, orders by streams and replays a graph', {
    skip: long ? false : '--long only',
  }, async () => {
    await passes(['reductions', 'indexing', 'streams']);
  });
});
