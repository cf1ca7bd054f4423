// The cost of one PTX instruction on the simulated GPU, beside the cheapest: an addition of floats.

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { launched } from '../launched.js';
import { type Comparison, type Entry, inTurn } from '../measure.js';

export const instructions: Entry = {
  name: 'instructions',
  what: 'single PTX instructions of one warp, each beside add.f32',
  runs: 7,
  measure,
};

const ROUNDS = 2000;
const IN_LOOP = 64;
/** The input of texture instructions: the second buffer, filtered. */
const PICTURE = 'texture 2 32 32 1 f32 1 linear-filter';

interface Instruction {
  readonly name: string;
  /** Of both registers, a and b. */
  readonly type: string;
  /** Their first statements. */
  readonly values: readonly [string, string];
  readonly text: string;
}

const FLOATS = ['0f3F800000', '0f3F800001'] as const;
const HALVES = ['0x3c003c00', '0x3c013c01'] as const;
const f32 = (name: string, text: string): Instruction => ({ name, type: 'f32', values: FLOATS, text });
const pair = (name: string): Instruction => ({
  name,
  type: 'b32',
  values: HALVES,
  text: `${name} a, a${/^(ex2|tanh)/.test(name) ? '' : ', b'}${name.startsWith('fma') ? ', b' : ''};`,
});

const ADD = f32('add.f32', 'add.f32 a, a, b;');

const MEASURED: readonly Instruction[] = [
  f32('fma.rn.f32', 'fma.rn.f32 a, a, b, b;'),
  pair('add.f16x2'),
  pair('fma.rn.f16x2'),
  // its results are subnormal; then 2050 + 1 = 2051, in the middle between two halves
  {
    name: 'fma.rn.f16x2 with subnormal results',
    type: 'b32',
    values: ['0x00010001', '0x00030003'],
    text: 'fma.rn.f16x2 a, a, b, b;',
  },
  {
    name: 'fma.rn.f16x2 between two halves',
    type: 'b32',
    values: ['0x68016801', '0x3c003c00'],
    text: 'fma.rn.f16x2 %h0, a, b, b;',
  },
  {
    name: 'mul.bf16x2 with subnormal results',
    type: 'b32',
    values: ['0x00010001', '0x3f803f80'],
    text: 'mul.bf16x2 a, a, b;',
  },
  pair('max.f16x2'),
  pair('fma.rn.relu.f16x2'),
  pair('add.bf16x2'),
  pair('fma.rn.bf16x2'),
  { name: 'setp.lt.f16x2', type: 'b32', values: HALVES, text: 'setp.lt.f16x2 %p|%q, a, b;' },
  { name: 'set.lt.f16x2.f16x2', type: 'b32', values: HALVES, text: 'set.lt.f16x2.f16x2 a, a, b;' },
  // its results become NaN; then those of a number
  f32('lg2.approx.f32', 'lg2.approx.f32 a, a;'),
  f32('lg2.approx.f32 of a number', 'lg2.approx.f32 %c0, b;'),
  {
    name: 'lg2.approx.f32 of zero',
    type: 'f32',
    values: ['0f00000000', FLOATS[1]],
    text: 'lg2.approx.f32 %c0, a;',
  },
  {
    name: 'lg2.approx.f32 of a subnormal number',
    type: 'f32',
    values: ['0f00012345', FLOATS[1]],
    text: 'lg2.approx.f32 %c0, a;',
  },
  f32('sin.approx.f32', 'sin.approx.f32 a, a;'),
  {
    name: 'sin.approx.f32 of NaN',
    type: 'f32',
    values: ['0f7FFFFFFF', FLOATS[1]],
    text: 'sin.approx.f32 a, a;',
  },
  f32('ex2.approx.f32', 'ex2.approx.f32 a, a;'),
  {
    name: 'ex2.approx.f32 with subnormal results',
    type: 'f32',
    values: ['0fC3020000', FLOATS[1]],
    text: 'ex2.approx.f32 %c0, a;',
  },
  f32('tanh.approx.f32', 'tanh.approx.f32 a, a;'),
  pair('ex2.approx.f16x2'),
  pair('ex2.approx.ftz.bf16x2'),
  pair('tanh.approx.bf16x2'),
  pair('tanh.approx.f16x2'),
  f32('sqrt.approx.f32', 'sqrt.approx.f32 a, a;'),
  f32('cvt.rni.s32.f32', 'cvt.rni.s32.f32 %i, a;'),
  f32('cvt.rn.f16x2.f32', 'cvt.rn.f16x2.f32 %i, a, b;'),
  f32('cvt.f32.f16', 'cvt.f32.f16 a, %k;'),
  f32('cvt.rn.f16.f32', 'cvt.rn.f16.f32 %k, a;'),
  f32('add.f32 of some lanes', '@%some add.f32 a, a, b;'),
  f32('ld.shared.f32 of some lanes', '@%some ld.shared.f32 a, [%s];'),
  f32('red.shared.add.u32', 'red.shared.add.u32 [%s], %i;'),
  f32('red.shared.add.u32 at one place', 'red.shared.add.u32 [kept], %i;'),
  {
    name: 'mma.m16n8k16.f32.f16',
    type: 'b32',
    values: HALVES,
    text: `mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
    {%c0, %c1, %c2, %c3}, {a, a, a, a}, {b, b}, {%c0, %c1, %c2, %c3};`,
  },
  {
    name: 'wmma.m16n16k16.f32.f16',
    type: 'b32',
    values: HALVES,
    text: `wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32
    {%c0, %c1, %c2, %c3, %c4, %c5, %c6, %c7}, {%h0, %h1, %h2, %h3, %h4, %h5, %h6, %h7},
    {%h0, %h1, %h2, %h3, %h4, %h5, %h6, %h7}, {%c0, %c1, %c2, %c3, %c4, %c5, %c6, %c7};`,
  },
  {
    name: 'wmma.load.m16n16k16.f16',
    type: 'b32',
    values: HALVES,
    text: `wmma.load.a.sync.aligned.row.m16n16k16.global.f16
    {%h0, %h1, %h2, %h3, %h4, %h5, %h6, %h7}, [%out], 32;`,
  },
  f32('tex.2d.f32.f32', 'tex.2d.v4.f32.f32 {%c0, %c1, %c2, %c3}, [%t, {%x, %x}];'),
  f32('tex.2d.f32.f32 of some lanes', '@%some tex.2d.v4.f32.f32 {%c0, %c1, %c2, %c3}, [%t, {%x, %x}];'),
  { name: 'div.s32', type: 's32', values: ['123456789', '1'], text: 'div.s32 a, a, b;' },
];

