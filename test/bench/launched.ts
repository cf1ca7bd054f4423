// One launch of the PTX machine by itself.

import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { shim } from './paths.js';

/** Nanoseconds of the processor for one launch, without helpers: one core; `device` 61 is compute capability 6.1. */
export function launched(
  module: string,
  buffers: readonly (number | string)[],
  launch: string,
  device = 61,
  before: readonly string[] = [],
  after: readonly string[] = [],
): number {
  const input = [
    `module ${module} ${device}`,
    ...buffers.map((size) => `buffer ${size}`),
    ...before,
    `launch ${launch}`,
    ...after,
    '',
  ];
  const ran = spawnSync(join(shim, 'programs/ptx_run'), [], { input: input.join('\n'), encoding: 'utf8' });
  const took = / processor=(\d+)$/m.exec(ran.stdout)?.[1];
  if (took === undefined) throw new Error(`ptx_run: ${ran.stdout}${ran.stderr}`);
  return Number(took);
}
