/** Runs the kernels of test/shim/kernels, as NVIDIA's compiler made them for several architectures. */
import assert from 'node:assert/strict';
import path from 'node:path';
import { ROOT } from '../cuda/private_programs.js';
import { type Launch, type Outcome, runPtx } from './machine.js';

export const TARGETS = [50, 61, 75, 80, 90, 100] as const;
export const THREADS = ['helpers 1'];

export function ptxOf(name: string, target: number): string {
  return path.join(ROOT, 'test/shim/kernels/ptx', `${name}.compute_${target}.ptx`);
}

export function run(
  name: string,
  target: number,
  buffers: readonly (Buffer | number)[],
  launches: readonly Launch[],
  before: readonly string[] = THREADS,
): Outcome {
  const outcome = runPtx({ ptx: { file: ptxOf(name, target) }, device: target, buffers, launches, before });
  assert.match(outcome.load, /^ok /);
  return outcome;
}

export function good(outcome: Outcome): readonly Buffer[] {
  for (const line of outcome.launches) assert.match(line, /^ok /);
  return outcome.buffers;
}

export function at<T>(list: ArrayLike<T>, index: number): T {
  const value = list[index];
  assert.ok(value !== undefined, `no element ${index} of ${list.length}`);
  return value;
}

export const ints = (n: number, f: (i: number) => number): Int32Array =>
  Int32Array.from({ length: n }, (_, i) => f(i));
export const floats = (n: number, f: (i: number) => number): Float32Array =>
  Float32Array.from({ length: n }, (_, i) => f(i));

export function halfBits(value: number): number {
  // exact for the small multiples of 1/8 used here
  if (value === 0) return 0;
  const sign = value < 0 ? 0x8000 : 0;
  const exponent = Math.floor(Math.log2(Math.abs(value)));
  return sign | ((exponent + 15) << 10) | ((Math.abs(value) / 2 ** exponent - 1) * 1024);
}
