// One launch of the PTX machine by itself.

import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { shim } from './paths.js';

export type Compile = 'never' | 'always';

/** Whether kernels can be compiled here. */
export const compiles = (): boolean =>
  spawnSync(join(shim, 'programs/ptx_run'), [], { input: '', env: { ...process.env, PTX_COMPILE: 'always' } })
    .status === 0;

/**
 * Nanoseconds of the processor for the last launch, without helpers: one core; `device` 61 is compute capability 6.1. If
 * kernels are compiled, the first launch waits for the code.
 */
export function launched(
  module: string,
  buffers: readonly (number | string)[],
  launch: string,
  device = 61,
  before: readonly string[] = [],
  after: readonly string[] = [],
  compile: Compile = 'never',
  times = 1,
): number {
  const input = [
    `module ${module} ${device}`,
    ...buffers.map((size) => `buffer ${size}`),
    ...before,
    ...Array.from({ length: times }, () => `launch ${launch}`),
    ...after,
    '',
  ];
  const ran = spawnSync(join(shim, 'programs/ptx_run'), [], {
    input: input.join('\n'),
    encoding: 'utf8',
    env: { ...process.env, PTX_COMPILE: compile },
  });
  const took = [...ran.stdout.matchAll(/ processor=(\d+)$/gm)].at(-1)?.[1];
  if (took === undefined) throw new Error(`ptx_run: ${ran.stdout}${ran.stderr}`);
  return Number(took);
}
