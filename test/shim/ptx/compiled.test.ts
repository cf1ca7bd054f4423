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
import { builtFile, scratchDirectory, until } from '../shim_host.js';
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
function same(body: string, functions = ''): number[] {
  const text = kernel(body, functions);
  const [plain, compiled, checked] = (['never', 'always', 'check'] as const).map((way) => run(text, way));
  assert.match(plain?.launches[0] ?? '', /^ok/);
  for (const outcome of [compiled, checked]) {
    assert.match(outcome?.launches[0] ?? '', /^ok/);
    assert.notEqual(outcome?.compiled.functions, 0, 'nothing was compiled');
    assert.deepEqual(outcome?.buffers, plain?.buffers);
  }
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

  it('are compiled after a function on which LLVM has failed', async () => {
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
