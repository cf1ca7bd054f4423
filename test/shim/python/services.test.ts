/**
 * Model libraries, Jupyter and GPU monitors through `vgpu-agent run`, with skipped kernels. Every call is answered and
 * copied bytes arrive. The monitors show the process and its memory.
 */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { ROOT } from '../cuda/private_programs.js';
import { type Host, scratchDirectory, startHost } from '../shim_host.js';
import { findPython, long, skipPython, stepsPass } from './python_steps.js';

const python = findPython(
  'VGPU_TEST_SERVICES',
  'services-pip',
  'import importlib.metadata as m; [m.version(n) for n in ("onnxruntime-gpu", "ipykernel", "torch")]',
);
const skip =
  skipPython ||
  (python === undefined && 'no ONNX Runtime and Jupyter (scripts/fetch-packages torch-pip services-pip)');
const onlyLong = { skip: long ? false : '--long only' };

/** CTranslate2 is built for CUDA 12. */
const cublas = path.join(ROOT, '.cache/roots/cublas-12/usr/lib/x86_64-linux-gnu');
const nvtop = path.join(ROOT, '.cache/roots/nvtop/usr/bin/nvtop');

describe('libraries and programs that use PyTorch and CUDA, kernels skipped', { skip }, () => {
  const scratch = scratchDirectory();
  let host: Host;
  before(async () => {
    host = await startHost({ listen: `unix:${scratch.path}/s`, args: ['--software-kernels=skip'] });
  });
  after(async () => {
    await host.stop();
    scratch.remove();
  });

  const passes = (
    program: string,
    steps: readonly string[],
    env: Readonly<Record<string, string>> = {},
  ): Promise<void> =>
    stepsPass(python ?? '', program, steps, host, scratch.path, { HOME: scratch.path, ...env });

  it("copies what PyTorch's forked and spawned workers read, and fails a worker that uses its parent's GPU", async () => {
    await passes('inference_steps.py', ['workers-fork', 'workers-fork-gpu', 'workers-spawn']);
  });

  it('runs graphs of ONNX Runtime, bound to GPU memory and replayed', async () => {
    await passes('inference_steps.py', ['onnx']);
  });

  it('embeds sentences, also in other processes, and quantizes with bitsandbytes', onlyLong, async () => {
    await passes('inference_steps.py', ['embeddings', 'embeddings-in-processes', 'quantized']);
  });

  it('encodes and decodes with a Whisper of CTranslate2 in three types', {
    skip: onlyLong.skip || (!existsSync(cublas) && 'no cuBLAS 12 (scripts/fetch-packages cublas-12)'),
  }, async () => {
    await passes('inference_steps.py', ['whisper'], { LD_LIBRARY_PATH: cublas });
  });

  it(
    "runs cells in a Jupyter kernel, restarts it, and fills JupyterLab's GPU dashboard",
    onlyLong,
    async () => {
      await passes('jupyter_steps.py', ['kernel', 'dashboard']);
    },
  );

  it('shows a process and its memory in nvitop and nvtop', {
    skip: onlyLong.skip || (!existsSync(nvtop) && 'no nvtop (scripts/fetch-packages nvtop)'),
  }, async () => {
    await passes('monitor_steps.py', ['nvitop', 'nvtop'], { NVTOP: nvtop });
  });
});
