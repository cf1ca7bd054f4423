/** The same kernels as in kernels.test.ts, and more: control flow, warps, atomics, memory and faults. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { describe, it } from 'node:test';
import { at, floats, good, ints, ptxOf, run, TARGETS } from './compiled_kernels.js';
import { bytes, f32, f64, i32, type Launch, random, u32, u64 } from './machine.js';

for (const target of TARGETS) {
  describe(`control and memory in kernels for compute_${target}`, () => {
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
