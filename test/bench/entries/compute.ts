// The cost of kernels on the simulated GPU: one core of it beside the same sums as loops of C.

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { launched } from '../launched.js';
import { type Comparison, type Entry, inTurn } from '../measure.js';
import { computeBench, repository } from '../paths.js';
import { runTimed } from '../run-timed.js';

export const compute: Entry = {
  name: 'compute',
  what: "the simulated GPU's arithmetic on one core, without the shim",
  runs: 9,
  measure,
};

const SIDE = 512;
const THREADS = 256;
const ROUNDS = 20_000;
/** Instructions in the loop below, of which eight compute. */
const IN_LOOP = 11;

/** Integer multiply-adds, each of which needs the one before: only faster instructions make it faster. */
const MADS = `.version 6.0
.target sm_61
.address_size 64
.visible .entry mads(.param .u64 out, .param .u32 rounds)
{
  .reg .pred %p<2>;
  .reg .b32 %r<4>;
  .reg .b64 %d<3>;
  ld.param.u64 %d1, [out];
  ld.param.u32 %r1, [rounds];
  mov.u32 %r2, %tid.x;
again:
${'  mad.lo.u32 %r2, %r2, 1664525, 1013904223;\n'.repeat(8)}  sub.u32 %r1, %r1, 1;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra again;
  mov.u32 %r3, %tid.x;
  mul.wide.u32 %d2, %r3, 4;
  add.u64 %d1, %d1, %d2;
  st.global.u32 [%d1], %r2;
  ret;
}
`;

function counted(...args: readonly string[]): number {
  return Number(runTimed(computeBench, args).stdout);
}

async function measure(runs: number): Promise<readonly Comparison[]> {
  const scratch = mkdtempSync(join(tmpdir(), 'compute-'));
  try {
    const mads = join(scratch, 'mads.ptx');
    writeFileSync(mads, MADS);
    const tiles = join(repository, 'test/shim/kernels/ptx/parallel.compute_61.ptx');
    const size = SIDE * SIDE * 4;
    const grid = SIDE / 16;
    return [
      await inTurn(`a product of two f32 matrices of ${SIDE} by tiles of 16`, runs, [
        {
          name: 'the kernel, one core',
          unit: 'ms',
          once: () =>
            launched(
              tiles,
              [size, size, size],
              `matmul_tiled ${grid} ${grid} 1 16 16 1 0 : b1 b2 b3 u32:${SIDE}`,
            ) / 1e6,
        },
        { name: 'the same loops in C, -O3', unit: 'ms', once: () => counted('matmul', `${SIDE}`) / 1e6 },
      ]),
      await inTurn('instructions of threads, millions a second', runs, [
        {
          name: 'the kernel, one core',
          unit: 'M/s',
          once: () =>
            (ROUNDS * THREADS * IN_LOOP * 1e3) /
            launched(mads, [THREADS * 4], `mads 1 1 1 ${THREADS} 1 1 0 : b1 u32:${ROUNDS}`),
        },
        {
          name: 'one such chain in C, -O3',
          unit: 'M/s',
          once: () => (ROUNDS * THREADS * 8 * 1e3) / counted('mads', `${ROUNDS * THREADS * 8}`),
        },
      ]),
      await inTurn('a launch of 256 threads that do next to nothing, in the process', runs, [
        {
          name: 'the launch',
          unit: 'us',
          once: () =>
            launched(tiles, [4096, 4096, 4096], 'vector_add 1 1 1 256 1 1 0 2000 : b1 b2 b3 u32:256') / 1e3,
        },
        {
          name: 'a thread made and awaited',
          unit: 'us',
          once: () => counted('threads', '2000') / 2000 / 1e3,
        },
      ]),
    ];
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}
