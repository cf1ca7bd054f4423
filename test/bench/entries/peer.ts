// The same kernels by a peer from Debian: PoCL, which compiles OpenCL C for the processor by LLVM. It is no emulator
// of a GPU: what it knows of the kernel is its source, and it may combine a group's threads as it likes.

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { ROUNDS, SIDE, STARTS, withKernels } from '../kernels.js';
import { type Comparison, type Entry, inTurn } from '../measure.js';
import { openclBench, poclRoot } from '../paths.js';
import { runTimed } from '../run-timed.js';

export const peer: Entry = {
  name: 'peer',
  what: 'the same kernels by PoCL, which compiles OpenCL C for one core',
  runs: 9,
  missing: existsSync(join(poclRoot, '.complete')) ? false : 'run scripts/fetch-packages pocl',
  measure,
};

function measure(runs: number): Promise<readonly Comparison[]> {
  return withKernels(async (kernels, scratch) => {
    const pocl = (...args: readonly string[]): number =>
      Number(
        runTimed(openclBench, args, {
          LD_LIBRARY_PATH: `${poclRoot}/usr/lib/x86_64-linux-gnu:${poclRoot}/usr/lib/llvm-15/lib`,
          OCL_ICD_VENDORS: `${poclRoot}/etc/OpenCL/vendors`,
          // The device that works in the thread that calls it: one core, as the kernels beside it have.
          POCL_DEVICES: 'basic',
          POCL_CACHE_DIR: join(scratch, 'pocl'),
        }).stdout,
      );
    return [
      await inTurn(`a product of two f32 matrices of ${SIDE} by tiles of 16`, runs, [
        { name: 'the kernel, one core', unit: 'ms', once: () => kernels.matmul() / 1e6 },
        { name: 'PoCL, one core', unit: 'ms', once: () => pocl('matmul', `${SIDE}`) / 1e6 },
      ]),
      await inTurn('instructions of threads, millions a second', runs, [
        { name: 'the kernel, one core', unit: 'M/s', once: () => kernels.rate(kernels.mads()) },
        { name: 'PoCL, one core', unit: 'M/s', once: () => kernels.rate(pocl('mads', `${ROUNDS}`)) },
      ]),
      await inTurn(`lanes that part at each step: collatz from 1 to ${STARTS}`, runs, [
        { name: 'the kernel, one core', unit: 'ms', once: () => kernels.collatz() / 1e6 },
        { name: 'PoCL, one core', unit: 'ms', once: () => pocl('collatz', `${STARTS}`) / 1e6 },
      ]),
    ];
  });
}
