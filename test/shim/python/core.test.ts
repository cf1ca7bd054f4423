/**
 * cuda.core and cuda.bindings: programs compiled by NVRTC, linked, launched, and in graphs. The host is one of CUDA 13.5, because
 * cuda.core warns that an older driver does not load PTX of its NVRTC.
 */
import { after, before, describe, it } from 'node:test';
import { type Host, profileOfCuda, scratchDirectory, startHost } from '../shim_host.js';
import { findPython, skipPython, stepsPass } from './python_steps.js';

const python = findPython('VGPU_TEST_CUDA_CORE', 'cuda-pip', 'import cuda.core.graph, nvidia.cu13');
const skip =
  skipPython || (python === undefined && 'no cuda.core with NVRTC (scripts/fetch-packages cuda-pip)');

describe('cuda.core', { skip }, () => {
  const scratch = scratchDirectory();
  let host: Host;
  before(async () => {
    const profile = profileOfCuda('13.5', scratch.path);
    host = await startHost({ listen: `unix:${scratch.path}/s`, args: ['--profile', profile] });
  });
  after(async () => {
    await host.stop();
    scratch.remove();
  });
  const steps = (...names: readonly string[]): Promise<void> =>
    stepsPass(python ?? '', 'core_steps.py', names, host, scratch.path, { PYTHONWARNINGS: 'error' });

  it('compiles templates, and links LTO code to PTX', () => steps('programs', 'linked'));

  it('fills, copies and shares memory, and orders streams by events', () => steps('memory', 'events'));

  it('launches graphs that were captured, defined and updated', () => steps('captured', 'defined'));

  it('names graphs and nodes by the calls of CUDA 13.1 to 13.4', () => steps('names'));
});
