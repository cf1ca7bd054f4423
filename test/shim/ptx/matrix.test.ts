/** Tensor cores' instructions on the PTX machine, against products computed here. Sources: test/shim/kernels/mma.cu. */
import assert from 'node:assert/strict';
import path from 'node:path';
import { describe, it } from 'node:test';
import { ROOT } from '../cuda/private_programs.js';
import { bytes, f32, i32, random, runPtx, u32 } from './machine.js';

function at<T>(list: ArrayLike<T>, index: number): T {
  const value = list[index];
  assert.ok(value !== undefined, `no element ${index} of ${list.length}`);
  return value;
}

/** Bits of a half for values that it holds exactly: multiples of 1/8 up to 16. */
function half(value: number): number {
  if (value === 0) return 0;
  const exponent = Math.floor(Math.log2(Math.abs(value)));
  return (value < 0 ? 0x8000 : 0) | ((exponent + 15) << 10) | ((Math.abs(value) / 2 ** exponent - 1) * 1024);
}
const bfloat = (value: number): number => at(new Uint32Array(Float32Array.of(value).buffer), 0) >>> 16;
const halves = (values: readonly number[]): Buffer => bytes(Uint16Array.from(values, half));

function numbers(count: number, seed: number): number[] {
  const next = random(seed);
  return Array.from({ length: count }, () => ((next() % 33) - 16) / 8);
}

/** a (m by k, by rows) times b (k by n, by rows). */
function product(a: readonly number[], b: readonly number[], m: number, n: number, k: number): number[] {
  return Array.from({ length: m * n }, (_, i) => {
    let sum = 0;
    for (let j = 0; j < k; j++) sum += at(a, Math.floor(i / n) * k + j) * at(b, j * n + (i % n));
    return sum;
  });
}
function transposed(values: readonly number[], rows: number, columns: number): number[] {
  return Array.from({ length: rows * columns }, (_, i) =>
    at(values, (i % rows) * columns + Math.floor(i / rows)),
  );
}

function run(
  target: number,
  kernel: string,
  buffers: readonly (Buffer | number)[],
  args: readonly string[] = [],
  block = 32,
): readonly Buffer[] {
  const outcome = runPtx({
    ptx: { file: path.join(ROOT, 'test/shim/kernels/ptx', `mma.compute_${target}.ptx`) },
    device: target,
    buffers,
    launches: [{ kernel, block: [block], args: [...buffers.map((_, i) => `b${i + 1}`), ...args] }],
  });
  assert.match(outcome.load, /^ok /);
  assert.match(at(outcome.launches, 0), /^ok /);
  return outcome.buffers;
}

