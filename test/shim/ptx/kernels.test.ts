/**
 * CUDA kernels as nvcc compiles them for each of TARGETS, run on the PTX machine, against the same computed here.
 * Sources and PTX: test/shim/kernels.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { at, floats, good, halfBits, ints, run, TARGETS } from './compiled_kernels.js';
import { bytes, f32, f64, i32, i64, random, u32, u64 } from './machine.js';

for (const target of TARGETS) {
  describe(`kernels for compute_${target}`, () => {
    it('adds vectors, with a last block that is not full', () => {
      const n = 1000;
      const a = floats(n, (i) => i * 0.3);
      const b = floats(n, (i) => 1e7 - i);
      const out = good(
        run(
          'parallel',
          target,
          [bytes(a), bytes(b), n * 4],
          [{ kernel: 'vector_add', grid: [8], block: [128], args: ['b1', 'b2', 'b3', `u32:${n}`] }],
        ),
      );
      assert.deepEqual(
        f32(at(out, 2)),
        floats(n, (i) => at(a, i) + at(b, i)),
      );
    });

    it('scales and adds in a strided loop, contracted to fma', () => {
      const n = 5000;
      const x = floats(n, (i) => Math.sin(i));
      const y = floats(n, (i) => Math.cos(i));
      const out = good(
        run(
          'parallel',
          target,
          [bytes(x), bytes(y)],
          [{ kernel: 'saxpy', grid: [3], block: [96], args: ['f32:1.25', 'b1', 'b2', `u32:${n}`] }],
        ),
      );
      // 1.25 * x has 27 bits at most, so one rounding in doubles is the same as fma's
      assert.deepEqual(
        f32(at(out, 1)),
        floats(n, (i) => Math.fround(1.25 * at(x, i) + at(y, i))),
      );
    });

    it('reduces over shared memory, shuffles and atomics', () => {
      const n = 10_000;
      const next = random(7);
      const v = ints(n, () => (next() % 2001) - 1000);
      const out = good(
        run(
          'parallel',
          target,
          [bytes(v), 4],
          [
            {
              kernel: 'reduce_sum',
              grid: [Math.ceil(n / 256)],
              block: [256],
              args: ['b1', 'b2', `u32:${n}`],
            },
          ],
        ),
      );
      assert.equal(
        at(i32(at(out, 1)), 0),
        v.reduce((sum, x) => sum + x, 0),
      );
    });

    it('reduces over dynamic shared memory', () => {
      const n = 3001;
      const next = random(8);
      const v = floats(n, () => (next() % 100_000) / 7);
      const out = good(
        run(
          'parallel',
          target,
          [bytes(v), 4],
          [{ kernel: 'reduce_max', block: [256], shared: 1024, args: ['b1', 'b2', `u32:${n}`] }],
        ),
      );
      assert.equal(at(f32(at(out, 1)), 0), Math.max(...v));
    });

    it('scans a block', () => {
      const n = 500;
      const next = random(9);
      const v = Uint32Array.from({ length: n }, () => next());
      const out = good(
        run(
          'parallel',
          target,
          [bytes(v), n * 4],
          [{ kernel: 'scan', block: [512], args: ['b1', 'b2', `u32:${n}`] }],
        ),
      );
      let sum = 0;
      assert.deepEqual(
        u32(at(out, 1)),
        v.map((x) => (sum = (sum + x) >>> 0)),
      );
    });

    it('multiplies matrices by tiles', () => {
      const n = 50;
      const a = floats(n * n, (i) => (i % 17) - 8);
      const b = floats(n * n, (i) => (i % 13) * 0.5);
      const out = good(
        run(
          'parallel',
          target,
          [bytes(a), bytes(b), n * n * 4],
          [{ kernel: 'matmul_tiled', grid: [4, 4], block: [16, 16], args: ['b1', 'b2', 'b3', `u32:${n}`] }],
        ),
      );
      const c = floats(n * n, (i) => {
        let sum = 0;
        for (let k = 0; k < n; k++) sum += at(a, Math.floor(i / n) * n + k) * at(b, k * n + (i % n));
        return sum;
      });
      assert.deepEqual(f32(at(out, 2)), c);
    });

    it('transposes', () => {
      const [w, h] = [70, 45];
      const v = Float64Array.from({ length: w * h }, (_, i) => i / 3);
      const out = good(
        run(
          'parallel',
          target,
          [bytes(v), w * h * 8],
          [{ kernel: 'transpose', grid: [3, 2], block: [32, 8], args: ['b1', 'b2', `u32:${w}`, `u32:${h}`] }],
        ),
      );
      assert.deepEqual(
        f64(at(out, 1)),
        Float64Array.from({ length: w * h }, (_, i) => at(v, (i % h) * w + Math.floor(i / h))),
      );
    });

    it('counts bytes', () => {
      const next = random(3);
      const v = Uint8Array.from({ length: 20_000 }, () => (next() & 15) * (next() & 15));
      const out = good(
        run(
          'parallel',
          target,
          [bytes(v), 1024],
          [{ kernel: 'histogram', grid: [5], block: [256], args: ['b1', 'b2', 'u32:20000'] }],
        ),
      );
      const bins = new Uint32Array(256);
      for (const x of v) bins[x] = at(bins, x) + 1;
      assert.deepEqual(u32(at(out, 1)), bins);
    });

    it('sorts', () => {
      const next = random(4);
      const keys = BigInt64Array.from({ length: 1024 }, () =>
        BigInt.asIntN(64, (BigInt(next()) << 32n) | BigInt(next())),
      );
      const out = good(
        run('parallel', target, [bytes(keys)], [{ kernel: 'bitonic_sort', block: [512], args: ['b1'] }]),
      );
      assert.deepEqual(i64(at(out, 0)), keys.toSorted());
    });

    it('lets blocks wait for those before them', () => {
      const out = good(
        run('parallel', target, [4 * 300], [{ kernel: 'chained', grid: [300], block: [32], args: ['b1'] }]),
      );
      let before = 0;
      assert.deepEqual(
        u32(at(out, 0)),
        Uint32Array.from({ length: 300 }, (_, i) => {
          const value = before + i;
          before = value + 1;
          return value;
        }),
      );
    });

    it('transforms 256 points', () => {
      const v = floats(512, (i) => Math.sin(i * i));
      const out = f32(
        at(
          good(
            run(
              'numeric',
              target,
              [bytes(v), 2048],
              [{ kernel: 'fft256', block: [128], args: ['b1', 'b2'] }],
            ),
          ),
          1,
        ),
      );
      for (let k = 0; k < 256; k += 5) {
        let [re, im] = [0, 0];
        for (let j = 0; j < 256; j++) {
          const angle = (-2 * Math.PI * k * j) / 256;
          re += at(v, 2 * j) * Math.cos(angle) - at(v, 2 * j + 1) * Math.sin(angle);
          im += at(v, 2 * j) * Math.sin(angle) + at(v, 2 * j + 1) * Math.cos(angle);
        }
        assert.ok(
          Math.abs(re - at(out, 2 * k)) < 1e-3 && Math.abs(im - at(out, 2 * k + 1)) < 1e-3,
          `point ${k}`,
        );
      }
    });

    it('attracts bodies', () => {
      const n = 128;
      const v = floats(4 * n, (i) => Math.cos(i * 1.7));
      const out = f32(
        at(
          good(
            run(
              'numeric',
              target,
              [bytes(v), 12 * n],
              [{ kernel: 'nbody', grid: [2], block: [64], args: ['b1', 'b2', `u32:${n}`] }],
            ),
          ),
          1,
        ),
      );
      for (let i = 0; i < n; i += 9) {
        let x = 0;
        for (let k = 0; k < n; k++) {
          const d = [0, 1, 2].map((c) => at(v, 4 * k + c) - at(v, 4 * i + c));
          const r = 1 / Math.sqrt(d.reduce((s, c) => s + c * c, 0) + Math.fround(0.01));
          x += at(d, 0) * at(v, 4 * k + 3) * r ** 3;
        }
        assert.ok(
          Math.abs(x - at(out, 3 * i)) < 2e-3 * Math.max(1, Math.abs(x)),
          `body ${i}: ${x} ${at(out, 3 * i)}`,
        );
      }
    });

    it('counts the steps of Mandelbrot points in doubles', () => {
      const [w, h, limit] = [40, 30, 200];
      const out = i32(
        at(
          good(
            run(
              'numeric',
              target,
              [w * h * 4],
              [
                {
                  kernel: 'mandelbrot',
                  grid: [3, 4],
                  block: [16, 8],
                  args: ['b1', `u32:${w}`, `u32:${h}`, `u32:${limit}`],
                },
              ],
            ),
          ),
          0,
        ),
      );
      const expected = ints(w * h, (i) => {
        const [cr, ci] = [(3 / w) * (i % w) - 2.25, (2.5 / h) * Math.floor(i / w) - 1.25];
        let [zr, zi, n] = [0, 0, 0];
        while (n < limit && zr * zr + zi * zi <= 4) {
          [zr, zi] = [zr * zr - zi * zi + cr, 2 * zr * zi + ci];
          n++;
        }
        return n;
      });
      assert.deepEqual(out, expected);
    });

    it('multiplies halves and bfloats', () => {
      const n = 256;
      const a = Array.from({ length: n }, (_, i) => ((i % 15) - 7) / 8);
      const b = Array.from({ length: n }, (_, i) => ((i % 9) - 4) / 4);
      const exact = a.reduce((sum, x, i) => sum + x * at(b, i), 0);
      const halves = (v: readonly number[]): Buffer => bytes(Uint16Array.from(v, halfBits));
      const bfloats = (v: readonly number[]): Buffer =>
        bytes(Uint16Array.from(v, (x) => at(new Uint32Array(Float32Array.of(x).buffer), 0) >>> 16));
      const out = good(
        run(
          'numeric',
          target,
          [halves(a), halves(b), bfloats(a), bfloats(b), 8, n * 2],
          [
            { kernel: 'half_dot', block: [32], args: ['b1', 'b2', 'b5', `u32:${n / 2}`] },
            { kernel: 'bfloat_dot', block: [32], args: ['b3', 'b4', 'b5+4', `u32:${n}`] },
            { kernel: 'half_axpy', grid: [2], block: [128], args: ['b1', 'b2', 'b6', `u32:${n}`] },
          ],
        ),
      );
      assert.deepEqual([...f32(at(out, 4))], [exact, exact]);
      assert.deepEqual(at(out, 5), halves(a.map((x, i) => x * 0.5 + at(b, i))));
    });

    it('multiplies wide integers', () => {
      const next = random(6);
      const a = Uint32Array.from({ length: 128 }, () => next());
      const b = Uint32Array.from({ length: 128 }, () => next());
      const wide = BigUint64Array.from({ length: 32 }, () => (BigInt(next()) << 32n) | BigInt(next()));
      const out = good(
        run(
          'numeric',
          target,
          [bytes(a), bytes(b), 32 * 32, bytes(wide), 32 * 16],
          [
            { kernel: 'big_multiply', block: [32], args: ['b1', 'b2', 'b3'] },
            { kernel: 'multiply128', block: [32], args: ['b4', 'b5'] },
          ],
        ),
      );
      const big = (v: Uint32Array, from: number, count: number): bigint => {
        let value = 0n;
        for (let i = count - 1; i >= 0; i--) value = (value << 32n) | BigInt(at(v, from + i));
        return value;
      };
      for (let i = 0; i < 32; i++) {
        assert.equal(big(u32(at(out, 2)), i * 8, 8), big(a, i * 4, 4) * big(b, i * 4, 4));
        const x = at(wide, i);
        const result = u64(at(out, 4));
        const expected = BigInt.asUintN(128, x * x + (x << 64n) + 12345n);
        assert.equal((at(result, 2 * i + 1) << 64n) | at(result, 2 * i), expected);
      }
    });

    it('divides as C does', () => {
      const next = random(12);
      const signed = (): bigint =>
        BigInt.asIntN(64, (BigInt(next()) << 32n) | BigInt(next())) >> BigInt(next() % 60);
      const a = BigInt64Array.from({ length: 64 }, signed);
      const b = BigInt64Array.from({ length: 64 }, () => signed() || 3n);
      const out = good(
        run(
          'numeric',
          target,
          [bytes(a), bytes(b), 512, 512, 512],
          [{ kernel: 'divisions', block: [64], args: ['b1', 'b2', 'b3', 'b4', 'b5'] }],
        ),
      );
      assert.deepEqual(
        i64(at(out, 2)),
        a.map((x, i) => x / at(b, i)),
      );
      assert.deepEqual(
        i64(at(out, 3)),
        a.map((x, i) => x % at(b, i)),
      );
      assert.deepEqual(
        f64(at(out, 4)),
        Float64Array.from(a, (x, i) => Number(x) / Number(at(b, i))),
      );
    });

    it('computes the mathematical functions of CUDA closely', () => {
      const v = Float64Array.from({ length: 96 }, (_, i) => (i - 48) / 7);
      const out = good(
        run(
          'numeric',
          target,
          [bytes(v), 96 * 32, 96 * 16],
          [{ kernel: 'functions', block: [96], args: ['b1', 'b2', 'b3'] }],
        ),
      );
      const wide = f64(at(out, 1));
      const narrow = f32(at(out, 2));
      v.forEach((x, i) => {
        const exact = [Math.exp(x), Math.log(Math.abs(x) + 1), Math.sin(x), Math.abs(x) ** 1.5];
        exact.forEach((e, k) => {
          assert.ok(
            Math.abs(at(wide, i * 4 + k) - e) <= 4e-15 * Math.max(Math.abs(e), 1e-3),
            `function ${k} of ${x}`,
          );
        });
        const y = Math.fround(x);
        [Math.exp(y), Math.log(Math.abs(y) + 1), Math.tanh(y)].forEach((e, k) => {
          assert.ok(
            Math.abs(at(narrow, i * 4 + k) - e) <= 1e-6 * Math.max(Math.abs(e), 1e-2),
            `float function ${k} of ${y}`,
          );
        });
      });
    });
  });
}
