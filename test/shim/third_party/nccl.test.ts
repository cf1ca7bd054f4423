/** NVIDIA's NCCL on two simulated GPUs, whose kernels are skipped: all of its calls, and none of its results. */
import assert from 'node:assert/strict';
import { existsSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { buildProgram, ROOT, runProgram } from '../cuda/private_programs.js';
import { type Host, SHIM, scratchDirectory, startChain, startHost, VARIANT } from '../shim_host.js';

/** The library of the virtual environment, whatever its version of Python; where there is none, a path to no file. */
function findNccl(): string {
  const lib = path.join(ROOT, '.cache/roots/nccl-pip/lib');
  const [python = 'python3'] = existsSync(lib) ? readdirSync(lib) : [];
  return path.join(lib, python, 'site-packages/nvidia/nccl/lib/libnccl.so.2');
}
const NCCL = findNccl();
const skip =
  VARIANT !== 'shim'
    ? 'a program without sanitizers loads the library'
    : process.env['VGPU_TEST_LONG'] !== '1'
      ? 'only with --long'
      : !existsSync(NCCL) && 'scripts/fetch-packages nccl-pip has not fetched it';

const HOST = ['--software-kernels', 'skip', '--profile', 'h100-80gb', '--profile', 'h100-80gb'];

for (const [way, start] of [
  ['two simulated GPUs', (directory: string) => startHost({ listen: `unix:${directory}/s`, args: HOST })],
  ['--device cuda over our own library', (directory: string) => startChain(directory, HOST)],
] as const) {
  describe(`NCCL on ${way}`, { skip, concurrency: false }, () => {
    const scratch = scratchDirectory();
    let host: Host;
    let program = '';
    before(async () => {
      host = await start(scratch.path);
      program = await buildProgram({
        name: 'nccl_start',
        sources: ['test/shim/programs/nccl_start.c'],
        sanitize: 'none',
        libraries: ['dl'],
      });
    });
    after(async () => {
      await host.stop();
      scratch.remove();
    });

    const run = async (words: readonly string[]): Promise<void> => {
      const ended = await runProgram(program, [NCCL, ...words], {
        env: { VGPU_HOST: host.address, LD_LIBRARY_PATH: SHIM, NCCL_DEBUG: 'WARN' },
        limit: 120_000,
      });
      assert.equal(ended.code, 0, ended.stdout + ended.stderr);
      assert.match(
        ended.stdout,
        /ncclAllReduce 0\n(?:.*\n)*cuStreamSynchronize 0\n(?:.*\n)*ncclCommDestroy 0\n$/,
      );
    };

    it('begins in one process with one device', () => run(['all', '1']));
    it('begins in one process with two devices', () => run(['all', '2']));
    it('begins in two processes with a device each', async () => {
      const file = `${scratch.path}/group`;
      await Promise.all([run(['rank', '0', file]), run(['rank', '1', file])]);
    });
  });
}
