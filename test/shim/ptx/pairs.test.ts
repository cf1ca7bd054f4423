/**
 * Instructions whose result or whose use is more than one register: predicates beside values, values packed into one
 * register, vectors of atomics, barriers in memory. Against an evaluation in BigInt.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { checkAll, clamp, type Instruction, integer } from './edges.js';
import * as fp from './float.js';
import { bytes, f32, random, runPtx, u32 } from './machine.js';

const HEAD = '.version 8.4\n.target sm_90\n.address_size 64\n';

/** One block of `threads`, with one buffer whose address is %out; its words afterwards. */
function run(body: string, threads: number, words: Buffer | number, check: readonly string[] = []): Buffer {
  const text = `${HEAD}.visible .entry k(.param .u64 p)
{
  .reg .b64 %out, %rd<9>; .reg .b32 %tid, %r<9>; .reg .b16 %h<9>; .reg .f32 %f<9>; .reg .pred %p<9>;
  .shared .align 8 .b64 gate;
  ld.param.u64 %out, [p];
  mov.u32 %tid, %tid.x;
${body}
  ret;
}\n`;
  const outcome = runPtx({
    ptx: { text },
    buffers: [words],
    ...(check.length > 0 ? { before: [`check ${check.join()}`] } : {}),
    launches: [{ kernel: 'k', block: [threads], args: ['b1'] }],
  });
  assert.match(outcome.load, /^ok /);
  assert.match(outcome.launches[0] ?? '', /^ok /);
  assert.deepEqual(outcome.findings, []);
  const [out] = outcome.buffers;
  assert.ok(out);
  return out;
}

describe('instructions of Blackwell on several floats', () => {
  const THREADS = 512;
  const special = [0, 0x80000000, 1, 0x807fffff, 0x00800000, 0x3f800000, 0x7f7fffff, 0x7f800000, 0xff800000];
  const next = random(31);
  const operands = Buffer.alloc(THREADS * 24);
  for (let i = 0; i < THREADS * 6; i++) {
    const word = special[next() % 20] ?? (next() % 9 === 0 ? next() : 0x3f000000 + (next() % 0x2000000));
    operands.writeUInt32LE(word >>> 0, i * 4);
  }

  /** Both texts compute %d from the pairs %a, %b and %c, whose halves are %a0, %a1 and so on. */
  function same(first: string, second: string): void {
    const body = (text: string, at: number): string =>
      `${text} mad.lo.u32 %t, %x, 16, ${at}; cvt.u64.u32 %w, %t; add.u64 %w, %w, %out; st.global.b64 [%w], %d;`;
    const text = `.version 9.0\n.target sm_100\n.address_size 64
.entry k(.param .u64 in, .param .u64 out)
{
  .reg .b64 %in, %out, %w, %a, %b, %c, %d; .reg .b32 %x, %t; .reg .f32 %a0, %a1, %b0, %b1, %c0, %c1, %d0, %d1;
  ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %x, %tid.x; mul.wide.u32 %w, %x, 24; add.u64 %in, %in, %w;
  ld.global.b64 %a, [%in]; ld.global.b64 %b, [%in+8]; ld.global.b64 %c, [%in+16];
  mov.b64 {%a0, %a1}, %a; mov.b64 {%b0, %b1}, %b; mov.b64 {%c0, %c1}, %c;
  ${body(first, 0)}
  ${body(second, 8)}
  ret;
}
`;
    const launches = [{ kernel: 'k', block: [THREADS], args: ['b1', 'b2'] }];
    const outcome = runPtx({ ptx: { text }, device: 100, buffers: [operands, THREADS * 16], launches });
    assert.deepEqual(outcome.refused, []);
    assert.match(outcome.launches[0] ?? '', /^ok /);
    const out = outcome.buffers[1] ?? Buffer.alloc(0);
    const results = Array.from({ length: THREADS }, (_, i) => out.readBigUInt64LE(i * 16));
    assert.ok(new Set(results).size > THREADS / 3, 'the results differ from thread to thread');
    assert.deepEqual(
      Array.from({ length: THREADS }, (_, i) => out.readBigUInt64LE(i * 16 + 8)),
      results,
    );
  }

  for (const [name, count] of [
    ['add', 2],
    ['sub', 2],
    ['mul', 2],
    ['fma', 3],
  ] as const)
    for (const mode of ['rn', 'rn.ftz', 'rz', 'rm.ftz', 'rp']) {
      it(`${name}.${mode}.f32x2 is two ${name}.${mode}.f32`, () => {
        const from = ['a', 'b', 'c'].slice(0, count);
        const of = (half: number): string =>
          `${name}.${mode}.f32 %d${half}, ${from.map((one) => `%${one}${half}`).join(', ')};`;
        same(
          `${name}.${mode}.f32x2 %d, ${from.map((one) => `%${one}`).join(', ')};`,
          `${of(0)} ${of(1)} mov.b64 %d, {%d0, %d1};`,
        );
      });
    }

  for (const name of ['min.f32', 'max.f32', 'min.NaN.f32', 'max.ftz.NaN.f32', 'max.ftz.f32']) {
    it(`${name} takes three operands`, () => {
      const three = (half: number): string => `${name} %d${half}, %a${half}, %b${half}, %c${half};`;
      const two = (half: number): string =>
        `${name} %d${half}, %b${half}, %c${half}; ${name} %d${half}, %a${half}, %d${half};`;
      const pair = 'mov.b64 %d, {%d0, %d1};';
      same(`${three(0)} ${three(1)} ${pair}`, `${two(0)} ${two(1)} ${pair}`);
    });
  }
});

