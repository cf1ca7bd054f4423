/**
 * The newest compilers of the Python package index: a program of four modules, built by nvcc with the runtime linked in; and
 * NVRTC and nvJitLink.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { promisify } from 'node:util';
import { ROOT } from '../cuda/private_programs.js';
import { type Host, profileOfCuda, scratchDirectory, startHost } from '../shim_host.js';
import { asRun, findPython, skipPython, stepsPass } from './python_steps.js';

const run = promisify(execFile);
const python = findPython('VGPU_TEST_NVCC', 'cuda-pip', 'import nvidia.cu13');
const toolkit = python === undefined ? '' : await where(python);
const nvcc = path.join(toolkit, 'bin/nvcc');
const skip = skipPython || (!existsSync(nvcc) && 'no nvcc of pip (scripts/fetch-packages cuda-pip)');

async function where(program: string): Promise<string> {
  const { stdout } = await run(program, ['-c', 'import nvidia.cu13; print(nvidia.cu13.__path__[0])']);
  return stdout.trim();
}

describe('nvcc, NVRTC, nvJitLink and the runtime of CUDA 13.5', { skip }, () => {
  const scratch = scratchDirectory();
  let host: Host;
  let newer: Host;
  before(async () => {
    host = await startHost({ listen: `unix:${scratch.path}/s` });
    const profile = profileOfCuda('13.5', scratch.path);
    newer = await startHost({ listen: `unix:${scratch.path}/n`, args: ['--profile', profile] });
  });
  after(async () => {
    await host.stop();
    await newer.stop();
    scratch.remove();
  });

  it('makes a green context of 16 multiprocessors, whose stream works', async () => {
    const program = path.join(ROOT, 'test/shim/programs/runtime_green.py');
    const runtime = path.join(toolkit, 'lib/libcudart.so.13');
    const { stdout } = await asRun([python ?? '', program, runtime], host, scratch.path);
    const lines = stdout.trim().split('\n');
    assert.equal(lines.pop(), 'multiprocessors 16 bytes {7}');
    for (const line of lines) assert.match(line, /^cuda\w+ 0$/);
    assert.equal(lines.length, 14);
  });

  it('run a program of PTX 9.5 against the shim as a driver of 13.0 and of 13.5', async () => {
    const { stdout: version } = await run(nvcc, ['--version']);
    assert.match(version, /release 13\.5/);
    const source = path.join(ROOT, 'test/shim/programs/runtime_tour.cu');
    const objects = [0, 1, 2, 3].map((number) => path.join(scratch.path, `${number}.o`));
    for (const [number, object] of objects.entries()) {
      const code = ['-gencode', 'arch=compute_90,code=compute_90', `-DTOUR_MODULE=${number}`];
      await run(nvcc, [...code, '-c', '-o', object, source], { maxBuffer: 1 << 24 });
    }
    const program = path.join(scratch.path, 'tour');
    await run(nvcc, ['-L', path.join(toolkit, 'lib'), '-o', program, ...objects]);
    for (const each of [host, newer]) {
      const { stdout } = await asRun([program], each, scratch.path);
      const lines = stdout.trim().split('\n');
      assert.match(lines[0] ?? '', /^NVIDIA H100 80GB HBM3 \(simulated\) 9\.0, /);
      assert.equal(lines.length, 13);
      for (const line of lines.slice(1)) assert.match(line, /^\w+ ok$/);
    }
  });

  it('compile with NVRTC, and link with nvJitLink to PTX, and to machine code that does not run', async () => {
    const steps = ['nvrtc', 'link-to-ptx', 'link-to-machine-code'];
    await stepsPass(python ?? '', 'jitlink_steps.py', steps, host, scratch.path);
  });
});
