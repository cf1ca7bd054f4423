/**
 * Compiled kernels: `check` runs each region by the interpreter's functions and compiled, and compares registers, counts
 * and stored bytes. Other tests run the same way with PTX_COMPILE=always or check in the environment.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
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
