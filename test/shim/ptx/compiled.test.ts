/**
 * Compiled kernels: `check` runs each region by the interpreter's functions and compiled, and compares registers, counts
 * and stored bytes. Other tests run the same way with PTX_COMPILE=always or check in the environment.
 */
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { describe, it } from 'node:test';
import { builtFile, scratchDirectory, until, VARIANT } from '../shim_host.js';
import { compiles } from './compiled.js';
import { type Job, type Outcome, runPtx, u32 } from './machine.js';

const MODULE = '.version 8.4\n.target sm_90\n.address_size 64\n';
const THREADS = 48;
const BLOCKS = 2;

/** `body` leaves %r0 of each thread and may use its number in the grid, %t, and 16 KiB of shared memory, s. */
function kernel(body: string, functions = ''): string {
  return `${MODULE}${functions}
.entry k(.param .u64 out, .param .u32 number)
{
.reg .b64 %o, %w, %d<20>; .reg .b32 %r<40>, %t, %n, %b, %s; .reg .pred %p<8>; .reg .f32 %f<20>; .reg .f64 %g<8>;
.reg .b16 %h<8>; .shared .align 16 .b8 s[16384];
mov.u32 %t, %tid.x; mov.u32 %b, %ctaid.x; mov.u32 %s, %ntid.x; mad.lo.u32 %t, %b, %s, %t;
ld.param.u64 %o, [out]; ld.param.u32 %n, [number];
mul.wide.u32 %w, %t, 4; add.u64 %o, %o, %w;
${body}
st.global.u32 [%o], %r0;
ret;
}
`;
}

function run(text: string, compile: Job['compile'], number = 5): Outcome {
  return runPtx({
    ptx: { text },
    ...(compile === undefined ? {} : { compile }),
    buffers: [BLOCKS * THREADS * 4],
    launches: [{ kernel: 'k', grid: [BLOCKS], block: [THREADS], args: ['b1', `u32:${number}`] }],
  });
}

/** The same with the interpreter, with compiled code, and with both compared. */
function same(body: string, functions = '', mostCompared = Infinity): number[] {
  const text = kernel(body, functions);
  const [plain, compiled, checked] = (['never', 'always', 'check'] as const).map((way) => run(text, way));
  assert.match(plain?.launches[0] ?? '', /^ok/);
  for (const outcome of [compiled, checked]) {
    assert.match(outcome?.launches[0] ?? '', /^ok/);
    assert.notEqual(outcome?.compiled.functions, 0, 'nothing was compiled');
    assert.deepEqual(outcome?.buffers, plain?.buffers);
  }
  const compared = checked?.compiled.compared ?? 0;
  assert.ok(compared <= mostCompared, `the code was entered ${compared} times`);
  return [...u32(plain?.buffers[0] ?? Buffer.alloc(0))];
}