const COMPARISONS: readonly (readonly [string, (x: number, y: number) => boolean, boolean])[] = [
  ['eq', (x, y) => x === y, false],
  ['ne', (x, y) => x !== y, false],
  ['lt', (x, y) => x < y, false],
  ['le', (x, y) => x <= y, false],
  ['gt', (x, y) => x > y, false],
  ['ge', (x, y) => x >= y, false],
  ['equ', (x, y) => x === y, true],
  ['neu', (x, y) => x !== y, true],
  ['ltu', (x, y) => x < y, true],
  ['leu', (x, y) => x <= y, true],
  ['gtu', (x, y) => x > y, true],
  ['geu', (x, y) => x >= y, true],
  ['num', () => true, false],
  ['nan', () => false, true],
];

function compares(comparison: (typeof COMPARISONS)[number], x: number, y: number): boolean {
  const [, ordered, unordered] = comparison;
  return Number.isNaN(x) || Number.isNaN(y) ? unordered : ordered(x, y);
}

function numberOf(format: fp.Format, bits: number): number {
  const value = fp.decode(format, BigInt(bits));
  if (value.kind === 'nan') return Number.NaN;
  const size =
    value.kind === 'infinite' ? Number.POSITIVE_INFINITY : Number(value.magnitude) * 2 ** value.scale;
  return value.negative ? -size : size;
}

