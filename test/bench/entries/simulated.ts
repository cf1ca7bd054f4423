// Common kernels on one core of the simulated GPU, each beside the same work as loops of C.

import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { compiles, launched } from '../launched.js';
import { type Comparison, type Entry, inTurn } from '../measure.js';
import { commonBench, repository } from '../paths.js';
import { runTimed } from '../run-timed.js';

export const simulated: Entry = {
  name: 'simulated',
  what: 'common kernels on one core of the simulated GPU, interpreted and compiled, beside C with -O3 -march=native',
  runs: 7,
  measure,
};

interface Case {
  readonly name: string;
  /** Of inputs; buffer 1 is the result. */
  readonly inputs: number;
  /** Grid, block and arguments, as ptx_run reads them. */
  readonly launch: string;
  /** The kernel's sums differ from C's by rounding. */
  readonly floats: boolean;
  /** Words that may differ: at the edge of the set, the contraction of multiply-adds decides. */
  readonly edge: number;
}

const one = (name: string, inputs: number, launch: string, floats = true, edge = 0): Case => ({
  name,
  inputs,
  launch,
  floats,
  edge,
});

const CASES: readonly Case[] = [
  one('saxpy', 1, '4096 1 1 256 1 1 0 : b1 b2 f32:1.5 u32:1048576'),
  one('reduce', 1, '64 1 1 256 1 1 0 : b1 b2 u32:1048576'),
  one('matmul', 2, '16 16 1 16 16 1 0 : b1 b2 b3 u32:256'),
  one('spmv', 4, '64 1 1 256 1 1 0 : b1 b2 b3 b4 b5 u32:16384'),
  one('stencil', 1, '64 64 1 16 16 1 0 : b1 b2 u32:1024'),
  one('nbody', 1, '8 1 1 256 1 1 0 : b1 b2 u32:2048'),
  one('blackscholes', 3, '512 1 1 256 1 1 0 : b1 b1+524288 b2 b3 b4 u32:131072'),
  one('mandelbrot', 0, '16 16 1 16 16 1 0 : b1 u32:256 u32:256', false, 1024),
  one('sha256', 1, '64 1 1 256 1 1 0 : b1 b2 u32:16384', false),
  one('histogram', 1, '64 1 1 256 1 1 0 : b1 b2 u32:1048576', false),
  one('scan', 1, '1024 1 1 1024 1 1 0 : b1 b2', false),
  one('sort', 1, '128 1 1 256 1 1 0 : b1 b2', false),
  one('matvec_q8', 2, '512 1 1 128 1 1 0 : b1 b2 b3 u32:128'),
  one('matvec_q4', 2, '512 1 1 128 1 1 0 : b1 b2 b3 u32:128'),
  one('matvec_f16', 2, '512 1 1 128 1 1 0 : b1 b2 b3 u32:4096'),
];

function differs(got: Buffer, want: Buffer, floats: boolean): number {
  let count = 0;
  let most = 0;
  for (let at = 0; floats && at < want.length; at += 4) most = Math.max(most, Math.abs(want.readFloatLE(at)));
  for (let at = 0; at < want.length; at += 4) {
    const equal = floats
      ? Math.abs(got.readFloatLE(at) - want.readFloatLE(at)) <= 1e-3 * most
      : got.readUInt32LE(at) === want.readUInt32LE(at);
    if (!equal) count++;
  }
  return count;
}

/** Throws if the kernel computes something else than C does. */
function prepare(
  { name, inputs, launch, floats, edge }: Case,
  scratch: string,
  compile: 'never' | 'always',
): () => number {
  runTimed(commonBench, [name, scratch]);
  const want = join(scratch, `${name}.want`);
  const got = join(scratch, `${name}.got`);
  const module = join(repository, 'test/bench/kernels/common.ptx');
  const buffers = [
    String(statSync(want).size),
    ...Array.from({ length: inputs }, (_, k) => {
      const file = join(scratch, `${name}.${k + 1}`);
      return `${statSync(file).size} ${file}`;
    }),
  ];
  const once = (after: readonly string[], times: number): number =>
    launched(module, buffers, `${name} ${launch}`, 80, [], after, compile, times);
  once([`write 1 ${got}`], 1);
  const wrong = differs(readFileSync(got), readFileSync(want), floats);
  if (wrong > edge) throw new Error(`${name}: ${wrong} words differ`);
  return () => once([], compile === 'always' ? 2 : 1) / 1e6;
}

async function measure(runs: number): Promise<readonly Comparison[]> {
  const scratch = mkdtempSync(join(tmpdir(), 'simulated-'));
  try {
    const comparisons: Comparison[] = [];
    const ways = compiles() ? (['never', 'always'] as const) : (['never'] as const);
    for (const [one, way] of CASES.flatMap((one) => ways.map((way) => [one, way] as const))) {
      const kernel = prepare(one, scratch, way);
      comparisons.push(
        await inTurn(way === 'never' ? one.name : `${one.name}, compiled`, runs, [
          { name: 'the kernel, one core', unit: 'ms', once: kernel },
          {
            name: 'the same loops in C, -O3 -march=native',
            unit: 'ms',
            once: () => Number(runTimed(commonBench, [one.name]).stdout) / 1e6,
          },
        ]),
      );
    }
    return comparisons;
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}