for (const target of [75, 80, 90, 100]) {
  describe(`tensor cores for compute_${target}`, () => {
    const a = numbers(16 * 16, 1);
    const b = numbers(16 * 16, 2);

    it('multiplies halves 16 by 8 by 8, and adds', () => {
      const c = Float32Array.from({ length: 128 }, (_, i) => i / 4);
      const out = run(target, 'half_k8', [halves(a.slice(0, 128)), halves(b.slice(0, 64)), bytes(c), 512]);
      const expected = product(a.slice(0, 128), b.slice(0, 64), 16, 8, 8).map((x, i) => x + at(c, i));
      assert.deepEqual([...f32(at(out, 3))], expected);
    });

    it("multiplies by CUDA's own matrix library", () => {
      const out = run(target, 'library_tile', [halves(a), halves(transposed(b, 16, 16)), 1024]);
      assert.deepEqual(
        [...f32(at(out, 2))],
        product(a, b, 16, 16, 16).map((x) => x + 1),
      );
    });

    it('multiplies bytes 8 by 8 by 16', () => {
      const [x, y] = [a.slice(0, 128).map((v) => v * 8), b.slice(0, 128).map((v) => v * 8)];
      const out = run(target, 'eights_k16', [
        bytes(Int8Array.from(x)),
        bytes(Int8Array.from(transposed(y, 16, 8))),
        256,
      ]);
      assert.deepEqual(
        [...i32(at(out, 2))],
        product(x, y, 8, 8, 16).map((v, i) => v + (i % 2 === 0 ? 5 : -5)),
      );
    });

    it('loads by ldmatrix, transposing or not, and turns with movmatrix', () => {
      const out = run(target, 'by_ldmatrix', [halves(a.slice(0, 128)), halves(b.slice(0, 64)), 256, 128]);
      assert.deepEqual(
        at(out, 2),
        halves(product(a.slice(0, 128), b.slice(0, 64), 16, 8, 8).map((x) => roundHalf(x))),
      );
      const turned = Array.from(u32(at(out, 3)), (word) => [word & 0xffff, word >>> 16]).flat();
      assert.deepEqual(turned, transposed(a.slice(0, 64), 8, 8).map(half));
    });

    if (target < 80) return;

    it('multiplies halves and bfloats 16 by 8 by 16', () => {
      const expected = product(a, b.slice(0, 128), 16, 8, 16);
      const b16 = b.slice(0, 128);
      assert.deepEqual(
        [...f32(at(run(target, 'half_k16', [halves(a), halves(b16), 512], ['u32:0']), 2))],
        expected,
      );
      const [x, y] = [bytes(Uint16Array.from(a, bfloat)), bytes(Uint16Array.from(b16, bfloat))];
      assert.deepEqual([...f32(at(run(target, 'half_k16', [x, y, 512], ['u32:1']), 2))], expected);
    });

    it('multiplies tf32, whose last bits do not count', () => {
      const [x, y] = [a.slice(0, 128), b.slice(0, 64)];
      const withNoise = new Uint32Array(Float32Array.from(x).buffer).map((bits) => bits | 0x0fff);
      const out = run(target, 'tf32_k8', [bytes(withNoise), bytes(Float32Array.from(y)), 512]);
      assert.deepEqual([...f32(at(out, 2))], product(x, y, 16, 8, 8));
    });

    it('multiplies bytes 16 by 8 by 32', () => {
      const x = numbers(16 * 32, 3).map((v) => v * 8);
      const y = numbers(32 * 8, 4).map((v) => v * 8);
      const out = run(target, 'eights_k32', [
        bytes(Int8Array.from(x)),
        bytes(Int8Array.from(transposed(y, 32, 8))),
        512,
      ]);
      assert.deepEqual([...i32(at(out, 2))], product(x, y, 16, 8, 32));
    });

    it('copies to shared memory without waiting, and fills with zeros', () => {
      const v = Int32Array.from({ length: 256 }, (_, i) => i + 1);
      const out = i32(at(run(target, 'copies', [bytes(v), 1024], [], 64), 1));
      assert.deepEqual(
        out,
        Int32Array.from({ length: 256 }, (_, i) => {
          const from = 63 - Math.floor(i / 4);
          return from % 3 === 0 && i % 4 >= 2 ? 0 : at(v, from * 4 + (i % 4));
        }),
      );
    });

    it('reduces over a warp', () => {
      const v = Int32Array.from({ length: 32 }, (_, i) => ((i * 7) % 19) - 9);
      const sum = v.reduce((total, x) => total + x, 0);
      assert.deepEqual(
        i32(at(run(target, 'reduces', [bytes(v), 128]), 1)),
        new Int32Array(32).fill(sum + 1000 * Math.max(...v)),
      );
    });
  });
}

/** To the nearest half, ties to even, for values that are normal there. */
function roundHalf(value: number): number {
  if (value === 0) return 0;
  const unit = 2 ** (Math.floor(Math.log2(Math.abs(value))) - 10);
  const scaled = value / unit;
  const down = Math.floor(scaled);
  const rest = scaled - down;
  return (rest > 0.5 || (rest === 0.5 && down % 2 !== 0) ? down + 1 : down) * unit;
}
