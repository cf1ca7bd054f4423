/**
 * Where the lanes of a warp read and write: at one place, side by side, in two places, anywhere; some of them or all;
 * within the memory or beyond its ends. Loads, stores and cp.async.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type Outcome, runPtx } from './machine.js';

const LANES = 32;
const BYTES = 4096; /* of the memory that is read, and of the one that is written */

/** The element of each lane. */
const PLACES: Readonly<Record<string, (lane: number) => number>> = {
  'one place': () => 3,
  'side by side': (lane) => 5 + lane,
  'two places': (lane) => (lane < 16 ? 7 : 90),
  'halves side by side': (lane) => (lane < 16 ? 40 + lane : lane),
  backwards: (lane) => 100 - lane,
  'every other one': (lane) => 2 * lane,
  'side by side but one': (lane) => (lane === 21 ? 77 : lane),
  'one place but one': (lane) => (lane === 9 ? 78 : 4),
  anywhere: (lane) => (lane * 37 + 11) % 128,
};
const MASKS: Readonly<Record<string, number>> = {
  'all lanes': 0xffffffff,
  'every third lane': 0x49249249,
  'the upper lanes': 0xfffff000,
  'one lane': 0x00400000,
};

const source = Buffer.from(Array.from({ length: BYTES }, (_, i) => (i * 7 + (i >> 8) * 13) & 0xff));

interface Lanes {
  readonly from: (lane: number) => number;
  readonly to: (lane: number) => number;
  readonly mask: number;
  /** Bytes that are copied, the rest is zero; cp.async only. */
  readonly have?: (lane: number) => number;
}

type How = 'load' | 'store' | 'copy';

/** Each lane of the mask moves an element from one place to another, by way of a register or of shared memory. */
function kernel(how: How, size: number, extra: string): string {
  const type = size === 16 ? 'v2.b64' : `b${size * 8}`;
  const value = size === 16 ? '{%v0, %v1}' : size === 8 ? '%v0' : '%w';
  const copy = `cp.async.${size === 16 ? 'cg' : 'ca'}.shared.global [%dst], [%from], ${size}${extra};`;
  return `.version 8.4\n.target sm_90\n.address_size 64
.entry k(.param .u64 src, .param .u64 out, .param .u64 lanes, .param .u32 mask)
{
.reg .b64 %src, %out, %lanes, %from, %to, %wide, %v0, %v1; .reg .b32 %tid, %at, %f, %t, %have, %w, %dst, %bit;
.reg .pred %p, %ignore;
.shared .align 16 .b8 there[${BYTES}];
ld.param.u64 %src, [src]; ld.param.u64 %out, [out]; ld.param.u64 %lanes, [lanes];
mov.u32 %tid, %tid.x;
mul.wide.u32 %wide, %tid, 12; add.u64 %lanes, %lanes, %wide;
ld.global.u32 %f, [%lanes]; ld.global.u32 %t, [%lanes+4]; ld.global.u32 %have, [%lanes+8];
cvt.s64.s32 %wide, %f; add.s64 %from, %src, %wide;
cvt.s64.s32 %wide, %t; add.s64 %to, %out, %wide;
mov.u32 %dst, there; add.u32 %dst, %dst, %t;
setp.eq.u32 %ignore, %have, 0;
ld.param.u32 %bit, [mask]; shr.u32 %bit, %bit, %tid; and.b32 %bit, %bit, 1;
setp.ne.u32 %p, %bit, 0;
${
  how === 'copy'
    ? `@%p ${copy}
cp.async.wait_all; bar.sync 0;
mov.u32 %at, 0;
again:
add.u32 %f, %at, %tid; mov.u32 %dst, there; add.u32 %dst, %dst, %f;
ld.shared.u8 %w, [%dst]; cvt.u64.u32 %wide, %f; add.u64 %to, %out, %wide; st.global.u8 [%to], %w;
add.u32 %at, %at, 32; setp.lt.u32 %p, %at, ${BYTES}; @%p bra again;`
    : `@%p ld.global.${type} ${value}, [%from];
@%p st.global.${type} [%to], ${value};`
}
ret;
}
`;
}

