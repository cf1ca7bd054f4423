// Compiles the C part of the benchmark against the shim's own headers, outside the guest, which sees the
// checkout read-only.

import { existsSync } from 'node:fs';
import { mkdir, rename } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { runOk } from '../guest/support/process.js';
import { commonBench, computeBench, openclBench, poclRoot, repository, shimBench } from './paths.js';

/** Throws with the compiler's complaint. */
export async function buildProgram(): Promise<void> {
  await mkdir(dirname(shimBench), { recursive: true });
  await compile(shimBench, ['raw.c', 'sides.c', 'copies.c', 'streams.c', 'shim_bench.c'], '-O2');
  await compile(computeBench, ['compute_bench.c'], '-O3');
  await compile(commonBench, ['common_bench.c'], '-O3', ['-march=native', '-lm']);
  if (existsSync(join(poclRoot, '.complete'))) {
    await compile(openclBench, ['opencl_bench.c'], '-O2', [
      `-I${poclRoot}/usr/include`,
      `${poclRoot}/usr/lib/x86_64-linux-gnu/libOpenCL.so.1`,
    ]);
  }
}

async function compile(
  program: string,
  names: readonly string[],
  level: string,
  library: readonly string[] = [],
): Promise<void> {
  const fresh = `${program}.${process.pid}`;
  const sources = names.map((name) => `${repository}/test/bench/programs/${name}`);
  await runOk(process.env['CC'] ?? 'cc', [
    ...['-std=c11', '-D_GNU_SOURCE', level, '-Wall', '-Wextra', '-Werror'],
    ...[`-I${repository}/shim-src`, `-I${repository}/build/generated`],
    ...sources,
    ...library,
    '-ldl',
    '-o',
    fresh,
  ]);
  // Beside and renamed: another benchmark may be running the old one.
  await rename(fresh, program);
}