describe('instructions with more than one result or value', () => {
  for (const [type, format, one, edges] of [
    ['f16x2', fp.F16, 0x3c00, [0, 0x8000, 1, 0x8001, 0x3c00, 0x3c01, 0xbc00, 0x7c00, 0xfc00, 0x7e00, 0xfe01]],
    [
      'bf16x2',
      fp.BF16,
      0x3f80,
      [0, 0x8000, 1, 0x8001, 0x3f80, 0x3f81, 0xbf80, 0x7f80, 0xff80, 0x7fc0, 0xffc1],
    ],
  ] as const) {
    it(`setp and set compare both halves of ${type}`, () => {
      const each = 2 + 2 * COMPARISONS.length;
      for (let round = 0; round < edges.length; round++) {
        const at = (i: number): number => edges[i % edges.length] ?? 0;
        const pair = (low: number, high: number): number => ((high << 16) | low) >>> 0;
        const a = Array.from({ length: 32 }, (_, i) => pair(at(i), at(i + round + 3)));
        const b = Array.from({ length: 32 }, (_, i) => pair(at(i + round), at(i * 3 + 1)));
        const words = new Uint32Array(32 * each);
        for (let i = 0; i < 32; i++) words.set([a[i] ?? 0, b[i] ?? 0], i * each);
        const text = COMPARISONS.map(
          ([name], k) => `setp.${name}.${type} %p1|%p2, %r1, %r2;
  selp.u32 %r3, 1, 0, %p1; selp.u32 %r4, 2, 0, %p2; or.b32 %r3, %r3, %r4;
  st.global.u32 [%rd1+${8 + 8 * k}], %r3;
  set.${name}.${type}.${type} %r3, %r1, %r2;
  st.global.u32 [%rd1+${12 + 8 * k}], %r3;`,
        ).join('\n');
        const out = u32(
          run(
            `mad.wide.u32 %rd1, %tid, ${4 * each}, %out;
  ld.global.u32 %r1, [%rd1]; ld.global.u32 %r2, [%rd1+4];
${text}`,
            32,
            bytes(words),
          ),
        );
        for (let i = 0; i < 32; i++) {
          COMPARISONS.forEach((comparison, k) => {
            const [low, high] = [0, 16].map((shift) => {
              const [x = 0, y = 0] = [a[i], b[i]].map((word) => ((word ?? 0) >>> shift) & 0xffff);
              return compares(comparison, numberOf(format, x), numberOf(format, y));
            });
            const found = [out[i * each + 2 + 2 * k], out[i * each + 3 + 2 * k]];
            const expected = [(low ? 1 : 0) | (high ? 2 : 0), pair(low ? one : 0, high ? one : 0)];
            assert.deepEqual(found, expected, `${comparison[0]} ${a[i]?.toString(16)} ${b[i]?.toString(16)}`);
          });
        }
      }
    });
  }

  it('setp of a pair combines both comparisons with what the predicate was before', () => {
    // 1 < 2 in the lower half, 2 < 1 in the upper one; the predicate is true for threads above 15
    const out = u32(
      run(
        `mov.b32 %r1, 0x40003c00; mov.b32 %r2, 0x3c004000;
  setp.gt.u32 %p1, %tid, 15;
  setp.lt.or.f16x2 %p1|%p2, %r1, %r2, %p1;
  selp.u32 %r3, 1, 0, %p1; selp.u32 %r4, 2, 0, %p2; or.b32 %r3, %r3, %r4;
  mad.wide.u32 %rd1, %tid, 4, %out;
  st.global.u32 [%rd1], %r3;`,
        32,
        128,
      ),
    );
    assert.deepEqual(
      [...out],
      Array.from({ length: 32 }, (_, i) => (i > 15 ? 3 : 1)),
    );
  });

  it('lop3 says in a predicate whether its result is not zero, combined with another', () => {
    const value = (table: number, a: bigint, b: bigint, c: bigint): bigint => {
      let r = 0n;
      for (let i = 0n; i < 32n; i++) {
        const index = Number((((a >> i) & 1n) << 2n) | (((b >> i) & 1n) << 1n) | ((c >> i) & 1n));
        if ((table >> index) & 1) r |= 1n << i;
      }
      return r;
    };
    const one = (operation: 'and' | 'or', table: number, negated: boolean, part: 'd' | 'p'): Instruction => ({
      name: `lop3.${operation}.b32 ${part}`,
      to: part === 'd' ? 'b32' : 'pred',
      from: ['b32', 'b32', 'b32', 'b32'],
      body: `setp.gt.u32 %q, x3, 32;
  lop3.${operation}.b32 ${part === 'd' ? 'y|%result' : '_|%result'}, x0, x1, x2, ${table}, ${negated ? '!' : ''}%q;`,
      result: (a = 0n, b = 0n, c = 0n, d = 0n) => {
        const r = value(table, a, b, c);
        if (part === 'd') return r;
        const q = d > 32n !== negated;
        return (operation === 'and' ? r !== 0n && q : r !== 0n || q) ? 1n : 0n;
      },
    });
    checkAll(
      (['and', 'or'] as const).flatMap((operation) =>
        [0x80, 0x96, 0x00].flatMap((table) => [
          one(operation, table, false, 'd'),
          one(operation, table, false, 'p'),
          one(operation, table, true, 'p'),
        ]),
      ),
    );
  });

  it('cvt.pack clamps two values and puts them below what is there', () => {
    checkAll(
      ['u16', 's16', 'u8', 's8', 'u4', 's4', 'u2', 's2'].map((to): Instruction => {
        const bits = BigInt(to.slice(1));
        const top = to.startsWith('s') ? (1n << (bits - 1n)) - 1n : (1n << bits) - 1n;
        const low = to.startsWith('s') ? -top - 1n : 0n;
        const few = (x: bigint): bigint => BigInt.asUintN(Number(bits), clamp(integer('s32', x), low, top));
        return {
          name: `cvt.pack.sat.${to}.s32${bits === 16n ? '' : '.b32'}`,
          to: 'b32',
          from: bits === 16n ? ['s32', 's32'] : ['s32', 's32', 'b32'],
          result: (a = 0n, b = 0n, c = 0n) => (c << (2n * bits)) | (few(a) << bits) | few(b),
        };
      }),
    );
  });

  it('min and max with relu never go below zero', () => {
    const better = (name: string, a: bigint, b: bigint): bigint => {
      const r = (name === 'min') === a < b ? a : b;
      return r < 0n ? 0n : r;
    };
    const half = (x: bigint, i: bigint): bigint => BigInt.asIntN(16, x >> (16n * i));
    checkAll(
      ['min', 'max'].flatMap((name): Instruction[] => [
        {
          name: `${name}.relu.s32`,
          to: 's32',
          from: ['s32', 's32'],
          result: (a = 0n, b = 0n) => better(name, integer('s32', a), integer('s32', b)),
        },
        {
          name: `${name}.relu.s16x2`,
          to: 'b32',
          from: ['b32', 'b32'],
          result: (a = 0n, b = 0n) =>
            (better(name, half(a, 1n), half(b, 1n)) << 16n) | better(name, half(a, 0n), half(b, 0n)),
        },
      ]),
    );
  });
});