function run(how: How, size: number, lanes: Lanes, extra = ''): Outcome {
  const table = Buffer.alloc(LANES * 12);
  for (let lane = 0; lane < LANES; lane++) {
    table.writeInt32LE(lanes.from(lane), lane * 12);
    table.writeInt32LE(lanes.to(lane), lane * 12 + 4);
    table.writeInt32LE(lanes.have?.(lane) ?? size, lane * 12 + 8);
  }
  return runPtx({
    ptx: { text: kernel(how, size, extra) },
    buffers: [source, BYTES, table],
    launches: [{ kernel: 'k', block: [LANES], args: ['b1', 'b2', 'b3', `u32:${lanes.mask}`] }],
  });
}

function expected(size: number, { from, to, mask, have = () => size }: Lanes): Buffer {
  const out = Buffer.alloc(BYTES);
  for (let lane = 0; lane < LANES; lane++) {
    if (((mask >>> lane) & 1) === 0) continue;
    out.fill(0, to(lane), to(lane) + size);
    source.copy(out, to(lane), from(lane), from(lane) + have(lane));
  }
  return out;
}

function check(how: How, size: number, lanes: Lanes, extra = ''): void {
  const { launches, buffers } = run(how, size, lanes, extra);
  assert.match(launches[0] ?? '', /^ok/);
  assert.deepEqual(buffers[1], expected(size, lanes));
}

describe('lanes move elements', () => {
  for (const how of ['load', 'copy'] as const) {
    for (const [name, place] of Object.entries(PLACES)) {
      it(`from ${name}: ${how === 'copy' ? 'cp.async' : 'ld'}`, () => {
        for (const size of [4, 8, 16]) {
          for (const mask of Object.values(MASKS)) {
            check(how, size, { from: (lane) => place(lane) * size, to: (lane) => lane * size, mask });
          }
        }
      });
      /* which of several lanes writes last is not defined */
      const places = Array.from({ length: LANES }, (_, lane) => place(lane));
      if (new Set(places).size < LANES) continue;
      it(`to ${name}: ${how === 'copy' ? 'cp.async' : 'st'}`, () => {
        for (const size of [4, 8, 16]) {
          for (const mask of Object.values(MASKS)) {
            check(how, size, { from: (lane) => lane * size, to: (lane) => place(lane) * size, mask });
          }
        }
      });
    }
  }

  it('of which cp.async copies a part, or nothing', () => {
    for (const size of [4, 8, 16]) {
      const lanes = {
        from: (lane: number) => lane * size,
        to: (lane: number) => lane * size,
        mask: 0xffffffff,
      };
      for (const have of [
        () => size,
        () => 0,
        (lane: number) => (lane === 7 ? 0 : size),
        (lane: number) => lane % 5,
      ]) {
        const some = (lane: number): number => Math.min(have(lane), size);
        check('copy', size, { ...lanes, have: some }, ', %have');
        const all = (lane: number): number => (have(lane) === 0 ? 0 : size);
        check('copy', size, { ...lanes, have: all }, ', %ignore');
      }
    }
  });
});

describe('a lane beyond the memory is named', () => {
  const step = (size: number) => (lane: number) => lane * size;
  const last = (size: number) => (lane: number) => BYTES - (LANES - 1 - lane) * size;
  for (const size of [4, 8, 16]) {
    for (const how of ['load', 'copy'] as const) {
      const cases: readonly [string, Lanes, number][] = [
        ['reads behind it', { from: last(size), to: step(size), mask: 0xffffffff }, 31],
        ['reads before it', { from: (lane) => (lane - 4) * size, to: step(size), mask: 0xffffffff }, 0],
        ['reads behind it, all at one place', { from: () => BYTES, to: step(size), mask: 0xffffffff }, 0],
        [
          'reads at a wrong alignment',
          { from: (lane) => lane * size + 1, to: step(size), mask: 0xffffffff },
          0,
        ],
        [
          'reads behind it in the upper half',
          {
            from: (lane) => (lane < 16 ? lane * size : BYTES - 8 * size + (lane - 16) * size),
            to: step(size),
            mask: 0xffffffff,
          },
          24,
        ],
        ['writes behind it', { from: step(size), to: last(size), mask: 0xffffffff }, 31],
        [
          'writes at a wrong alignment',
          { from: step(size), to: (lane) => lane * size + 2, mask: 0xffffffff },
          0,
        ],
        [
          'and those that are masked do not count',
          { from: last(size), to: step(size), mask: 0x7fffffff },
          -1,
        ],
      ];
      for (const [name, lanes, lane] of cases) {
        it(`${how === 'copy' ? 'cp.async' : 'ld, st'} of ${size} bytes ${name}`, () => {
          const { launches } = run(how, size, lanes);
          if (lane < 0) assert.match(launches[0] ?? '', /^ok/);
          else assert.match(launches[0] ?? '', new RegExp(`^error.*\\b${lane},0,0`));
        });
      }
    }
  }
});

