/**
 * Four kernels that Triton 3.8 compiled, each for 8.0 (mma.sync) and 9.0 (wgmma, TMA), against the same computed
 * here. The files are not in the repository: they are taken where they lie, beside the checkout.
 */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import path from 'node:path';
import { describe, it } from 'node:test';
import { ROOT } from '../cuda/private_programs.js';
import { bytes, f32, i32, random, runPtx } from './machine.js';

const FILES = path.join(ROOT, '../shared/data/triton-ptx');
const skip = existsSync(FILES)
  ? false
  : "Triton's files (shared/data/triton-ptx) are not beside the checkout";

function at<T>(list: ArrayLike<T>, index: number): T {
  const value = list[index];
  assert.ok(value !== undefined, `no element ${index} of ${list.length}`);
  return value;
}
/** Multiples of 1/16 up to 1.5, which are halves. */
function numbers(count: number, seed: number): number[] {
  const next = random(seed);
  return Array.from({ length: count }, () => ((next() % 49) - 24) / 16);
}
function half(value: number): number {
  if (value === 0) return 0;
  const exponent = Math.floor(Math.log2(Math.abs(value)));
  return (value < 0 ? 0x8000 : 0) | ((exponent + 15) << 10) | ((Math.abs(value) / 2 ** exponent - 1) * 1024);
}
const halves = (values: readonly number[]): Buffer => bytes(Uint16Array.from(values, half));
function fromHalves(buffer: Buffer): number[] {
  return Array.from({ length: buffer.length / 2 }, (_, i) => {
    const bits = buffer.readUInt16LE(i * 2);
    const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
    const size = exponent === 0 ? fraction * 2 ** -24 : (1 + fraction / 1024) * 2 ** (exponent - 15);
    return bits & 0x8000 ? -size : size;
  });
}
function furthest(found: readonly number[], expected: readonly number[]): number {
  assert.equal(found.length, expected.length);
  return found.reduce((most, x, i) => {
    const apart = Math.abs(x - at(expected, i));
    return Number.isNaN(apart) ? Number.POSITIVE_INFINITY : Math.max(most, apart);
  }, 0);
}
/** a (m by k) times b (k by n). */
function product(a: readonly number[], b: readonly number[], m: number, n: number, k: number): number[] {
  const out = new Array<number>(m * n).fill(0);
  for (let i = 0; i < m; i++) {
    for (let j = 0; j < k; j++) {
      const x = at(a, i * k + j);
      for (let l = 0; l < n; l++) out[i * n + l] = at(out, i * n + l) + x * at(b, j * n + l);
    }
  }
  return out;
}

function run(
  file: string,
  device: number,
  grid: readonly number[],
  shared: number,
  buffers: readonly Buffer[],
  args: readonly string[],
): readonly Buffer[] {
  const outcome = runPtx({
    ptx: { file: path.join(FILES, `${file}.${device}.ptx`) },
    device,
    buffers,
    launches: [{ kernel: file === 'matmul_fp16' ? 'matmul' : file, grid, block: [128], shared, args }],
  });
  assert.match(outcome.load, /^ok /);
  assert.match(at(outcome.launches, 0), /^ok /);
  return outcome.buffers;
}

for (const device of [80, 90] as const) {
  describe(`what Triton compiles for ${device / 10}.0`, { skip }, () => {
    const N = 128;
    const sizes = Array.from({ length: 6 }, () => `u32:${N}`);
    const none = ['u64:0', 'u64:0'];

    it('multiplies halves', () => {
      const [a, b] = [numbers(N * N, 1), numbers(N * N, 2)];
      const buffers = [halves(a), halves(b), Buffer.alloc(N * N * 2)];
      const shared = device === 80 ? 16384 : 24576;
      const out = run('matmul_fp16', device, [4], shared, buffers, ['b1', 'b2', 'b3', ...sizes, ...none]);
      assert.ok(furthest(fromHalves(at(out, 2)), product(a, b, N, N, N)) < 0.1);
    });

    it('multiplies bytes', () => {
      const [a, b] = [numbers(N * N, 3), numbers(N * N, 4)].map((values) => values.map((x) => x * 16));
      assert.ok(a && b);
      const buffers = [bytes(Int8Array.from(a)), bytes(Int8Array.from(b)), Buffer.alloc(N * N * 4)];
      const shared = device === 80 ? 8192 : 16384;
      const out = run('matmul_i8', device, [2, 2], shared, buffers, ['b1', 'b2', 'b3', ...sizes, ...none]);
      assert.deepEqual([...i32(at(out, 2))], product(a, b, N, N, N));
    });

    it('attends', () => {
      const [S, H, D] = [128, 2, 64];
      const [q, k, v] = [numbers(S * H * D, 5), numbers(S * H * D, 6), numbers(S * H * D, 7)];
      assert.ok(q && k && v);
      const scale = Math.LOG2E / Math.sqrt(D);
      const buffers = [halves(q), halves(k), halves(v), Buffer.alloc(S * H * D * 2)];
      const shared = device === 80 ? 16384 : 24576;
      const args = ['b1', 'b2', 'b3', 'b4', `f32:${scale}`, `u32:${S * D}`, `u32:${D}`, `u32:${S}`, ...none];
      const out = fromHalves(at(run('attn', device, [S / 64, H], shared, buffers, args), 3));
      const expected: number[] = [];
      for (let row = 0; row < H * S; row++) {
        const head = Math.floor(row / S) * S;
        const weights = Array.from({ length: (row % S) + 1 }, (_, column) => {
          let score = 0;
          for (let i = 0; i < D; i++) score += at(q, row * D + i) * at(k, (head + column) * D + i);
          return Math.exp(score / Math.sqrt(D));
        });
        const total = weights.reduce((sum, x) => sum + x, 0);
        for (let i = 0; i < D; i++) {
          const sum = weights.reduce((s, weight, column) => s + weight * at(v, (head + column) * D + i), 0);
          expected.push(sum / total);
        }
      }
      assert.ok(furthest(out, expected) < 2e-2);
    });

    it('copies tiles by tensor maps that it makes itself', () => {
      const values = Float32Array.from(numbers(64 * 64, 8));
      const buffers = [bytes(values), Buffer.alloc(64 * 64 * 4), Buffer.alloc(65536)];
      const args = ['b1', 'b2', 'u32:64', 'u32:64', 'b3', 'u64:0'];
      const out = run('tma_copy', device, [2, 2], device === 80 ? 0 : 4104, buffers, args);
      assert.deepEqual(
        f32(at(out, 1)),
        values.map((x) => 2 * x),
      );
    });
  });
}