describe('atomics on several values', () => {
  it('add pairs of 16-bit floats, with a result and without', () => {
    const halves = [1.5, -2, 0.25, 1024].map((x) => fp.encode(fp.F16, real(x)));
    const [a = 0n, b = 0n, c = 0n, d = 0n] = halves;
    const words = [a | (b << 16n), 0n, a | (b << 16n)];
    const out = u32(
      run(
        `  mov.u32 %r1, ${c | (d << 16n)};
  atom.global.add.noftz.f16x2 %r2, [%out], %r1;
  st.global.u32 [%out+4], %r2;
  red.global.add.noftz.f16x2 [%out+8], %r1;`,
        1,
        bytes(Uint32Array.from(words, Number)),
      ),
    );
    const sum = Number(fp.encode(fp.F16, real(1.75)) | (fp.encode(fp.F16, real(1022)) << 16n));
    assert.deepEqual([...out], [sum, Number(words[0]), sum]);
  });

  it('add vectors of floats element by element, and return the previous values', () => {
    const body = `  mov.f32 %f1, 0f3F800000; mov.f32 %f2, 0f40000000; mov.f32 %f3, 0f40400000; mov.f32 %f4, 0f40800000;
  red.global.add.v4.f32 [%out], {%f1, %f2, %f3, %f4};
  bar.sync 0;
  setp.ne.u32 %p1, %tid, 0;
  @%p1 bra done;
  atom.global.v2.f32.add {%f2, %f1}, [%out+8], {%f1, %f2};
  st.global.v2.f32 [%out+16], {%f2, %f1};
done:`;
    const out = f32(run(body, 96, 24));
    assert.deepEqual([...out], [96, 192, 96 * 3 + 1, 96 * 4 + 2, 96 * 3, 96 * 4]);
  });

  it('find the greatest of vectors of halves', () => {
    const of = (x: number): number => Number(fp.encode(fp.F16, real(x)));
    const body = `  mov.b16 %h1, ${of(3)}; mov.b16 %h2, ${of(-3)}; mov.b16 %h3, ${of(0.5)}; mov.b16 %h4, ${of(7)};
  red.global.max.noftz.v4.f16 [%out], {%h1, %h2, %h3, %h4};`;
    const before = Uint16Array.from([1, -1, 0.25, 9].map(of));
    const out = run(body, 1, bytes(before));
    const halves = [0, 2, 4, 6].map((at) => out.readUInt16LE(at));
    assert.deepEqual(halves, [3, -1, 0.5, 9].map(of));
  });
});

