/**
 * CUDA kernels as nvcc compiles them for five targets, run on the PTX machine, against the same computed here.
 * Sources and PTX: test/shim/kernels.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import path from 'node:path';
import { describe, it } from 'node:test';
import { ROOT } from '../cuda/private_programs.js';
import { bytes, f32, f64, i32, i64, type Launch, type Outcome, random, runPtx, u32, u64 } from './machine.js';

const TARGETS = [50, 61, 75, 80, 90] as const;
const THREADS = ['helpers 1'];

function ptxOf(name: string, target: number): string {
  return path.join(ROOT, 'test/shim/kernels/ptx', `${name}.compute_${target}.ptx`);
}

function run(
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

function good(outcome: Outcome): readonly Buffer[] {
  for (const line of outcome.launches) assert.match(line, /^ok /);
  return outcome.buffers;
}

function at<T>(list: ArrayLike<T>, index: number): T {
  const value = list[index];
  assert.ok(value !== undefined, `no element ${index} of ${list.length}`);
  return value;
}

const ints = (n: number, f: (i: number) => number): Int32Array =>
  Int32Array.from({ length: n }, (_, i) => f(i));
const floats = (n: number, f: (i: number) => number): Float32Array =>
  Float32Array.from({ length: n }, (_, i) => f(i));

function halfBits(value: number): number {
  // exact for the small multiples of 1/8 used here
  if (value === 0) return 0;
  const sign = value < 0 ? 0x8000 : 0;
  const exponent = Math.floor(Math.log2(Math.abs(value)));
  return sign | ((exponent + 15) << 10) | ((Math.abs(value) / 2 ** exponent - 1) * 1024);
}

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

    it('follows lanes through divergent and nested loops', () => {
      const n = 700;
      const out = good(
        run(
          'control',
          target,
          [n * 4, n * 4],
          [
            { kernel: 'collatz', grid: [6], block: [128], args: ['b1', `u32:${n}`] },
            { kernel: 'nested', grid: [8], block: [96], args: ['b2', `u32:${n}`] },
          ],
        ),
      );
      assert.deepEqual(
        i32(at(out, 0)),
        ints(n, (i) => {
          let [v, steps] = [i + 1, 0];
          while (v !== 1) {
            v = v % 2 === 1 ? 3 * v + 1 : v / 2;
            steps++;
          }
          return steps;
        }),
      );
      const nested = (i: number): number => {
        let sum = 0;
        for (let a = 0; a < 10; a++) {
          if (a === i % 11) break;
          for (let b = 0; b < a; b++) {
            if ((i + b) % 5 === 0) continue;
            if (b * a > i) return sum + 100_000;
            sum += a * b;
          }
          if (sum > 300) return sum;
        }
        return sum * 2;
      };
      assert.deepEqual(i32(at(out, 1)), ints(n, nested));
    });

    it('calls itself, calls through pointers, and switches', () => {
      const a = floats(32, (i) => i * 1.5);
      const b = floats(32, (i) => 7 - i);
      const cases = ints(64, (i) => (i * 7) % 12);
      const out = good(
        run(
          'control',
          target,
          [128, bytes(a), bytes(b), 128, bytes(cases), 256],
          [
            { kernel: 'recursion', block: [32], args: ['b1'] },
            { kernel: 'pointers', block: [32], args: ['b2', 'b3', 'b4'] },
            { kernel: 'switches', block: [64], args: ['b5', 'b6'] },
          ],
          ['stack 4096'],
        ),
      );
      const fibonacci = (n: number): number => (n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2));
      assert.deepEqual(
        i32(at(out, 0)),
        ints(32, (i) => fibonacci(i % 13)),
      );
      const operations = [
        (x: number, y: number) => x + y,
        (x: number, y: number) => x - y,
        (x: number, y: number) => x * y,
      ];
      assert.deepEqual(
        f32(at(out, 3)),
        floats(32, (i) => at(operations, i % 3)(at(a, i), at(b, i))),
      );
      const count = (x: number): number => x.toString(2).replaceAll('0', '').length;
      assert.deepEqual(
        i32(at(out, 5)),
        ints(64, (i) => {
          const v = at(cases, i);
          return (
            [7, v * 13 + i, i * i, 40 + i, 40 + i, i ^ 0x55, i << 3, count(i), Math.clz32(i), i % 7][v] ?? -1
          );
        }),
      );
    });

    it('votes, shuffles and matches', () => {
      const v = ints(32, (i) => ((i * 5) % 9) + 1);
      const matching = target >= 75;
      const out = good(
        run(
          'control',
          target,
          [bytes(v), 512, 256],
          [
            { kernel: 'votes', block: [32], args: ['b1', 'b2'] },
            ...(matching ? [{ kernel: 'matches', block: [32], args: ['b1', 'b3'] }] : []),
          ],
        ),
      );
      const mask = (f: (lane: number) => boolean): number =>
        v.reduce((bits, _, lane) => (f(lane) ? bits | (1 << lane) : bits), 0) >>> 0;
      const votes = u32(at(out, 1));
      const matches = u32(at(out, 2));
      const odd = mask((lane) => at(v, lane) % 2 === 1);
      for (let i = 0; i < 32; i++) {
        assert.equal(at(votes, i * 4), 3);
        assert.equal(at(votes, i * 4 + 1), odd);
        assert.equal(
          at(votes, i * 4 + 2),
          at(v, i) % 2 === 1 ? mask((l) => at(v, l) % 2 === 1 && at(v, l) > 3) : 0,
        );
        assert.equal(at(votes, i * 4 + 3), at(v, i ^ 5) + at(v, i % 16 < 3 ? i : i - 3) * 1000);
        if (!matching) continue;
        assert.equal(
          at(matches, i * 2),
          mask((l) => at(v, l) === at(v, i)),
        );
        assert.equal(at(matches, i * 2 + 1), 0xfffffffe, 'all lanes, and the predicate');
      }
    });

    it('lets every lane of a warp have a lock in turn', () => {
      const out = good(
        run('control', target, [4], [{ kernel: 'spin_lock', grid: [4], block: [64], args: ['b1'] }]),
      );
      assert.equal(at(i32(at(out, 0)), 0), 256);
    });

    it('does atomics in two threads at once', () => {
      const n = 1024;
      const start = Uint32Array.of(0, 0, 0xffffffff, 0, 0);
      const out = good(
        run(
          'control',
          target,
          [16, bytes(start), 16, 4, 8],
          [{ kernel: 'atomics', grid: [8], block: [128], args: ['b1', 'b2', 'b3', 'b4', 'b5'] }],
        ),
      );
      const sum = (n * (n - 1)) / 2;
      assert.deepEqual([...i32(at(out, 0))], [sum, -sum, -500, n - 1 - 500]);
      assert.deepEqual([...u32(at(out, 1))].slice(2), [0, 0xffffffff, 0]);
      assert.equal(at(u32(at(out, 1)), 0), n % 10);
      assert.deepEqual([...u64(at(out, 2))], [BigInt(sum) << 20n, BigInt(n - 1) << 40n]);
      assert.equal(at(f32(at(out, 3)), 0), n / 2);
      assert.equal(at(f64(at(out, 4)), 0), target >= 60 ? n / 4 : 0);
    });

    it('keeps variables, and pointers to them, from launch to launch', () => {
      const variables = { kernel: 'variables', block: [1], args: ['b1'] };
      const out = good(run('control', target, [4], [variables, variables]));
      assert.equal(at(i32(at(out, 0)), 0), 101);
    });

    it('prints', () => {
      const outcome = run('control', target, [], [{ kernel: 'prints', block: [32], args: ['u32:3'] }]);
      good(outcome);
      const line = (i: number): string =>
        `thread ${i} of 0: text ${(i * 0.5).toFixed(2).padStart(5)} ${-(2 ** 40)} ${String.fromCharCode(97 + i)} ff%\n`;
      assert.equal(outcome.printed, [0, 1, 2].map(line).join(''));
    });

    it('allocates', () => {
      const out = good(
        run('control', target, [256], [{ kernel: 'allocates', block: [64], args: ['b1'] }], ['heap 65536']),
      );
      assert.deepEqual(
        i32(at(out, 0)),
        ints(64, (i) => (3 * i * (i + 1)) / 2),
      );
    });

    it('indexes arrays in local memory and takes structures by value', () => {
      const v = ints(32, (i) => i * 3 + 1);
      const parcel = (tag: number, weight: number, sizes: readonly number[]): Buffer => {
        const buffer = Buffer.alloc(40);
        buffer.writeInt8(tag, 0);
        buffer.writeDoubleLE(weight, 8);
        for (const [i, size] of sizes.entries()) buffer.writeInt32LE(size, 16 + 4 * i);
        return buffer;
      };
      const sizes = [3, 1, 4, 1, 5];
      const others = Buffer.concat(Array.from({ length: 32 }, (_, i) => parcel(i, i / 2, sizes)));
      const out = good(
        run(
          'control',
          target,
          [bytes(v), 128, others, 256],
          [
            { kernel: 'local_array', block: [32], args: ['b1', 'b2'] },
            {
              kernel: 'by_value',
              block: [32],
              args: [`x:${parcel(-9, 2.5, [1, 2, 3, 4, 5]).toString('hex')}`, 'u16:65534', 'b3', 'b4'],
            },
          ],
        ),
      );
      assert.deepEqual(
        i32(at(out, 1)),
        ints(32, (i) => {
          const values = Array.from({ length: 16 }, (_, k) => at(v, (i + k) % 32) * k);
          return values.reduce((sum, x) => sum + x, 0) + 16 * at(values, at(v, i) & 15);
        }),
      );
      assert.deepEqual(
        f64(at(out, 3)),
        Float64Array.from({ length: 32 }, (_, i) =>
          i % 2 === 0 ? 2.5 * ((i % 5) + 1) - 9 - 2 : (i / 2) * at(sizes, i % 5) + i - 2,
        ),
      );
    });

    it('digests as node does', () => {
      const next = random(2);
      const messages = Uint32Array.from({ length: 50 * 16 }, () => next());
      const out = at(
        good(
          run(
            'sha256',
            target,
            [bytes(messages), 50 * 32],
            [{ kernel: 'sha256', grid: [2], block: [32], args: ['b1', 'b2', 'u32:50'] }],
          ),
        ),
        1,
      );
      for (let i = 0; i < 50; i++) {
        const message = bytes(messages).subarray(i * 64, i * 64 + 64);
        assert.equal(
          out.subarray(i * 32, i * 32 + 32).toString('hex'),
          createHash('sha256').update(message).digest('hex'),
        );
      }
    });

    it('faults where a GPU would, and says which thread it was', () => {
      const fault = (kernel: string, args: string[], block = 32, before: string[] = []): string =>
        at(run('control', target, [4096, 4096], [{ kernel, block: [block], args }], before).launches, 0);
      assert.match(fault('reads_beyond', ['b1', 'b2']), /^error illegal address: .* thread 1,0,0 /);
      assert.match(fault('reads_between', ['b1', 'b2']), /^error misaligned address: .* thread 1,0,0 /);
      assert.match(fault('traps', []), /^error trap: .* thread 3,0,0 /);
      assert.match(fault('runs_on', [], 32, ['limit 100']), /^error timeout: /);
      assert.match(fault('waits_in_vain', [], 64), /^error timeout: .*barriers that can never open/);
      const outcome = run('control', target, [], [{ kernel: 'asserts', block: [64], args: ['u32:40'] }]);
      assert.match(at(outcome.launches, 0), /^error assert: .* thread 40,0,0 /);
      assert.match(outcome.printed, /thread: \[40,0,0\] Assertion `threadIdx\.x < n` failed\.\n/);
    });

    it('refuses launches that are not possible', () => {
      const refused = (launch: Partial<Launch>): string =>
        at(
          run('parallel', target, [64], [{ kernel: 'chained', block: [32], args: ['b1'], ...launch }])
            .launches,
          0,
        );
      assert.match(refused({ block: [1025] }), /^error bad launch: .*a block of 1025/);
      assert.match(refused({ block: [1024, 2] }), /^error bad launch: .*2048 threads/);
      assert.match(refused({ grid: [0] }), /^error bad launch: .*a grid of 0/);
      assert.match(refused({ shared: 1 << 20 }), /^error bad launch: .*shared memory/);
    });

    it('multiplies bytes four at a time', { skip: target < 61 && 'not before 6.1' }, () => {
      const next = random(5);
      const a = Int8Array.from({ length: 256 }, () => next());
      const b = Int8Array.from({ length: 256 }, () => next());
      const out = good(
        run(
          'numeric',
          target,
          [bytes(a), bytes(b), 4],
          [{ kernel: 'dp4a_dot', block: [32], args: ['b1', 'b2', 'b3', 'u32:64'] }],
        ),
      );
      assert.equal(
        at(i32(at(out, 2)), 0),
        a.reduce((sum, x, i) => sum + x * at(b, i), 0),
      );
    });

    it('lets all blocks of a grid wait for each other', {
      skip: !existsSync(ptxOf('grid', target)) && 'not compiled for it',
    }, () => {
      const n = 6 * 64;
      const start = Uint32Array.from({ length: n }, (_, i) => i);
      const tiles = ints(32, (i) => i * i);
      const out = good(
        run(
          'grid',
          target,
          [bytes(start), bytes(tiles), 128],
          [
            { kernel: 'grid_steps', grid: [6], block: [64], args: ['b1', 'u32:5'] },
            { kernel: 'tiles', block: [32], args: ['b2', 'b3'] },
          ],
          ['helpers 1', 'cooperative 1'],
        ),
      );
      let values = start;
      for (let r = 0; r < 5; r++) values = values.map((x, i) => x + at(values, (i + 1) % n));
      assert.deepEqual(u32(at(out, 0)), values);
      assert.deepEqual(
        i32(at(out, 2)),
        ints(32, (i) => {
          let sum = 0;
          for (let k = 0; k < 8; k++) sum += at(tiles, (i & ~7) + k);
          return sum + (i % 3 === 0 ? 1000 * (i / 3) : 0);
        }),
      );
    });
  });
}
