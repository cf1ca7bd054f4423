// The kernels that `compute` and `peer` measure, each as one launch on one core of the simulated GPU.

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Compile, launched } from './launched.js';
import { repository } from './paths.js';

/** Rows of the matrices. */
export const SIDE = 512;
export const THREADS = 256;
/** Turns of the loop of `mads`; each has this many multiply-adds. */
export const ROUNDS = 20_000;
export const MADS_IN_LOOP = 8;
/** Instructions in that loop. */
const IN_LOOP = MADS_IN_LOOP + 3;
/** The threads of `collatz`: thread n counts the steps from n + 1 to 1. */
export const STARTS = 16_384;

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
${'  mad.lo.u32 %r2, %r2, 1664525, 1013904223;\n'.repeat(MADS_IN_LOOP)}  sub.u32 %r1, %r1, 1;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra again;
  mov.u32 %r3, %tid.x;
  mul.wide.u32 %d2, %r3, 4;
  add.u64 %d1, %d1, %d2;
  st.global.u32 [%d1], %r2;
  ret;
}
`;

/** Lanes part at each step, at the branch and at the end of the loop. */
const COLLATZ = `.version 6.0
.target sm_61
.address_size 64
.visible .entry collatz(.param .u64 out)
{
  .reg .pred %p<3>;
  .reg .b32 %r<8>;
  .reg .b64 %d<3>;
  ld.param.u64 %d1, [out];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mad.lo.u32 %r1, %r2, %r3, %r1;
  mul.wide.u32 %d2, %r1, 4;
  add.u64 %d1, %d1, %d2;
  add.u32 %r1, %r1, 1;
  mov.u32 %r4, 0;
  bra test;
step:
  add.u32 %r4, %r4, 1;
  and.b32 %r5, %r1, 1;
  setp.eq.u32 %p1, %r5, 0;
  @%p1 bra even;
  mad.lo.u32 %r1, %r1, 3, 1;
  bra test;
even:
  shr.u32 %r1, %r1, 1;
test:
  setp.ne.u32 %p2, %r1, 1;
  @%p2 bra step;
  st.global.u32 [%d1], %r4;
  ret;
}
`;

export interface Kernels {
  /** Nanoseconds of the processor for a launch. */
  readonly matmul: (compile?: Compile) => number;
  readonly mads: () => number;
  readonly collatz: (compile?: Compile) => number;
  readonly idle: () => number;
  /** Instructions of threads, millions a second, from the nanoseconds of `mads`. */
  readonly rate: (nanoseconds: number) => number;
}

/** Runs `use` with the kernels' files in a directory that is removed afterwards. */
export async function withKernels<T>(use: (kernels: Kernels, scratch: string) => Promise<T>): Promise<T> {
  const scratch = mkdtempSync(join(tmpdir(), 'kernels-'));
  try {
    const [mads, collatz] = [join(scratch, 'mads.ptx'), join(scratch, 'collatz.ptx')];
    writeFileSync(mads, MADS);
    writeFileSync(collatz, COLLATZ);
    const tiles = join(repository, 'test/shim/kernels/ptx/parallel.compute_61.ptx');
    const size = SIDE * SIDE * 4;
    const grid = SIDE / 16;
    return await use(
      {
        matmul: (compile) =>
          launched(
            tiles,
            [size, size, size],
            `matmul_tiled ${grid} ${grid} 1 16 16 1 0 : b1 b2 b3 u32:${SIDE}`,
            61,
            [],
            [],
            compile,
            compile === 'always' ? 3 : 1,
          ),
        mads: () => launched(mads, [THREADS * 4], `mads 1 1 1 ${THREADS} 1 1 0 : b1 u32:${ROUNDS}`),
        collatz: (compile) =>
          launched(
            collatz,
            [STARTS * 4],
            `collatz ${STARTS / THREADS} 1 1 ${THREADS} 1 1 0 : b1`,
            61,
            [],
            [],
            compile,
            compile === 'always' ? 3 : 1,
          ),
        idle: () => launched(tiles, [4096, 4096, 4096], 'vector_add 1 1 1 256 1 1 0 2000 : b1 b2 b3 u32:256'),
        rate: (nanoseconds) => (ROUNDS * THREADS * IN_LOOP * 1e3) / nanoseconds,
      },
      scratch,
    );
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}
