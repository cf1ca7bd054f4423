/**
 * Compiled accesses whose addresses follow from the thread's index: random programs in blocks of several shapes,
 * interpreted, compiled, and with both compared. `VGPU_TEST_LONG=1`: 400 programs; `VGPU_PTX_SEED=N`: one.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { compiles } from './compiled.js';
import { type Job, type Outcome, random, runPtx } from './machine.js';

const MODULE = '.version 8.4\n.target sm_90\n.address_size 64\n';
const BLOCKS = 3;
const MOST = 2000; // of an index
const STRIDE = 8192; // elements of a block
const CENTRE = 65_536; // bytes before index 0
const BYTES = CENTRE + BLOCKS * STRIDE * 16;
/** One warp each: the order in which warps store to one place is not defined. */
const SHAPES: readonly (readonly number[])[] = [
  [32],
  [16, 2],
  [16],
  [16, 1, 2],
  [8, 4],
  [4, 2, 4],
  [20],
  [5, 3],
];

type Choice = <T>(of: readonly T[]) => T;
type Range = readonly [low: number, high: number];

const STARTS: readonly (readonly [string, Range])[] = [
  ['%tid.x', [0, 31]],
  ['%tid.x', [0, 31]],
  ['%tid.y', [0, 31]],
  ['%tid.z', [0, 31]],
  ['%laneid', [0, 31]],
  ['%ctaid.x', [0, BLOCKS - 1]],
  ['%ntid.x', [1, 32]],
];

/** Instructions that change an index in %r1, and its new range; undefined: not for this range. */
type Step = (range: Range) => readonly [string, Range] | undefined;

function steps(pick: Choice): Step {
  const plus = (low: number, high: number, text: string): Step => {
    return ([from, to]) => [text, [from + low, to + high]];
  };
  const times = (factor: number, text: string): Step => {
    return ([from, to]) => [
      text,
      [Math.min(from * factor, to * factor), Math.max(from * factor, to * factor)],
    ];
  };
  const bits = (most: number, text: string): Step => {
    return ([from, to]) => (from < 0 ? undefined : [text, [0, Math.max(to, most) | most]]);
  };
  const factor = pick([0, 1, 2, 3, 4, -1, -2]);
  const left = pick([0, 1, 2, 5]);
  const right = pick([1, 4, 5, 31]);
  const keep = pick([7, 15, 16, 31, 48, 240]);
  const set = pick([16, 48, 3]);
  return pick<Step>([
    plus(7, 7, 'add.s32 %r1, %r1, 7;'),
    plus(-40, -40, 'sub.s32 %r1, %r1, 40;'),
    plus(0, 31, 'mov.u32 %r2, %laneid; add.s32 %r1, %r1, %r2;'),
    plus(0, 24 * 31, 'mov.u32 %r2, %tid.y; mad.lo.s32 %r1, %r2, 24, %r1;'),
    plus(0, 5 * BLOCKS, 'mov.u32 %r2, %ctaid.x; mad.lo.s32 %r1, %r2, %n, %r1;'),
    ([from, to]) => ['mov.u32 %r2, %tid.x; sub.s32 %r1, %r2, %r1;', [-to, 31 - from]],
    times(factor, `mul.lo.s32 %r1, %r1, ${factor};`),
    times(2 ** left, `shl.b32 %r1, %r1, ${left};`),
    ([from, to]) => [`shr.s32 %r1, %r1, ${right};`, [from >> right, to >> right]],
    bits(0, `shr.u32 %r1, %r1, ${right};`),
    ([from]) => (from < 0 ? undefined : [`and.b32 %r1, %r1, ${keep};`, [0, keep]]),
    bits(set, `or.b32 %r1, %r1, ${set};`),
    bits(set, `xor.b32 %r1, %r1, ${set};`),
    ([from, to]) => ['cvt.u64.u32 %d1, %r1; cvt.u32.u64 %r1, %d1;', [from, to]],
  ]);
}