describe('compiled kernels', { skip: compiles }, () => {
  it('repeat a loop whose branch is uniform, with memory', () => {
    const left = same(`
mov.u32 %r1, 0; mov.u32 %r0, 0; and.b32 %r2, %t, 31; shl.b32 %r2, %r2, 2; mov.u32 %r3, s; add.u32 %r2, %r2, %r3;
loop: st.shared.u32 [%r2+256], %r1; ld.shared.u32 %r4, [%r2+256]; ld.shared.u32 %r5, [s]; add.u32 %r0, %r0, %r4;
mad.lo.u32 %r0, %r5, 3, %r0;
st.global.u32 [%o], %r0; ld.global.u32 %r0, [%o]; add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 100; @%p1 bra loop;`);
    assert.equal(left[40], 4950);
  });

  // LLVM's masked VPTERNLOG had the table of other operands: https://github.com/llvm/llvm-project/issues/157929
  for (const [what, merged] of [
    ['a guard', (not, lop3) => `@${not}%p1 lop3.b32 %r0, ${lop3};`],
    ['selp', (not, lop3) => `lop3.b32 %r1, ${lop3}; selp.b32 %r0, ${not ? '%r0, %r1' : '%r1, %r0'}, %p1;`],
  ] as [string, (not: string, lop3: string) => string][]) {
    it(`keep a register where ${what} says so, if the new value is made of it and of memory`, () => {
      const orders = ['0m4', '04m', 'm04', '40m', 'm40', '4m0'];
      const steps = orders.flatMap((order, i) =>
        [0xac, 0xca, 0xb8, 0xe2].map((table, k) => {
          const operands = [...order].map(
            (operand) => ({ 0: '%r0', 4: '14' })[operand] ?? `%r${10 + i * 4 + k}`,
          );
          return `add.u32 %r0, %r0, %t; ${merged(k % 2 === 0 ? '' : '!', `${operands.join(', ')}, ${table}`)}`;
        }),
      );
      // Behind the barrier, the registers are read from memory.
      const left = same(`
mul.lo.u32 %r0, %t, 2654435761; and.b32 %r1, %t, 4; setp.eq.u32 %p1, %r1, 0;
${steps.map((_, i) => `mul.lo.u32 %r${10 + i}, %t, ${40503 + 977 * i};`).join('\n')}
bar.sync 0;
${steps.join('\n')}`);
      assert.ok(new Set(left).size > 48);
    });
  }

  it('leave where lanes part, and where they join', () => {
    const left = same(`
mov.u32 %r0, 0; mov.u32 %r1, 0;
loop: add.u32 %r1, %r1, 1; and.b32 %r2, %r1, %t; and.b32 %r2, %r2, 1; setp.eq.u32 %p1, %r2, 1;
@%p1 bra odd;
add.u32 %r0, %r0, 100; xor.b32 %r3, %r0, 5; add.u32 %r3, %r3, 7; sub.u32 %r3, %r3, 7; xor.b32 %r0, %r3, 5; bra.uni on;
odd: add.u32 %r0, %r0, 1; xor.b32 %r3, %r0, 6; add.u32 %r3, %r3, 9; sub.u32 %r3, %r3, 9; xor.b32 %r0, %r3, 6;
on: add.u32 %r4, %t, 3; setp.lt.u32 %p2, %r1, %r4; @%p2 bra loop;`);
    assert.equal(left[3], 3 + 3 * 100);
  });

  it('write only the lanes that a guard names', () => {
    same(`
mov.u32 %r0, 7; mov.u32 %r1, 9; setp.gt.u32 %p1, %t, 10; setp.lt.u32 %p2, %t, 30; and.pred %p3, %p1, %p2;
@%p3 add.u32 %r0, %r0, %t; @!%p3 mul.lo.u32 %r0, %t, 3; @%p1 setp.eq.u32 %p2, %t, 12; selp.b32 %r2, %r0, %r1, %p2;
@%p3 st.global.u32 [%o], %r2; @!%p3 st.global.u32 [%o], %r1; @%p3 ld.global.u32 %r1, [%o]; add.u32 %r0, %r0, %r1;
setp.lt.u32 %p4|%p5, %r0, 50; @%p5 add.u32 %r0, %r0, 1000;`);
  });

  it('compute floats as the interpreter, with subnormals, NaN and each rounding', () => {
    for (const [how, type] of [
      ['rn', 'f32'],
      ['rn.ftz', 'f32'],
      ['rz', 'f32'],
      ['rp.ftz', 'f32'],
      ['rn', 'f64'],
      ['rm', 'f64'],
    ] as const) {
      const [r, move, bits] = type === 'f32' ? ['%f', 'b32', '%r3'] : ['%g', 'b64', '%d3'];
      const wide =
        type === 'f64' ? 'mul.wide.u32 %d3, %r2, 0x10001001; shl.b64 %d3, %d3, 20;' : 'mov.b32 %r3, %r2;';
      const back = type === 'f64' ? 'mov.b64 {%r6, %r7}, %d4; xor.b32 %r6, %r6, %r7;' : '';
      same(`
mov.u32 %r0, 0; mov.u32 %r1, 0; mov.u32 %r2, %t;
loop: mad.lo.u32 %r2, %r2, 1664525, 1013904223; ${wide} mov.${move} ${r}1, ${bits};
and.b32 %r4, %r2, 0x007fffff; ${type === 'f32' ? 'mov.b32 %f2, %r4;' : 'mov.f64 %g2, 0d3ff8000000000000;'}
add.${how}.${type} ${r}3, ${r}1, ${r}2; mul.${how}.${type} ${r}4, ${r}1, ${r}3; fma.${how}.${type} ${r}5, ${r}1, ${r}4, ${r}2;
div.${how}.${type} ${r}6, ${r}5, ${r}1; sqrt.${how}.${type} ${r}7, ${r}6; neg.${type} ${r}7, ${r}7;
setp.lt.${type} %p1, ${r}3, ${r}5; setp.neu.${type} %p2, ${r}7, ${r}3; selp.${type} ${r}1, ${r}6, ${r}5, %p1;
@%p2 sub.${how}.${type} ${r}1, ${r}1, ${r}7; ${type === 'f32' ? 'mov.b32 %r6, %f1;' : `mov.b64 %d4, %g1; ${back}`}
shf.l.wrap.b32 %r0, %r0, %r0, 5; xor.b32 %r0, %r0, %r6; add.u32 %r1, %r1, 1; setp.lt.u32 %p3, %r1, 200; @%p3 bra loop;`);
    }
  });

  it('convert unsigned zero with every rounding', () => {
    same(`
mov.u32 %r0, 0; mov.u32 %r2, %tid.x; cvt.rm.f64.u32 %g1, %r2; mov.b64 {%r3, %r4}, %g1; xor.b32 %r0, %r3, %r4;
cvt.rm.f32.u32 %f1, %r2; mov.b32 %r5, %f1; xor.b32 %r0, %r0, %r5; add.u32 %r0, %r0, 1; shl.b32 %r6, %r0, 1; xor.b32 %r0, %r0, %r6;`);
  });

  // LLVM folds constants with rounding to nearest and without flushing.
  // A register that is written once is computed before all others, which hides its value from LLVM: write each twice.
  const written = 'mov.b32 %f1, %t; mov.b32 %f2, %t; mov.b32 %r1, %t; mov.b32 %r2, %t;';
  for (const [from, known] of [
    ['halves', 'mov.b16 %h1, 34342; cvt.f32.f16 %f1, %h1; mov.b16 %h2, 17; cvt.f32.f16 %f2, %h2;'],
    ['bits', 'mov.b32 %r1, 0x00012345; mov.b32 %f1, %r1; mov.b32 %r2, 0x3eaaaaab; mov.b32 %f2, %r2;'],
    ['integers', 'sub.u32 %r1, %t, %t; add.u32 %r2, %r1, 7; CVT %f1, %r1; CVT %f2, %r2;'],
    ['signs', 'xor.b32 %r1, %t, %t; or.b32 %r2, %r1, 0x80000000; mov.b32 %f1, %r1; mov.b32 %f2, %r2;'],
    ['rounded integers', 'and.b32 %r1, %t, 0; or.b32 %r1, %r1, 33554435; CVT %f1, %r1; neg.f32 %f2, %f1;'],
  ] as const) {
    it(`compute with numbers that LLVM knows from ${from} as the interpreter does`, () => {
      for (const how of ['rm', 'rp', 'rz', 'rn.ftz']) {
        const convert = `cvt.${how.slice(0, 2)}.f32.s32`;
        const results = [
          'sub.HOW.f32 %f3, %f1, %f1;',
          'add.HOW.f32 %f3, %f1, %f2;',
          'mul.HOW.f32 %f3, %f1, %f2;',
        ]
          .concat('fma.HOW.f32 %f3, %f1, %f2, %f1;', 'div.HOW.f32 %f3, %f2, %f1;', 'sqrt.HOW.f32 %f3, %f2;')
          .map(
            (text) => `${text} mov.b32 %r5, %f3; shr.u32 %r6, %r5, 31; add.u32 %r0, %r0, %r6;
mad.lo.u32 %r0, %r0, 31, %r5;`,
          );
        const compared = 'setp.eq.f32 %p1, %f1, 0f00000000; selp.u32 %r5, 3, 5, %p1; add.u32 %r0, %r0, %r5;';
        const text = ['mov.u32 %r0, %t;', written, known, ...results, compared].join('\n');
        same(text.replaceAll('HOW', how).replaceAll('CVT', convert));
      }
    });
  }

  it('end a loop that waits for another warp, as the interpreter does', () => {
    const left = same(`
mov.u32 %r1, %tid.x; mov.u32 %r0, 5; mov.u32 %r9, 0; setp.lt.u32 %p1, %r1, 32; @%p1 bra waits;
mov.u32 %r2, 77; add.u32 %r3, %r2, 1; sub.u32 %r3, %r3, 1; xor.b32 %r4, %r3, 1; xor.b32 %r4, %r4, 1; st.shared.u32 [s+64], %r4;
bra.uni done;
waits: ld.shared.u32 %r5, [s+64]; add.u32 %r9, %r9, 1; xor.b32 %r6, %r5, %r9; xor.b32 %r6, %r6, %r9; setp.ne.u32 %p2, %r6, 77;
@%p2 bra waits;
mov.u32 %r0, %r6;
done:`);
    assert.equal(left[0], 77);
    assert.equal(left[40], 5);
  });

  it('open a barrier for which other warps end without coming, before or after another barrier', () => {
    const left = same(`
mov.u32 %r1, %tid.x; mov.u32 %r0, 3; mad.lo.u32 %r0, %r1, 5, %r0; setp.ge.u32 %p1, %r1, 32; @%p1 bra over;
bar.sync 0; add.u32 %r0, %r0, 100; xor.b32 %r2, %r0, 5; add.u32 %r2, %r2, 7; sub.u32 %r2, %r2, 7; xor.b32 %r0, %r2, 5;
over: add.u32 %r0, %r0, 1;`);
    assert.deepEqual([left[2], left[40]], [3 + 2 * 5 + 101, 3 + 40 * 5 + 1]);
    const late = same(`
mov.u32 %r1, %tid.x; mov.u32 %r0, 3; mad.lo.u32 %r0, %r1, 5, %r0; setp.lt.u32 %p1, %r1, 32; st.shared.u32 [s], %r0;
mov.u32 %r3, 9; bar.sync 0;
@%p1 bra over; add.u32 %r0, %r0, 100; xor.b32 %r2, %r0, 5; add.u32 %r2, %r2, 7; sub.u32 %r2, %r2, 7; xor.b32 %r0, %r2, 5;
bar.sync 0; @!%p1 add.u32 %r0, %r0, 1000;
over: add.u32 %r0, %r0, %r3; @!%p1 bra back; add.u32 %r0, %r0, 10000; back: add.u32 %r0, %r0, 1;`);
    assert.deepEqual([late[2], late[40]], [3 + 2 * 5 + 10 + 10000, 3 + 40 * 5 + 100 + 1000 + 10]);
  });

  it('read and write single elements and vectors anywhere, neighbours too', () => {
    const left = same(`
.reg .b32 %v<8>; .reg .b64 %x<4>;
mov.u32 %r1, %tid.x; mov.u32 %r2, s; mov.u32 %r3, 0; mov.u32 %r0, 1;
fill: mad.lo.u32 %r4, %r3, 48, %r1; mul.lo.u32 %r5, %r4, 0x9e3779b9; shl.b32 %r6, %r4, 2; and.b32 %r6, %r6, 16380;
add.u32 %r6, %r6, %r2; st.shared.u32 [%r6], %r5; add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, 86; @%p1 bra fill;
bar.sync 0;
mul.lo.u32 %r7, %t, 37; and.b32 %r7, %r7, 127; shl.b32 %r8, %r7, 4; add.u32 %r8, %r8, %r2; mov.u32 %r3, 0;
loop: ld.shared.v4.u32 {%v0, %v1, %v2, %v3}, [%r8+16]; ld.shared.v2.u64 {%x0, %x1}, [%r8+32];
ld.shared.u8 %r10, [%r8+3]; ld.shared.s8 %r11, [%r8+5]; ld.shared.u16 %r12, [%r8+6]; ld.shared.s16 %r13, [%r8+10];
ld.shared.v2.u16 {%h0, %h1}, [%r8+12]; ld.shared.u32 %r14, [%r8]; ld.shared.u32 %r15, [s+64]; ld.shared.u64 %x2, [%r8+24];
cvt.u32.u16 %r16, %h0; cvt.u32.u16 %r17, %h1; add.u64 %x0, %x0, %x1; xor.b64 %x0, %x0, %x2; cvt.u32.u64 %r18, %x0;
add.u32 %r0, %r0, %v0; mad.lo.u32 %r0, %r0, 3, %v1; xor.b32 %r0, %r0, %v2; add.u32 %r0, %r0, %v3; mad.lo.u32 %r0, %r0, 5, %r10;
mad.lo.u32 %r0, %r0, 7, %r11; mad.lo.u32 %r0, %r0, 9, %r12; mad.lo.u32 %r0, %r0, 11, %r13; mad.lo.u32 %r0, %r0, 13, %r14;
add.u32 %r0, %r0, %r15; xor.b32 %r0, %r0, %r16; mad.lo.u32 %r0, %r0, 3, %r17; add.u32 %r0, %r0, %r18;
shl.b32 %r20, %t, 4; add.u32 %r20, %r20, %r2; and.b32 %r21, %r3, 1; setp.eq.u32 %p2, %r21, 1;
st.shared.v4.u32 [%r20+8192], {%r0, %r14, %r15, 7}; st.shared.v2.u8 [%r20+8198], {%h0, %h1};
@%p2 st.shared.u16 [%r20+8196], %h1; ld.shared.v4.u32 {%v4, %v5, %v6, %v7}, [%r20+8192]; add.u32 %r0, %r0, %v5; xor.b32 %r0, %r0, %v6;
st.global.u32 [%o], %r0; ld.global.u16 %r22, [%o]; ld.global.u16 %r23, [%o+2]; shl.b32 %r23, %r23, 3; add.u32 %r0, %r22, %r23;
add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, 20; @%p1 bra loop;`);
    assert.notEqual(left[0], left[1]);
  });

  it('carry out both arms of a short branch, each for its lanes', () => {
    const left = same(`
mov.u32 %r0, 0; mov.u32 %r1, 0; mov.u32 %r2, s; shl.b32 %r3, %t, 2; add.u32 %r3, %r3, %r2;
loop: add.u32 %r4, %r1, %t; and.b32 %r5, %r4, 3; setp.eq.u32 %p1, %r5, 0; setp.gt.u32 %p3, %r4, 20;
@%p1 bra other;
add.u32 %r0, %r0, 5; st.shared.u32 [%r3], %r0; @%p3 mul.lo.u32 %r0, %r0, 3; @%p3 st.shared.u32 [%r3+1024], %r1; bra.uni join;
other: ld.shared.u32 %r6, [%r3]; add.u32 %r0, %r0, %r6; @!%p3 ld.shared.u32 %r7, [%r3+1024]; @!%p3 xor.b32 %r0, %r0, %r7;
join: setp.ne.u32 %p2, %r5, 2; @%p2 bra skip;
st.global.u32 [%o], %r0; ld.global.u32 %r8, [%o]; add.u32 %r0, %r8, 1; setp.gt.u32 %p3, %r0, 4000;
skip: selp.u32 %r9, 3, 4, %p3; add.u32 %r0, %r0, %r9; add.u32 %r1, %r1, 1; setp.lt.u32 %p2, %r1, 40; @%p2 bra loop;`);
    assert.notEqual(left[0], left[1]);
  });

  it('read bytes and halves anywhere, up to the last one', () => {
    const left = same(`
mov.u32 %r1, %tid.x; mov.u32 %r2, s; mov.u32 %r3, 0; mov.u32 %r0, 1;
fill: mad.lo.u32 %r4, %r3, 48, %r1; mul.lo.u32 %r5, %r4, 0x9e3779b9; shl.b32 %r6, %r4, 2; and.b32 %r6, %r6, 16380;
add.u32 %r6, %r6, %r2; st.shared.u32 [%r6], %r5; add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, 86; @%p1 bra fill;
bar.sync 0;
mul.lo.u32 %r7, %r1, 1237; xor.b32 %r7, %r7, 16383; and.b32 %r7, %r7, 16383; add.u32 %r8, %r7, %r2; and.b32 %r9, %r8, -2; mov.u32 %r3, 0;
min.u32 %r20, %r7, 16380; add.u32 %r20, %r20, %r2;
loop: ld.shared.u8 %r10, [%r8]; ld.shared.s8 %r11, [%r8]; ld.shared.u16 %r12, [%r9]; ld.shared.s16 %r13, [%r9];
ld.shared.u8 %r14, [%r20+1]; ld.shared.u8 %r15, [%r20+2]; ld.shared.v2.u8 {%h0, %h1}, [%r9]; cvt.u32.u16 %r16, %h1;
mad.lo.u32 %r0, %r0, 3, %r10; mad.lo.u32 %r0, %r0, 5, %r11; mad.lo.u32 %r0, %r0, 7, %r12; mad.lo.u32 %r0, %r0, 9, %r13;
mad.lo.u32 %r0, %r0, 11, %r14; mad.lo.u32 %r0, %r0, 13, %r15; mad.lo.u32 %r0, %r0, 17, %r16;
add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, 5; @%p1 bra loop;`);
    assert.notEqual(left[0], left[1]);
  });

  it('carry out each form of access without the interpreter', () => {
    // Each warp's first access of a place in global memory asks the interpreter for the range.
    const most = 2 * BLOCKS * 2;
    const forms: readonly (readonly [name: string, body: string])[] = [
      ['a gather of words', 'ld.shared.u32 %r5, [%r4];'],
      ['a gather of halves', 'ld.shared.u16 %r5, [%r4+2];'],
      ['a gather of bytes', 'ld.shared.s8 %r5, [%r4+1];'],
      ['a gather of 64 bits', 'ld.shared.u64 %d1, [%r4]; cvt.u32.u64 %r5, %d1;'],
      ['a gather from global memory', 'ld.global.u32 %r5, [%d5];'],
      ['a load of one lane', '@%p2 ld.shared.u32 %r5, [%r6];'],
      [
        'a load without lanes, outside memory',
        'setp.gt.u32 %p4, %r3, 99; mul.wide.u32 %d1, %r3, 4; @%p4 ld.global.u32 %r5, [%d1];',
      ],
      ['a store of one lane', '@%p2 st.shared.u32 [%r6], %r1;'],
      ['a store of one lane to global memory', '@%p2 st.global.u32 [%o], %r1;'],
      ['a store of lanes on both sides', '@%p3 st.shared.u32 [%r6], %r1;'],
      ['a store in an arm of a branch', '@%p3 bra on; st.shared.u32 [%r6], %r1; on:'],
      ['a scatter of words', 'st.shared.u32 [%r4], %r1;'],
      ['a scatter of halves', 'st.shared.u16 [%r4], %r1;'],
      ['a scatter to global memory', 'st.global.u32 [%d5], %r1;'],
      ['stores that follow each other', 'st.shared.u32 [%r4], %r1; st.shared.u32 [%r4+4], %r5;'],
      ['an atomic of all lanes', 'atom.shared.add.u32 %r5, [%r4], %r1;'],
      ['an atomic of some lanes', '@%p3 atom.shared.exch.b32 %r5, [%r6], %r1;'],
      ['an atomic of 64 bits', 'mov.u64 %d1, 3; atom.shared.add.u64 %d2, [%r4], %d1;'],
    ];
    for (const [name, body] of forms) {
      const outcome = run(
        kernel(`
mov.u32 %r0, 0; mov.u32 %r1, 0; mov.u32 %r5, 1; mov.u32 %r2, s; mov.u32 %r3, %tid.x; mul.lo.u32 %r4, %r3, 40; add.u32 %r4, %r4, %r2;
shl.b32 %r6, %r3, 2; add.u32 %r6, %r6, %r2; xor.b32 %r7, %t, 13; mul.wide.u32 %d5, %r7, 4; ld.param.u64 %d6, [out]; add.u64 %d5, %d5, %d6;
and.b32 %r7, %r3, 31; setp.eq.u32 %p2, %r7, 5; and.b32 %r7, %r3, 8; setp.eq.u32 %p3, %r7, 0;
loop: ${body} add.u32 %r0, %r0, %r5; xor.b32 %r0, %r0, %r1; add.u32 %r8, %r0, 3; add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 100;
@%p1 bra loop;`),
        'always',
      );
      assert.match(outcome.launches[0] ?? '', /^ok/);
      const { functions, stepped } = outcome.compiled;
      assert.equal(functions, 1, name);
      assert.ok(stepped <= most, `${name}: the interpreter was called ${stepped} times`);
    }
  });

  it('access memory at sums of a base and indices of either sign', () => {
    const body = `
mov.u32 %r0, 1; mov.u32 %r7, 0; ld.param.u64 %d0, [out]; add.u64 %d1, %d0, 380; sub.u64 %d2, %d0, 4000;
mad.lo.u32 %r1, %t, 77, 3; st.global.u32 [%o], %r1; mov.u32 %r2, 0; xor.b32 %r3, %t, 13; mul.lo.u32 %r9, %b, ${THREADS};
and.b32 %r4, %t, 5; setp.eq.u32 %p2, %r4, 1; setp.lt.u32 %p3, %t, 9; bar.sync 0;
loop: sub.u32 %r5, %t, 95; mul.wide.s32 %d3, %r5, 4; add.u64 %d3, %d3, %d1; ld.global.u32 %r6, [%d3]; mad.lo.u32 %r0, %r0, 3, %r6;
sub.u32 %r5, %r3, 95; mad.wide.s32 %d3, %r5, 4, %d1; ld.global.u32 %r6, [%d3]; mad.lo.u32 %r0, %r0, 5, %r6;
@%p2 ld.global.u16 %r6, [%d3+2]; @%p3 ld.global.u32 %r7, [%d3]; mad.lo.u32 %r0, %r0, 7, %r6; add.u32 %r0, %r0, %r7;
add.u32 %r5, %t, 1000; mul.wide.u32 %d3, %r5, 4; add.u64 %d3, %d2, %d3; ld.global.u32 %r6, [%d3]; mad.lo.u32 %r0, %r0, 3, %r6;
@%p3 ld.global.u32 %r7, [%d3]; mad.lo.u32 %r0, %r0, 3, %r7; xor.b64 %d4, %d3, %d2; cvt.u32.u64 %r7, %d4; add.u32 %r0, %r0, %r7;
add.u32 %r5, %r3, 1000; mul.wide.u32 %d3, %r5, 4; add.u64 %d3, %d3, %d2; ld.global.u32 %r6, [%d3]; mad.lo.u32 %r0, %r0, 5, %r6;
sub.u32 %r5, %r9, 95; mul.wide.s32 %d3, %r5, 4; add.u64 %d3, %d3, %d1; ld.global.u32 %r6, [%d3]; mad.lo.u32 %r0, %r0, 7, %r6;
shl.b32 %r5, %t, 2; cvt.u64.u32 %d3, %r5; add.u64 %d3, %d0, %d3; ld.global.u32 %r6, [%d3]; mad.lo.u32 %r0, %r0, 3, %r6;
shl.b32 %r5, %r3, 2; cvt.s64.s32 %d3, %r5; add.u64 %d3, %d3, %d0; ld.global.u32 %r6, [%d3]; mad.lo.u32 %r0, %r0, 5, %r6;
cvt.u64.u32 %d3, %r3; shl.b64 %d3, %d3, 2; add.u64 %d3, %d3, %d0; ld.global.s8 %r6, [%d3+1]; mad.lo.u32 %r0, %r0, 7, %r6;
shr.u32 %r5, %t, 1; mul.wide.u32 %d3, %r5, 8; add.u64 %d3, %d3, %d0; ld.global.u32 %r6, [%d3]; mad.lo.u32 %r0, %r0, 3, %r6;
add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 50; @%p1 bra loop;
bar.sync 0; add.u32 %r5, %r3, 1000; mul.wide.u32 %d3, %r5, 4; add.u64 %d3, %d3, %d2; st.global.u32 [%d3], %r0;
sub.u32 %r5, %t, 95; mul.wide.s32 %d3, %r5, 4; add.u64 %d3, %d3, %d1; bar.sync 0; @%p2 st.global.u32 [%d3], %r5; ld.global.u32 %r0, [%d3];`;
    const left = same(body);
    assert.notEqual(left[0], left[1]);
    // Each warp's first access of a place asks the interpreter for the range of memory.
    const { stepped } = run(kernel(body), 'always').compiled;
    assert.ok(stepped <= 2 * BLOCKS * 20, `the interpreter was called ${stepped} times`);
  });

  it('compile a block of many loads, each at an address of its own, beside many registers', () => {
    const count = 256;
    const each = (write: (i: number) => string): string =>
      Array.from({ length: count }, (_, i) => write(i)).join('\n');
    const text = kernel(`
.reg .f32 %v<${count}>; .reg .b32 %a; mov.u32 %r1, s; mov.u32 %r2, 0; shl.b32 %r3, %t, 2; add.u32 %r3, %r3, %r1;
st.shared.u32 [%r3], %t; bar.sync 0; ${each((i) => `cvt.rn.f32.u32 %v${i}, %t;`)}
loop: ${each((i) => `add.u32 %a, %r3, ${i * 32}; ld.shared.f32 %f1, [%a]; add.f32 %v${i}, %v${i}, %f1;`)}
add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 3; @%p1 bra loop;
mov.f32 %f2, 0f00000000; ${each((i) => `add.f32 %f2, %f2, %v${i};`)} mov.b32 %r0, %f2;`);
    const [plain, compiled] = [run(text, 'never'), run(text, 'always')];
    assert.equal(compiled.compiled.functions, 1, JSON.stringify(compiled.compiled));
    assert.deepEqual(compiled.buffers, plain.buffers);
  });

  it('raise the fault of an index that is beyond 32 bits in the middle of a warp', () => {
    const text = kernel(`
mov.u32 %r1, 0; mov.u32 %r0, 0; ld.param.u64 %d0, [out]; sub.u64 %d1, %d0, 0x3ffffffa0; sub.u64 %d2, %d0, 0x200000000;
add.u64 %d2, %d2, 64;
loop: add.u32 %r1, %r1, 1; setp.eq.u32 %p1, %r1, 50; selp.u32 %r2, 0xffffffe8, 0xffffffd0, %p1; add.u32 %r2, %r2, %t;
mul.wide.u32 %d3, %r2, 4; add.u64 %d3, %d3, %d1; ld.global.u32 %r3, [%d3+96]; add.u32 %r0, %r0, %r3;
setp.lt.u32 %p3, %r1, 100; @%p3 bra loop;`);
    const fault = run(text, 'never').launches;
    assert.match(fault[0] ?? '', /^error illegal address: line \d+ block 0,0,0 thread 24,0,0/);
    for (const way of ['always', 'check'] as const) assert.deepEqual(run(text, way).launches, fault);
  });

  for (const threads of [32, 128]) {
    it(`let another block begin when a loop polls its flag before a barrier, in blocks of ${threads}`, () => {
      const fill = 'xor.b32 %r2, %r2, 5; mad.lo.u32 %r2, %r2, 17, 3;'.repeat(4);
      const text = `${MODULE}
.entry k(.param .u64 flag)
{
.reg .b64 %f; .reg .b32 %r<3>; .reg .pred %p<3>;
ld.param.u64 %f, [flag]; mov.u32 %r0, %ctaid.x; setp.ne.u32 %p1, %r0, 0; @%p1 bra other;
loop: ${fill} ld.volatile.global.u32 %r1, [%f]; bar.sync 0; ${fill} setp.eq.u32 %p2, %r1, 0; @%p2 bra loop;
ret;
other: mov.u32 %r1, 1; st.volatile.global.u32 [%f], %r1; ret;
}
`;
      for (const compile of ['never', 'always', 'check'] as const) {
        const { launches } = runPtx({
          ptx: { text },
          compile,
          before: ['limit 20000'],
          buffers: [64],
          launches: [{ kernel: 'k', grid: [2], block: [threads], args: ['b1'] }],
        });
        assert.match(launches[0] ?? '', /^ok/);
      }
    });
  }

  it('raise the fault of a barrier beyond 15', () => {
    const text = kernel(`${'mad.lo.u32 %r0, %r0, 17, %t;'.repeat(6)} bar.sync 16;`);
    for (const way of ['never', 'always'] as const)
      assert.match(run(text, way).launches[0] ?? '', /^error trap: line \d+ .*a barrier beyond 15/);
  });

  it('compute bit masks, fields, counts and funnel shifts with all amounts', () => {
    same(`
mov.u32 %r0, 0; mov.u32 %r1, 0; mov.u32 %r2, %t;
loop: mad.lo.u32 %r2, %r2, 1664525, 1013904223; shr.u32 %r3, %r2, 3; and.b32 %r4, %r1, 63; shr.u32 %r5, %r2, 26; setp.gt.u32 %p1, %r4, 60;
@%p1 mov.u32 %r5, %r2;
bmsk.clamp.b32 %r6, %r4, %r5; bmsk.wrap.b32 %r7, %r4, %r5; bmsk.clamp.b32 %r8, %r5, %r4; bfe.u32 %r9, %r2, %r4, %r5;
bfe.u32 %r10, %r3, %r5, %r4; bfi.b32 %r11, %r2, %r3, %r4, %r5; bfi.b32 %r12, %r3, %r2, %r5, %r4; popc.b32 %r13, %r2;
shf.l.wrap.b32 %r14, %r2, %r3, %r5; shf.r.wrap.b32 %r15, %r2, %r3, %r4; shf.l.clamp.b32 %r16, %r2, %r3, %r4; shf.r.clamp.b32 %r17, %r3, %r2, %r5;
mad.lo.u32 %r0, %r0, 3, %r6; mad.lo.u32 %r0, %r0, 5, %r7; mad.lo.u32 %r0, %r0, 7, %r8; mad.lo.u32 %r0, %r0, 9, %r9; xor.b32 %r0, %r0, %r10;
mad.lo.u32 %r0, %r0, 3, %r11; mad.lo.u32 %r0, %r0, 5, %r12; mad.lo.u32 %r0, %r0, 7, %r13; mad.lo.u32 %r0, %r0, 9, %r14; xor.b32 %r0, %r0, %r15;
mad.lo.u32 %r0, %r0, 3, %r16; mad.lo.u32 %r0, %r0, 5, %r17; add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 300; @%p1 bra loop;`);
  });

  it('shift two words by a variable amount that LLVM proves to be 0', () => {
    const left = same(`
.reg .b32 %i, %z; mov.u32 %i, 1; mov.u32 %z, 0; mad.lo.u32 %r1, %t, 7, 0x80000005; mad.lo.u32 %r2, %t, 0x12345677, 0x9abcdef1; mov.u32 %r3, -7;
bar.sync 0;
shf.l.wrap.b32 %r4, %i, %z, %t; shf.l.wrap.b32 %r5, %r1, %r3, %r4; shf.l.wrap.b32 %r6, %r1, %r2, %r4; shf.r.wrap.b32 %r7, %r1, %r2, %r4;
shf.l.wrap.b32 %r8, %r1, %r2, 32; shf.r.wrap.b32 %r9, %r1, %r2, 64;
add.u32 %r0, %r5, %r6; mad.lo.u32 %r0, %r0, 3, %r7; mad.lo.u32 %r0, %r0, 5, %r8; mad.lo.u32 %r0, %r0, 7, %r9;`);
    const [low, high] = [0x80000005, 0x9abcdef1];
    assert.equal(left[0], ((((-7 + high) * 3 + low) * 5 + high) * 7 + low) % 2 ** 32);
  });

  it('exchange with shared memory, lane after lane', () => {
    const left = same(`
.reg .b32 %a, %g; .reg .b64 %x<4>;
mov.u32 %r1, %tid.x; mov.u32 %r2, s; mov.u32 %r0, 1; shl.b32 %r3, %r1, 3; add.u32 %r3, %r3, %r2; mov.u64 %x0, 0;
st.shared.u64 [%r3], %x0; bar.sync 0; setp.ge.u32 %p1, %r1, 32; @%p1 bra done; mov.u32 %r4, 0; setp.ne.u32 %p2, %r1, 5;
loop: mad.lo.u32 %r5, %r1, %r4, %r1; and.b32 %r5, %r5, 7; shl.b32 %r5, %r5, 3; add.u32 %r5, %r5, %r2;
atom.shared.add.u32 %r6, [%r5], %r1; mad.lo.u32 %r0, %r0, 3, %r6; atom.shared.xor.b32 %r7, [%r5+4], %r0; mad.lo.u32 %r0, %r0, 5, %r7;
@%p2 atom.shared.exch.b32 %r8, [%r5], %r0; @%p2 mad.lo.u32 %r0, %r0, 7, %r8; atom.shared.or.b32 %r9, [%r5+8], 5; xor.b32 %r0, %r0, %r9;
cvt.u64.u32 %x1, %r0; atom.shared.add.u64 %x2, [%r5+64], %x1; cvt.u32.u64 %r10, %x2; add.u32 %r0, %r0, %r10; @!%p2 red.shared.and.b32 [%r5], 255;
atom.shared.add.u32 %r5, [%r5], %r5; xor.b32 %r0, %r0, %r5; add.u32 %r4, %r4, 1; setp.lt.u32 %p3, %r4, 30; @%p3 bra loop;
done:`);
    assert.notEqual(left[0], left[1]);
  });

  it('raise the fault of an atomic, at its line', () => {
    const text = kernel(`
mov.u32 %r1, 0; mov.u32 %r0, 0; mov.u32 %r2, s;
loop: add.u32 %r1, %r1, 1; setp.eq.u32 %p1, %r1, 50; setp.eq.u32 %p2, %t, 37; and.pred %p1, %p1, %p2; selp.b32 %r3, 16384, 64, %p1;
add.u32 %r3, %r3, %r2;
atom.shared.add.u32 %r4, [%r3], 1; setp.lt.u32 %p3, %r1, 100; @%p3 bra loop;`);
    const fault = run(text, 'never').launches;
    assert.match(fault[0] ?? '', /^error illegal address: line \d+ block 0,0,0 thread 37,0,0/);
    for (const way of ['always', 'check'] as const) assert.deepEqual(run(text, way).launches, fault);
  });

  it('save for waiting lanes only the registers that the code can write before it leaves', () => {
    const rounds = 100;
    const each = (write: (i: number) => string): string =>
      Array.from({ length: 200 }, (_, i) => write(i)).join('\n');
    const body = `
.reg .b32 %v<200>; ${each((i) => `mad.lo.u32 %v${i}, %t, ${i + 3}, 7;`)}
mov.u32 %r0, %t; mov.u32 %r1, 0; and.b32 %r2, %t, 1; setp.eq.u32 %p1, %r2, 0; @%p1 bra past;
loop: add.u32 %r4, %r0, 1; mul.lo.u32 %r5, %r4, 3; xor.b32 %r6, %r5, %r4; add.u32 %r0, %r0, %r6; membar.gl;
add.u32 %r1, %r1, 1; setp.lt.u32 %p2, %r1, ${rounds}; @%p2 bra loop;
past: ${each((i) => `xor.b32 %r0, %r0, %v${i};`)}`;
    same(body);
    const { saved } = run(kernel(body), 'always').compiled;
    const entries = 4 * rounds * 2; // of four warps
    assert.ok(saved > 0 && saved <= entries * 6, `${saved} registers were saved`);
  });

  it('are entered again where the first instruction of a loop has a guard', () => {
    const body = `
mov.u32 %r0, %t; mov.u32 %r1, 0; setp.lt.u32 %p1, %t, 40;
loop: @%p1 add.u32 %r0, %r0, 3; xor.b32 %r0, %r0, %r1; mul.lo.u32 %r0, %r0, 5; add.u32 %r0, %r0, 7; shr.u32 %r2, %r0, 3;
xor.b32 %r0, %r0, %r2; add.u32 %r1, %r1, 1; setp.lt.u32 %p2, %r1, 9000; @%p2 bra loop;`;
    same(body);
    const { compared } = run(kernel(body), 'check').compiled;
    // The interpreter takes over in each of four warps after at most 2,000 branches.
    assert.ok(compared >= 4 * 4, `the code was entered ${compared} times`);
  });

  it('repeat a loop for the lanes that have not ended it', () => {
    const left = same(
      `
mov.u32 %r1, 0; mov.u32 %r0, 0; mov.u32 %r2, s; shl.b32 %r3, %t, 2; add.u32 %r3, %r3, %r2; mul.lo.u32 %r4, %t, 7; and.b32 %r4, %r4, 31;
mov.u32 %r9, 0; mov.u32 %r12, 3; setp.gt.u32 %p3, %t, 20; mov.f32 %f1, 0f3F800000; st.shared.u32 [%r3], %r4;
outer: mov.u32 %r5, 0; mov.u32 %r10, 1;
loop: mad.lo.u32 %r6, %r5, 3, %t; ld.shared.u32 %r7, [%r3]; add.u32 %r7, %r7, %r6; st.shared.u32 [%r3], %r7; xor.b32 %r0, %r0, %r7;
@%p3 add.u32 %r9, %r9, %r6; @!%p3 ld.shared.u32 %r12, [s+64]; mad.lo.u32 %r10, %r10, 5, %r12; fma.rn.f32 %f1, %f1, 0f3F800001, %f1;
atom.shared.add.u32 %r11, [s+8192], 1; and.b32 %r11, %r11, 1; mul.lo.u32 %r10, %r10, 3; setp.gt.u32 %p4, %r5, 3;
add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, %r4; @%p1 bra loop;
selp.u32 %r8, 3, 5, %p4; mov.b32 %r13, %f1; add.u32 %r0, %r0, %r8; mad.lo.u32 %r0, %r0, 3, %r10; xor.b32 %r0, %r0, %r13; add.u32 %r0, %r0, %r6; add.u32 %r0, %r0, %r9;
add.u32 %r1, %r1, 1; setp.lt.u32 %p2, %r1, 9; @%p2 bra outer;`,
      '',
      16,
    );
    assert.notEqual(left[0], left[1]);
  });

  it('end a loop in which lanes wait for others of their warp', () => {
    const left = same(`
.reg .b32 %turn; mov.u32 %r1, %tid.x; mov.u32 %r0, 0; and.b32 %r1, %r1, 31; mov.u32 %turn, 0; mov.u32 %r3, 0; mov.u32 %r9, %tid.x; shr.u32 %r9, %r9, 5; shl.b32 %r9, %r9, 2;
mov.u32 %r8, s; add.u32 %r9, %r9, %r8; st.shared.u32 [%r9], %turn;
loop: ld.volatile.shared.u32 %turn, [%r9]; add.u32 %r3, %r3, 1; and.b32 %r4, %r3, 7; xor.b32 %r4, %r4, %r3; xor.b32 %r4, %r4, %r3; setp.ne.u32 %p1, %turn, %r1; @%p1 bra loop;
add.u32 %r0, %r1, 1; st.volatile.shared.u32 [%r9], %r0;`);
    assert.deepEqual([left[0], left[31]], [1, 32]);
  });

  it('shuffle and vote', () => {
    const left = same(`
mov.u32 %r0, %t; mov.u32 %r1, 0; mov.u32 %r2, %tid.x; setp.ge.u32 %p7, %r2, 32; mov.u32 %r3, -1;
loop: shfl.sync.bfly.b32 %r4|%p1, %r0, 8, 31, -1; shfl.sync.up.b32 %r5|%p2, %r4, 3, 0, %r3; shfl.sync.down.b32 %r6|%p3, %r5, 2, 0x1807, -1;
and.b32 %r7, %r0, 31; shfl.sync.idx.b32 %r8, %r6, %r7, 31, -1; selp.u32 %r9, 1, 2, %p1; selp.u32 %r10, 4, 8, %p2; selp.u32 %r11, 16, 32, %p3;
setp.gt.u32 %p4, %r0, 100; vote.sync.ballot.b32 %r12, %p4, -1; vote.sync.all.pred %p5, !%p4, -1; vote.sync.any.pred %p6, %p4, -1;
selp.u32 %r13, 64, 128, %p5; selp.u32 %r14, 256, 512, %p6; vote.sync.uni.pred %p5, %p4, -1; selp.u32 %r15, 1024, 2048, %p5;
redux.sync.add.u32 %r16, %r0, -1; bar.warp.sync -1; match.any.sync.b32 %r17, %r9, -1;
add.u32 %r0, %r8, %r9; add.u32 %r0, %r0, %r10; add.u32 %r0, %r0, %r11; xor.b32 %r0, %r0, %r12; add.u32 %r0, %r0, %r13;
add.u32 %r0, %r0, %r14; add.u32 %r0, %r0, %r15; xor.b32 %r0, %r0, %r16; add.u32 %r0, %r0, %r17;
add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 9; @%p1 bra loop;`);
    assert.notEqual(left[0], left[33]);
  });

  it('shuffle in the interpreter where lanes are missing', () => {
    same(`
mov.u32 %r0, %t; mov.u32 %r1, 0; and.b32 %r2, %t, 1; setp.eq.u32 %p1, %r2, 0;
loop: @%p1 bra even;
add.u32 %r0, %r0, 3; xor.b32 %r3, %r0, 1; add.u32 %r3, %r3, %r1; shfl.sync.bfly.b32 %r4, %r3, 1, 31, -1; add.u32 %r0, %r0, %r4; bra.uni on;
even: add.u32 %r0, %r0, 5; xor.b32 %r3, %r0, 2; add.u32 %r3, %r3, %r1; shfl.sync.bfly.b32 %r4, %r3, 1, 31, -1; add.u32 %r0, %r0, %r4;
on: add.u32 %r1, %r1, 1; setp.lt.u32 %p2, %r1, 12; @%p2 bra loop;`);
  });

  it('run conversions between flushing float instructions without leaving compiled code', () => {
    const left = same(
      `
mov.u32 %r0, 0; mad.lo.u32 %r1, %t, 683, %t; mov.u32 %r2, 0; mov.b32 %f9, 0x3F804000;
loop: cvt.u16.u32 %h0, %r1; cvt.f32.f16 %f1, %h0; mul.ftz.f32 %f5, %f1, %f9; mul.lo.u32 %r4, %r1, 0x9e3779b9; cvt.rn.f32.s32 %f2, %r4;
fma.rn.ftz.f32 %f3, %f2, %f1, %f5; cvt.rn.f32.u32 %f4, %r4; add.ftz.f32 %f3, %f3, %f4; cvt.rn.f16.f32 %h1, %f3; and.b32 %r5, %r4, 0x80ffffff;
mov.b32 %f6, %r5; cvt.rn.f16.f32 %h2, %f6; cvt.rni.s32.f32 %r6, %f3; cvt.rpi.ftz.s32.f32 %r7, %f6; cvt.rpi.s32.f32 %r8, %f6; cvt.rzi.f32.f32 %f7, %f6;
mov.b32 %r9, {%h1, %h2}; mov.b32 %r10, %f7; mov.b32 %r11, %f3; mad.lo.u32 %r0, %r0, 3, %r6; mad.lo.u32 %r0, %r0, 5, %r7; mad.lo.u32 %r0, %r0, 7, %r8;
mad.lo.u32 %r0, %r0, 9, %r9; mad.lo.u32 %r0, %r0, 11, %r10; mad.lo.u32 %r0, %r0, 13, %r11;
add.u32 %r1, %r1, 1; add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 700; @%p1 bra loop;`,
      '',
      16,
    );
    assert.notEqual(left[0], left[1]);
  });

  it('stay in compiled code at float instructions that round differently or do not flush', () => {
    const left = same(
      `
mov.u32 %r0, 0; mov.u32 %r1, 0; mov.u32 %r2, %t; setp.gt.u32 %p3, %t, 20;
loop: mad.lo.u32 %r2, %r2, 1664525, 1013904223; and.b32 %r3, %r2, 0x80ffffff; mov.b32 %f1, %r3; mov.b32 %f2, 0x3fc00001; mul.ftz.f32 %f3, %f1, %f2;
mul.f32 %f4, %f1, %f2; @%p3 fma.rz.ftz.f32 %f4, %f4, %f2, %f3; add.rp.f32 %f5, %f4, %f1; add.ftz.f32 %f6, %f1, %f5; setp.lt.f32 %p2, %f1, %f5;
selp.f32 %f6, %f6, %f4, %p2; mul.ftz.f32 %f7, %f6, %f2; mov.b32 %r4, %f3; mov.b32 %r5, %f4; mov.b32 %r6, %f5; mov.b32 %r7, %f7;
mad.lo.u32 %r0, %r0, 3, %r4; mad.lo.u32 %r0, %r0, 5, %r5; mad.lo.u32 %r0, %r0, 7, %r6; mad.lo.u32 %r0, %r0, 9, %r7;
add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 300; @%p1 bra loop;`,
      '',
      16,
    );
    assert.notEqual(left[0], left[1]);
  });

  it('multiply bytes of either sign and add', () => {
    const left = same(`
mov.u32 %r0, 0; mov.u32 %r1, 0; mov.u32 %r2, %t;
loop: mad.lo.u32 %r2, %r2, 1664525, 1013904223; shf.l.wrap.b32 %r3, %r2, %r2, 13; mul.lo.u32 %r4, %r3, 0x9e3779b9; and.b32 %r9, %r1, 3;
setp.eq.u32 %p1, %r9, 1; @%p1 mov.u32 %r2, 0x80808080; setp.eq.u32 %p2, %r9, 2; @%p2 mov.u32 %r3, 0xffff80ff; @%p2 mov.u32 %r2, 0xffffffff; @%p1 mov.u32 %r3, 0x807f8080;
dp4a.s32.s32 %r5, %r2, %r3, %r4; dp4a.u32.u32 %r6, %r2, %r3, %r4; dp4a.s32.u32 %r7, %r2, %r3, 0x7ffffff0; dp4a.u32.s32 %r8, %r2, %r3, %r5;
mad.lo.u32 %r0, %r0, 3, %r5; mad.lo.u32 %r0, %r0, 5, %r6; mad.lo.u32 %r0, %r0, 7, %r7; mad.lo.u32 %r0, %r0, 9, %r8;
add.u32 %r2, %r2, %r1; add.u32 %r1, %r1, 1; setp.lt.u32 %p3, %r1, 300; @%p3 bra loop;`);
    assert.notEqual(left[0], left[1]);
  });

  it('convert halves', () => {
    same(`
mov.u32 %r0, 0; mad.lo.u32 %r1, %t, 683, %t; mov.u32 %r2, 0;
loop: cvt.u16.u32 %h0, %r1; cvt.f32.f16 %f1, %h0; mov.b32 %r3, %f1; mul.lo.u32 %r4, %r1, 0x9e3779b9; mov.b32 %f2, %r4; cvt.rn.f16.f32 %h1, %f2;
cvt.f32.bf16 %f3, %h0; mov.b32 %r5, %f3; mul.rn.f32 %f4, %f1, 0f3F804000; cvt.rn.f16.f32 %h2, %f4; mov.b32 %r6, {%h1, %h2};
xor.b32 %r0, %r0, %r3; shf.l.wrap.b32 %r0, %r0, %r0, 7; xor.b32 %r0, %r0, %r5; shf.l.wrap.b32 %r0, %r0, %r0, 5; xor.b32 %r0, %r0, %r6;
add.u32 %r1, %r1, 1; add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 700; @%p1 bra loop;`);
  });

  it('raise the fault of a load that was read with another one, at its line', () => {
    const text = kernel(`
mov.u32 %r0, 0; mov.u32 %r1, 0; cvta.to.global.u64 %d1, %o;
loop: ld.global.u32 %r2, [%d1]; add.u32 %r0, %r0, %r2;
ld.global.u32 %r3, [%d1+256]; add.u32 %r0, %r0, %r3;
add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 20; @%p1 bra loop;`);
    const fault = run(text, 'never').launches;
    assert.match(fault[0] ?? '', /^error illegal address: line 15 block 0,0,0 thread 32,0,0/);
    for (const way of ['always', 'check'] as const) assert.deepEqual(run(text, way).launches, fault);
  });

  it('raise the fault of a store behind others, at its line, after what was stored before', () => {
    for (const guard of ['', '@%p2 ', '@%p3 ']) {
      const text = kernel(`
mov.u32 %r1, 0; cvta.to.global.u64 %d1, %o; and.b32 %r5, %t, 31; setp.eq.u32 %p2, %r5, 31; setp.gt.u32 %p3, %r5, 9;
loop: add.u32 %r1, %r1, 1; setp.eq.u32 %p1, %r1, 20; selp.b32 %r2, 252, 0, %p1; cvt.u64.u32 %d2, %r2; add.u64 %d3, %d1, %d2;
${guard}st.global.u32 [%d3], %r1;
${guard}st.global.u32 [%d3+48], %r5;
setp.lt.u32 %p1, %r1, 30; @%p1 bra loop; mov.u32 %r0, 1;`);
      const [plain, compiled, checked] = (['never', 'always', 'check'] as const).map((way) => run(text, way));
      assert.match(plain?.launches[0] ?? '', /^error illegal address: line 16 block 0,0,0 thread [23]1,0,0/);
      assert.deepEqual([compiled?.launches, checked?.launches], [plain?.launches, plain?.launches]);
      assert.deepEqual(compiled?.buffers, plain?.buffers);
    }
  });

  it('raise the fault of the lane, at its line', () => {
    const text = kernel(`
mov.u32 %r1, 0; mov.u32 %r0, 0;
loop: add.u32 %r1, %r1, 1; setp.eq.u32 %p1, %r1, 50; setp.eq.u32 %p2, %t, 37; and.pred %p1, %p1, %p2;
selp.b64 %d1, 16, 0, %p1; shl.b64 %d1, %d1, 30; add.u64 %d1, %d1, %o;
st.global.u32 [%d1], %r1; setp.lt.u32 %p3, %r1, 100; @%p3 bra loop;`);
    const fault = run(text, 'never').launches;
    assert.match(fault[0] ?? '', /^error illegal address: line \d+ block 0,0,0 thread 37,0,0/);
    for (const way of ['always', 'check'] as const) assert.deepEqual(run(text, way).launches, fault);
  });

  it('switch to compiled code while a launch runs', () => {
    const outcome = runPtx({
      ptx: {
        text: kernel(`mov.u32 %r1, 0; mov.u32 %r0, 0;
loop: add.u32 %r1, %r1, 1; mad.lo.u32 %r0, %r0, 3, %r1; xor.b32 %r0, %r0, %t; setp.lt.u32 %p1, %r1, 3000000; @%p1 bra loop;`),
      },
      compile: 'auto',
      buffers: [BLOCKS * THREADS * 4],
      launches: [{ kernel: 'k', grid: [BLOCKS], block: [THREADS], args: ['b1', 'u32:1'] }],
    });
    assert.equal(outcome.compiled.functions, 1);
    let want = 0;
    for (let i = 1; i <= 3000000; i++) want = (Math.imul(want, 3) + i) ^ 5;
    assert.equal(u32(outcome.buffers[0] ?? Buffer.alloc(0))[5], want >>> 0);
  });

  it('write the sums to which the interpreter then adds a product of matrices (wgmma)', () => {
    const text = `.version 8.4\n.target sm_90a\n.address_size 64
.entry k(.param .u64 out)
{
.reg .b64 %o, %d; .reg .b32 %t, %s, %z; .reg .f32 %f<5>; .shared .align 128 .b8 s[4096];
mov.u32 %t, %tid.x; mov.u32 %z, 0; shl.b32 %s, %t, 5; mov.u64 %d, s; cvt.u32.u64 %z, %d; add.u32 %s, %s, %z; mov.u32 %z, 0;
st.shared.v4.b32 [%s], {%z, %z, %z, %z}; st.shared.v4.b32 [%s + 16], {%z, %z, %z, %z}; shr.u64 %d, %d, 4; bar.sync 0;
cvt.rn.f32.u32 %f4, %t; add.f32 %f0, %f4, 0f3f800000; add.f32 %f1, %f0, %f4; add.f32 %f2, %f1, %f4; add.f32 %f3, %f2, %f4;
mul.f32 %f0, %f0, %f4; mul.f32 %f2, %f2, %f4; mul.f32 %f3, %f3, %f4;
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %d, %d, 1, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
ld.param.u64 %o, [out]; mul.wide.u32 %d, %t, 16; add.u64 %o, %o, %d; st.global.v4.f32 [%o], {%f0, %f1, %f2, %f3}; ret; }
`;
    const [plain, compiled] = (['never', 'always'] as const).map((compile) =>
      runPtx({
        ptx: { text },
        compile,
        buffers: [128 * 16],
        launches: [{ kernel: 'k', grid: [1], block: [128], args: ['b1'] }],
      }),
    );
    assert.match(plain?.launches[0] ?? '', /^ok/);
    assert.equal(plain?.buffers[0]?.readFloatLE(5 * 16 + 4), 11);
    assert.equal(compiled?.compiled.functions, 1);
    assert.deepEqual(compiled.buffers, plain?.buffers);
  });

  it('are compared in one thread, so that no other thread reverts its atomics', () => {
    const body = `mov.u32 %r0, 0; mov.u32 %r1, 0; ld.param.u64 %d1, [out];
loop: atom.global.add.u32 %r2, [%d1], 1; add.u32 %r1, %r1, 1; xor.b32 %r0, %r0, %r1; setp.lt.u32 %p1, %r1, 200; @%p1 bra loop;
add.u64 %o, %o, 4;`;
    const { launches, buffers } = runPtx({
      ptx: { text: kernel(body) },
      compile: 'check',
      before: ['helpers 3'],
      buffers: [(64 * THREADS + 1) * 4],
      launches: [{ kernel: 'k', grid: [64], block: [THREADS], args: ['b1', 'u32:1'] }],
    });
    assert.match(launches[0] ?? '', /^ok/);
    assert.equal(u32(buffers[0] ?? Buffer.alloc(0))[0], 64 * THREADS * 200);
  });

  it('compile in auto after many loops, warps or calls, and not after few', () => {
    const functions = `.func (.param .u32 to) f(.param .u32 from) { .reg .b32 %x<4>;
ld.param.u32 %x1, [from]; mul.lo.u32 %x1, %x1, 0x9e3779b9; xor.b32 %x2, %x1, 77; add.u32 %x2, %x2, 3; xor.b32 %x1, %x2, %x1;
sub.u32 %x1, %x1, 9; mad.lo.u32 %x1, %x1, %x2, 5; st.param.u32 [to], %x1; ret; }`;
    const auto = (body: string, blocks: number, launches: number): number =>
      runPtx({
        ptx: { text: kernel(body, functions) },
        compile: 'auto',
        buffers: [blocks * THREADS * 4],
        launches: Array.from({ length: launches }, () => ({
          kernel: 'k',
          grid: [blocks],
          block: [THREADS],
          args: ['b1', 'u32:1'],
        })),
      }).compiled.asked;
    const straight =
      'mov.u32 %r0, %t; mad.lo.u32 %r0, %r0, 3, %t; xor.b32 %r0, %r0, %t; add.u32 %r0, %r0, 9;';
    const loop = (rounds: number): string =>
      `${straight} mov.u32 %r1, 0; loop: add.u32 %r1, %r1, 1; mad.lo.u32 %r0, %r0, 3, %r1; xor.b32 %r0, %r0, %t;
setp.lt.u32 %p1, %r1, ${rounds}; @%p1 bra loop;`;
    const calls = `mov.u32 %r0, %t; mov.u32 %r1, 0;
loop: { .param .u32 p; .param .u32 q; st.param.u32 [p], %r0; call (q), f, (p); ld.param.u32 %r0, [q]; }
add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 60000; @%p1 bra loop;`;
    assert.equal(auto(straight, 64, 50), 0, 'launches alone do not count');
    assert.equal(auto(loop(1000), 2, 1), 0);
    assert.equal(auto(loop(400), 64, 4), 1, 'branches of warps that end soon count');
    assert.equal(auto(straight, 20_000, 1), 1, 'warps count');
    // The compiler takes one function at a time: f is sent after the answer for k.
    let asked = 0;
    for (let launches = 1; asked < 2 && launches <= 256; launches *= 4) asked = auto(calls, 1, launches);
    assert.equal(asked, 2, 'calls count');
  });

  const sanitized = VARIANT !== 'shim' && 'a sanitizer reports memory that it cannot map';
  it('are compiled after a function on which LLVM has failed', { skip: sanitized }, async () => {
    const scratch = scratchDirectory();
    const file = path.join(scratch.path, 'k.ptx');
    writeFileSync(
      file,
      kernel('mov.u32 %r0, %t; mad.lo.u32 %r0, %r0, 3, %t; xor.b32 %r0, %r0, %t; add.u32 %r0, %r0, 9;'),
    );
    const run = spawn(builtFile('programs/ptx_run'), [], { env: { ...process.env, PTX_COMPILE: 'always' } });
    try {
      const out: string[] = [];
      let errors = '';
      createInterface({ input: run.stdout }).on('line', (line) => out.push(line));
      run.stderr.on('data', (text) => (errors += String(text)));
      const launch = async (nth: number): Promise<void> => {
        run.stdin.write(`module ${file} 90\nbuffer 4096\nlaunch k 1 1 1 32 1 1 0 : b${nth} u32:5\n`);
        const ends = (): number => out.filter((line) => line.startsWith('ok nanoseconds')).length;
        await until(`launch ${nth}`, () => ends() === nth, 60_000);
      };
      await launch(1);
      const children = readFileSync(`/proc/${run.pid}/task/${run.pid}/children`, 'utf8').trim();
      const limit = (bytes: string): void => {
        const { status, stderr } = spawnSync('prlimit', ['--pid', children, `--data=${bytes}:`], {
          encoding: 'utf8',
        });
        assert.equal(status, 0, stderr);
      };
      limit('1000000');
      await launch(2);
      limit('unlimited');
      await launch(3);
      run.stdin.end();
      await until('its end', () => run.exitCode !== null && errors !== '');
      assert.match(errors, /^compiled 2 refused 1 asked 3 .*LLVM failed/m);
    } finally {
      run.kill();
      scratch.remove();
    }
  });

  describe('of a hostile module', () => {
    const works = (body: string, functions?: string): Outcome => {
      const text = kernel(body, functions);
      const plain = run(text, 'never');
      const compiled = run(text, 'always');
      assert.match(plain.launches[0] ?? '', /^ok/);
      assert.deepEqual(compiled.launches[0]?.slice(0, 2), 'ok');
      assert.deepEqual(compiled.buffers, plain.buffers);
      return compiled;
    };

    it('with more instructions than are compiled is interpreted', () => {
      const body = Array.from({ length: 5000 }, (_, i) => `mad.lo.u32 %r0, %r0, ${i | 1}, %t;`).join('\n');
      assert.equal(works(`mov.u32 %r0, 1;\n${body}`).compiled.functions, 0);
    });

    it('with hundreds of values that are live at once is compiled or refused', () => {
      const names = Array.from({ length: 600 }, (_, i) => i);
      const body = `.reg .b32 %v<600>;
${names.map((i) => `mad.lo.u32 %v${i}, %t, ${i + 3}, ${i};`).join('\n')}
bar.warp.sync 0xffffffff;
mov.u32 %r0, 0;
${names.map((i) => `xor.b32 %r0, %r0, %v${i}; mul.lo.u32 %r0, %r0, %v${(i * 7) % 600};`).join('\n')}`;
      const { compiled } = works(body);
      assert.equal(compiled.functions + compiled.refused, 1);
    });

    it('with hundreds of branches into each other is compiled or refused', () => {
      const body = `mov.u32 %r0, 0; mov.u32 %r2, 0;
${Array.from({ length: 200 }, (_, i) => `L${i}: add.u32 %r0, %r0, ${i}; setp.eq.u32 %p1, %r0, ${i * 31}; @%p1 bra L${Math.min(199, i + 1 + ((i * 173) % 50))};`).join('\n')}
add.u32 %r2, %r2, 1;`;
      const { compiled } = works(body);
      assert.equal(compiled.functions + compiled.refused, 1);
    });

    it('with deep nests of loops is compiled or refused', () => {
      const depth = 24;
      const body = `.reg .b32 %c<${depth}>; mov.u32 %r0, 0;
${Array.from({ length: depth }, (_, i) => `mov.u32 %c${i}, 0; N${i}: add.u32 %r0, %r0, ${i};`).join('\n')}
${Array.from({ length: depth }, (_, k) => depth - 1 - k)
  .map((i) => `add.u32 %c${i}, %c${i}, 1; setp.lt.u32 %p1, %c${i}, ${i % 8 === 0 ? 2 : 1}; @%p1 bra N${i};`)
  .join('\n')}`;
      const { compiled } = works(body);
      assert.equal(compiled.functions + compiled.refused, 1);
    });
  });
});
