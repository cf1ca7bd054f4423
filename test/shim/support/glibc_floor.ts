// Which glibc the files that come into guests need (shim-src/glibc_floor.h), by the versions of what they import.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';

/** glibc's minor version: 2.31 is 31. */
export const floors = {
  'libcuda.so.1': 31,
  'libnvidia-ml.so.1': 31,
  'libvgpu-trace.so': 31,
  'vgpu-probe': 34,
  'vgpu-watch': 34,
} as const;

/** The imports of the file that are newer than `floor`. */
export function aboveFloor(file: string, floor: number): readonly string[] {
  const symbols = execFileSync('readelf', ['-W', '--dyn-syms', file], { encoding: 'utf8' });
  const wanted = [...symbols.matchAll(/ UND (\S+)@GLIBC_2\.(\d+)/g)];
  assert.ok(wanted.length > 5, 'finds what it imports');
  return wanted.filter(([, , minor]) => Number(minor) > floor).map(([, name, minor]) => `${name}@2.${minor}`);
}