/** Leaves an index in %r1, its block's place included. */
function index(pick: Choice): { readonly text: string; readonly negative: boolean } {
  const [start, first] = pick(STARTS);
  let range: Range = first;
  let text = `mov.u32 %r1, ${start};`;
  for (let k = pick([0, 1, 2, 3, 4, 5]); k > 0; k--) {
    const next = steps(pick)(range);
    if (next === undefined || next[1][0] < -MOST || next[1][1] > MOST) continue;
    text += ` ${next[0]}`;
    range = next[1];
  }
  return {
    text: `${text} mov.u32 %r2, %ctaid.x; mad.lo.s32 %r1, %r2, ${STRIDE}, %r1;`,
    negative: range[0] < 0,
  };
}

const ELEMENTS = [
  ['u8', 1, 1],
  ['u16', 2, 1],
  ['s32', 4, 1],
  ['u32', 4, 1],
  ['u64', 8, 1],
  ['v2.u32', 8, 2],
  ['v4.u32', 16, 4],
] as const;

/** A load or store of an element of an index. */
function access(pick: Choice, label: string): string {
  const { text, negative } = index(pick);
  const [type, bytes, count] = pick(ELEMENTS);
  const sign = negative ? 's32' : pick(['s32', 'u32']);
  const shared = pick([false, false, true]);
  const guard = pick(['', '', '@%p1 ', '@!%p1 ', '@%p2 ']);
  const jump = guard !== '' && pick([false, false, true]);
  const store = pick([true, false]);
  const base = store ? '%out' : pick(['%in', '%out']);
  const wide = pick([
    `mul.wide.${sign} %d1, %r1, ${bytes}; add.u64 %d2, ${base}, %d1;`,
    `mad.wide.${sign} %d2, %r1, ${bytes}, ${base};`,
    `cvt.${sign === 's32' ? 's64' : 'u64'}.${sign} %d1, %r1; shl.b64 %d1, %d1, ${Math.log2(bytes)}; add.s64 %d2, %d1, ${base};`,
  ]);
  const narrow = `mov.u32 %r2, %ctaid.x; mul.lo.u32 %r2, %r2, ${STRIDE}; sub.s32 %r1, %r1, %r2; mad.lo.s32 %r4, %r1, ${bytes}, %s;`;
  const registers =
    type === 'u64'
      ? '%d4'
      : count === 1
        ? '%r5'
        : `{${['%r5', '%r6', '%r7', '%r8'].slice(0, count).join(', ')}}`;
  const place = `${shared ? `shared.${type}` : `global.${type}`}`;
  const at = `[${shared ? '%r4' : '%d2'}+${bytes * pick([0, 1, 3])}]`;
  const given =
    'mov.u32 %r5, %r0; add.u32 %r6, %r0, 1; xor.b32 %r7, %r0, 77; mul.lo.u32 %r8, %r0, 3; cvt.u64.u32 %d4, %r0; mul.lo.u64 %d4, %d4, 0x100000003;';
  const taken = `${type === 'u64' ? 'cvt.u32.u64 %r5, %d4;' : ''} mad.lo.u32 %r0, %r0, 5, %r5;${count > 1 ? ' xor.b32 %r0, %r0, %r6;' : ''}${count > 2 ? ' add.u32 %r0, %r0, %r8;' : ''}`;
  const own = jump ? '' : guard;
  const one = store
    ? `${own}st.${place} ${at}, ${registers};`
    : `${own}ld.${place} ${registers}, ${at}; ${taken}`;
  const before = `${text} ${shared ? narrow : wide} ${given}`;
  return jump
    ? `${before} ${guard.replace('@', '@!').replace('!!', '')}bra ${label}; ${one}\n${label}:`
    : `${before} ${one}`;
}