function kernel({ type, values, text }: Instruction): string {
  const move = type === 'f32' ? 'mov.f32' : 'mov.b32';
  return `.version 7.8
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 rounds, .param .u64 picture)
{
  .shared .b32 kept[32];
  .reg .b64 %out, %t; .reg .f32 %x; .reg .${type} a, b; .reg .b32 %n, %s, %i; .reg .f32 %c<8>; .reg .b32 %h<8>; .reg .b16 %k; .reg .pred %more, %some, %p, %q;
  ld.param.u64 %out, [out];
  ld.param.u32 %n, [rounds];
  ld.param.u64 %t, [picture];
  mov.u32 %i, %tid.x;
  cvt.rn.f32.u32 %x, %i;
  setp.lt.u32 %some, %i, 13;
  mov.u32 %s, kept;
  mad.lo.u32 %s, %i, 4, %s;
${Array.from({ length: 8 }, (_, i) => `  mov.b32 %c${i}, 0f00000000;`).join('\n')}
${Array.from({ length: 8 }, (_, i) => `  mov.b32 %h${i}, 0x3c003c00;`).join('\n')}
  mov.b16 %k, 0x3c00;
  ${move} a, ${values[0]};
  ${move} b, ${values[1]};
again:
${`  ${text}\n`.repeat(IN_LOOP)}  sub.u32 %n, %n, 1;
  setp.ne.u32 %more, %n, 0;
  @%more bra again;
  st.global.b32 [%out], a;
  ret;
}
`;
}

async function measure(runs: number): Promise<readonly Comparison[]> {
  const scratch = mkdtempSync(join(tmpdir(), 'instructions-'));
  try {
    const once = (instruction: Instruction): (() => number) => {
      const file = join(scratch, `${instruction.name.replaceAll(' ', '-')}.ptx`);
      writeFileSync(file, kernel(instruction));
      return () =>
        launched(file, [4096, 4096], `k 1 1 1 32 1 1 0 : b1 u32:${ROUNDS} t1`, 90, [PICTURE]) /
        (ROUNDS * IN_LOOP) /
        1e3;
    };
    const comparisons: Comparison[] = [];
    for (const instruction of MEASURED) {
      comparisons.push(
        await inTurn(`${instruction.name} of a warp`, runs, [
          { name: instruction.name, unit: 'us', once: once(instruction) },
          { name: ADD.name, unit: 'us', once: once(ADD) },
        ]),
      );
    }
    return comparisons;
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}