describe('barriers in memory', () => {
  const INIT = (count: number): string => `  setp.ne.u32 %p1, %tid, 0;
  @%p1 bra ready;
  mbarrier.init.shared::cta.b64 [gate], ${count};
ready:
  bar.sync 0;
`;
  // Each writes, arrives, waits, and reads what the one across wrote.
  const crossing = (arrive: string, wait: string): string => `${INIT(96)}
  mov.u32 %r5, 0;
  mov.u32 %r6, 7;
again:
  mad.wide.u32 %rd2, %tid, 4, %out;
  add.u32 %r1, %tid, %r6;
  st.volatile.global.u32 [%rd2], %r1;
  ${arrive}
waiting:
  ${wait}
  @!%p2 bra waiting;
  sub.u32 %r2, 95, %tid;
  mad.wide.u32 %rd4, %r2, 4, %out;
  ld.volatile.global.u32 %r3, [%rd4];
  st.global.u32 [%rd2+384], %r3;
  bar.sync 0;
  add.u32 %r6, %r6, 100;
  xor.b32 %r5, %r5, 1;
  setp.lt.u32 %p3, %r6, 300;
  @%p3 bra again;`;
  const crossed = [
    ...Array.from({ length: 96 }, (_, i) => i + 207),
    ...Array.from({ length: 96 }, (_, i) => 95 - i + 207),
  ];

  for (const [name, arrive, wait] of [
    [
      'the state that arriving gave',
      'mbarrier.arrive.shared::cta.b64 %rd3, [gate];',
      'mbarrier.test_wait.shared::cta.b64 %p2, [gate], %rd3;',
    ],
    [
      'the parity of the phase',
      'mbarrier.arrive.release.cta.shared::cta.b64 _, [gate];',
      'mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p2, [gate], %r5, 1000;',
    ],
    [
      'copies that have been made',
      'cp.async.mbarrier.arrive.shared.b64 [gate];\n  cp.async.mbarrier.arrive.noinc.shared.b64 [gate];',
      'mbarrier.try_wait.parity.shared.b64 %p2, [gate], %r5;',
    ],
    [
      'generic addresses',
      'cvta.shared.u64 %rd5, %rd6;\n  mbarrier.arrive.b64 %rd3, [%rd5], 1;',
      'mbarrier.try_wait.b64 %p2, [%rd5], %rd3;',
    ],
  ] as const) {
    it(`let three warps through, phase by phase: ${name}`, () => {
      const body = crossing(arrive, wait).replace('again:', '  mov.u64 %rd6, gate;\nagain:');
      assert.deepEqual([...u32(run(body, 96, 768))], crossed);
      assert.deepEqual([...u32(run(body, 96, 768, ['race', 'init']))], crossed);
    });
  }

  it('count what is missing, drop who does not come again, and are over after as many as there are', () => {
    const out = u32(
      run(
        `  mbarrier.init.shared.b64 [gate], 5;
  mbarrier.arrive.noComplete.shared.b64 %rd1, [gate], 2;
  mbarrier.pending_count.b64 %r1, %rd1;
  mbarrier.arrive_drop.shared.b64 %rd2, [gate];
  mbarrier.pending_count.b64 %r2, %rd2;
  mbarrier.test_wait.shared.b64 %p1, [gate], %rd2;
  selp.u32 %r3, 1, 0, %p1;
  mbarrier.arrive.shared.b64 %rd3, [gate], 2;
  mbarrier.test_wait.shared.b64 %p1, [gate], %rd3;
  selp.u32 %r4, 1, 0, %p1;
  mbarrier.arrive.shared.b64 %rd4, [gate];
  mbarrier.pending_count.b64 %r5, %rd4;
  mbarrier.test_wait.parity.shared.b64 %p1, [gate], 0;
  selp.u32 %r6, 1, 0, %p1;
  mbarrier.test_wait.parity.shared.b64 %p1, [gate], 1;
  selp.u32 %r7, 1, 0, %p1;
  mbarrier.inval.shared.b64 [gate];
  st.global.v4.u32 [%out], {%r1, %r2, %r3, %r4};
  st.global.u32 [%out+16], %r5;
  st.global.v2.u32 [%out+24], {%r6, %r7};`,
        1,
        32,
      ),
    );
    // The second phase has four: one of five was dropped. Phase 0 is over, phase 1 is not.
    assert.deepEqual([...out], [5, 3, 0, 1, 4, 0, 1, 0]);
  });
});

/** A number that is a fraction of a power of two. */
function real(x: number): fp.Value {
  return fp.decode(fp.F64, BigInt.asUintN(64, bitsOfDouble(x)));
}
function bitsOfDouble(x: number): bigint {
  const buffer = Buffer.alloc(8);
  buffer.writeDoubleLE(x);
  return buffer.readBigUInt64LE();
}