function program(seed: number): string {
  const next = random(seed);
  const pick: Choice = (of) => of[(next() >>> 8) % of.length] as (typeof of)[number];
  const accesses = Array.from(
    { length: 6 },
    (_, k) => `${access(pick, `L${k}`)}${pick(['', '\nbar.sync 0;'])}`,
  );
  // Lanes leave the loop at different times, unless there is a barrier in it.
  const turns = accesses.join('').includes('bar.sync') ? '3' : '%r11';
  const loop = pick([
    ['', ''],
    ['loop:', `add.u32 %r9, %r9, 1; and.b32 %r11, %t, 3; setp.lt.u32 %p3, %r9, ${turns}; @%p3 bra loop;`],
  ]);
  return `${MODULE}.entry k(.param .u64 out, .param .u64 in, .param .u64 last, .param .u32 number)
{
.reg .b64 %out, %in, %last, %d<8>; .reg .b32 %r<12>, %n, %s, %t; .reg .pred %p<4>; .shared .align 16 .b8 s[131072];
ld.param.u64 %out, [out]; ld.param.u64 %in, [in]; ld.param.u64 %last, [last]; ld.param.u32 %n, [number];
mov.u32 %s, s; add.u32 %s, %s, 65536; mov.u32 %r9, 0;
mov.u32 %t, %laneid; mov.u32 %r0, %ctaid.x; mad.lo.u32 %r0, %r0, 32, %t; shl.b32 %r10, %r0, 2; cvt.u64.u32 %d3, %r10;
mul.lo.u32 %r3, %t, ${pick([5, 7, 11])}; and.b32 %r3, %r3, 31; setp.lt.u32 %p1, %r3, ${pick([0, 1, 9, 20, 32])}; setp.eq.u32 %p2, %t, ${pick([0, 15, 16, 19])};
${loop[0]}
${accesses.join('\n')}
${loop[1]}
add.u64 %d3, %last, %d3; st.global.u32 [%d3], %r0;
ret;
}
`;
}

const input = (): Buffer => {
  const next = random(99);
  const buffer = Buffer.alloc(BYTES);
  for (let at = 0; at < BYTES; at += 4) buffer.writeUInt32LE(next(), at);
  return buffer;
};

function run(
  text: string,
  compile: NonNullable<Job['compile']>,
  shapes: readonly (readonly number[])[],
): Outcome {
  return runPtx({
    ptx: { text },
    compile,
    buffers: [BYTES, input(), BLOCKS * 128],
    before: ['helpers 0'],
    launches: shapes.map((block) => ({
      kernel: 'k',
      grid: [BLOCKS],
      block,
      args: [`b1+${CENTRE}`, `b2+${CENTRE}`, 'b3', 'u32:5'],
    })),
  });
}

describe('compiled accesses at lines', { skip: compiles }, () => {
  const one = process.env['VGPU_PTX_SEED'];
  const count = process.env['VGPU_TEST_LONG'] ? 400 : 70;
  const seeds = one === undefined ? Array.from({ length: count }, (_, i) => i + 1) : [Number(one)];
  it(`read and write what the interpreter does, ${seeds.length} programs`, () => {
    for (const seed of seeds) {
      const text = program(seed);
      const shapes = SHAPES.map((_, i) => SHAPES[(i + seed) % SHAPES.length] ?? []);
      const [plain, compiled, checked] = (['never', 'always', 'check'] as const).map((way) =>
        run(text, way, shapes),
      );
      const said = `VGPU_PTX_SEED=${seed}\n${text}`;
      assert.deepEqual(
        plain?.launches.filter((line) => !line.startsWith('ok')),
        [],
        said,
      );
      for (const outcome of [compiled, checked]) {
        assert.deepEqual(
          outcome?.launches.map((line) => line.slice(0, 120)).filter((line) => !line.startsWith('ok')),
          [],
          said,
        );
        assert.equal(outcome?.compiled.functions, 2, `one for rows of 16 threads, one for others: ${said}`);
        for (const [k, buffer] of (plain?.buffers ?? []).entries())
          assert.ok(outcome.buffers[k]?.equals(buffer), `buffer ${k}: ${said}`);
      }
    }
  });
});
