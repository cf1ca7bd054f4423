// Compiles the C part of the benchmark against the shim's own headers, outside the guest, which sees the
// checkout read-only.

import { mkdir, rename } from 'node:fs/promises';
import { dirname } from 'node:path';
import { runOk } from '../guest/support/process.js';
import { computeBench, repository, shimBench } from './paths.js';

/** Throws with the compiler's complaint. */
export async function buildProgram(): Promise<void> {
  await mkdir(dirname(shimBench), { recursive: true });
  await compile(shimBench, ['raw.c', 'sides.c', 'copies.c', 'shim_bench.c'], '-O2');
  await compile(computeBench, ['compute_bench.c'], '-O3');
}

async function compile(program: string, names: readonly string[], level: string): Promise<void> {
  const fresh = `${program}.${process.pid}`;
  const sources = names.map((name) => `${repository}/test/bench/programs/${name}`);
  await runOk(process.env['CC'] ?? 'cc', [
    ...['-std=c11', '-D_GNU_SOURCE', level, '-Wall', '-Wextra', '-Werror'],
    ...[`-I${repository}/shim-src`, `-I${repository}/build/generated`],
    ...sources,
    '-ldl',
    '-o',
    fresh,
  ]);
  // Beside and renamed: another benchmark may be running the old one.
  await rename(fresh, program);
}