describe('lanes of each half load the same vector', () => {
  for (const [type, count, held] of [
    ['u8', 4, 32],
    ['s8', 4, 32],
    ['s8', 2, 16],
    ['u16', 2, 16],
    ['s16', 4, 32],
    ['s16', 2, 64],
    ['b32', 2, 32],
    ['f32', 4, 32],
    ['s32', 4, 64],
    ['b64', 2, 64],
    ['b64', 4, 64],
  ] as const) {
    it(`of ${count} ${type} into registers of ${held} bits`, () => {
      const size = Number(type.slice(1)) / 8;
      const names = Array.from({ length: count }, (_, k) => `%v${k}`);
      const register = type === 'f32' ? 'f32' : `b${held}`;
      const text = `.version 8.8\n.target sm_100\n.address_size 64
.entry k(.param .u64 src, .param .u64 out, .param .u32 low, .param .u32 high)
{
.reg .b64 %src, %out, %wide; .reg .b32 %tid, %low, %high; .reg .pred %p, %odd; .reg .${register} %v<4>;
ld.param.u64 %src, [src]; ld.param.u64 %out, [out]; ld.param.u32 %low, [low]; ld.param.u32 %high, [high];
mov.u32 %tid, %tid.x; setp.lt.u32 %p, %tid, 16; selp.b32 %low, %low, %high, %p;
cvt.u64.u32 %wide, %low; add.u64 %src, %src, %wide;
mul.wide.u32 %wide, %tid, 32; add.u64 %out, %out, %wide;
${names.map((name) => `mov.${register} ${name}, ${type === 'f32' ? '0f3f800000' : '7'};`).join(' ')}
and.b32 %high, %tid, 3; setp.ne.u32 %odd, %high, 3;
@%odd ld.global.v${count}.${type} {${names.join(', ')}}, [%src];
${names.map((name, k) => `st.global.${register} [%out+${(k * held) / 8}], ${name};`).join(' ')}
ret;
}
`;
      const [low, high] = [96, 1568 + 32];
      const { launches, buffers } = runPtx({
        ptx: { text },
        device: 100,
        buffers: [source, LANES * 32],
        launches: [{ kernel: 'k', block: [LANES], args: ['b1', 'b2', `u32:${low}`, `u32:${high}`] }],
      });
      assert.match(launches[0] ?? '', /^ok/);
      const bits = (from: number): bigint => {
        const all = Array.from({ length: size }, (_, i) => BigInt(source[from + i] ?? 0) << BigInt(8 * i));
        const value = all.reduce((a, b) => a | b, 0n);
        return BigInt.asUintN(held, type.startsWith('s') ? BigInt.asIntN(size * 8, value) : value);
      };
      const wanted = Buffer.alloc(LANES * 32);
      for (let lane = 0; lane < LANES; lane++) {
        for (let k = 0; k < count; k++) {
          const loaded = bits((lane < 16 ? low : high) + k * size);
          const value = lane % 4 !== 3 ? loaded : type === 'f32' ? 0x3f800000n : 7n;
          for (let i = 0; i < held / 8; i++)
            wanted[lane * 32 + (k * held) / 8 + i] = Number((value >> BigInt(8 * i)) & 0xffn);
        }
      }
      assert.deepEqual(buffers[1], wanted);
    });
  }
});
