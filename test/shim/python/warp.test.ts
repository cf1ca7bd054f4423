/**
 * Warp through `vgpu-agent run`: its kernels as PTX, its own for sorts and sums too, with the results of Warp on the CPU.
 * 1.14 is built for CUDA 12.9. A Warp built for a newer CUDA than the driver's assembles PTX by itself, to machine code.
 */
import { after, before, describe, it } from 'node:test';
import { type Host, scratchDirectory, startHost } from '../shim_host.js';
import { findPython, long, skipPython, stepsPass } from './python_steps.js';

const python = findPython('VGPU_TEST_WARP', 'warp-pip', 'import warp; warp.Tape');
const skip = skipPython || (python === undefined && 'no Warp (scripts/fetch-packages warp-pip)');

describe('Warp', { skip }, () => {
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
    stepsPass(python ?? '', 'warp_steps.py', steps, host, scratch.path, {
      WARP_CACHE_PATH: `${scratch.path}/warp`,
    });

  it('computes on arrays, differentiates, sorts and sums as on the CPU', async () => {
    await passes(['arrays', 'gradients', 'sorts']);
  });

  it('turns, draws, finds in meshes and grids, loads tiles and replays a graph', {
    skip: long ? false : '--long only',
  }, async () => {
    await passes(['geometry', 'numbers', 'meshes', 'grids', 'tiles', 'graphs']);
  });
});
