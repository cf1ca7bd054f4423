/**
 * Lanes of a warp that diverge, wait for each other and join: each program failed once, with a wrong number or a wait
 * that never ended.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { runPtx, u32 } from './machine.js';

/** One block; every thread leaves %r0 in its word. */
function run(body: string, threads = 32, functions = '', device: 90 | 100 = 90): readonly number[] {
  const text = `.version ${device === 90 ? '8.4' : '8.6'}
.target sm_${device}a
.address_size 64
${functions}
.visible .entry k(.param .u64 out)
{
  .reg .b32 %r<16>; .reg .b64 %rd<4>; .reg .f32 %f<4>; .reg .pred %p<6>;
  .shared .align 16 .b32 s[64];
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %tid.x;
  mad.wide.u32 %rd1, %r1, 4, %rd1;
${body}
  st.global.u32 [%rd1], %r0;
  ret;
}
`;
  const outcome = runPtx({
    ptx: { text },
    device,
    buffers: [threads * 4],
    before: ['limit 20000'],
    launches: [{ kernel: 'k', block: [threads], args: ['b1'] }],
  });
  assert.match(outcome.load, /^ok /);
  assert.match(outcome.launches[0] ?? '', /^ok /);
  return [...u32(outcome.buffers[0] ?? Buffer.alloc(0))];
}
const lanes = (of: (lane: number) => number, count = 32): number[] =>
  Array.from({ length: count }, (_, i) => of(i));

describe('lanes that part', () => {
  /** Odd lanes go round a do-while loop by their number, then all do something together. */
  const doWhile = (after: string): string => `  mov.u32 %r2, %r1;
  mov.u32 %r3, 0;
  and.b32 %r4, %r1, 1;
  setp.eq.u32 %p1, %r4, 0;
  @%p1 bra JOIN;
ROUND:
  mad.lo.u32 %r2, %r2, 5, 1;
  add.u32 %r3, %r3, 1;
  setp.lt.u32 %p2, %r3, %r1;
  @%p2 bra ROUND;
  xor.b32 %r2, %r2, %r3;
JOIN:
${after}`;
  const left = (lane: number): number => {
    let x = lane,
      n = 0;
    if (lane % 2 === 1) {
      do x = (Math.imul(x, 5) + 1) >>> 0;
      while (++n < lane);
      x = (x ^ n) >>> 0;
    }
    return x;
  };

  it('leave a loop inside of a branch, and a shuffle behind both takes all of them', () => {
    const found = run(doWhile('  shfl.sync.bfly.b32 %r0, %r2, 1, 31, 0xffffffff;'));
    assert.deepEqual(
      found,
      lanes((lane) => left(lane ^ 1)),
    );
  });

  it('are together again behind the loop, as an operation without a mask shows', () => {
    assert.deepEqual(
      run(doWhile('  activemask.b32 %r0;')),
      lanes(() => 0xffffffff),
    );
  });

  it('give back behind a loop the lock that others wait for in it, label or none', () => {
    for (const label of ['', 'OUT:']) {
      const found = run(
        `  mov.u32 %r3, 0;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra READY;
  st.shared.u32 [s], 0;
  st.shared.u32 [s+4], 0;
READY:
  bar.sync 0;
TRY:
  atom.shared.cas.b32 %r2, [s], 0, 1;
  setp.ne.u32 %p2, %r2, 0;
  @%p2 bra TRY;
${label}
  ld.volatile.shared.u32 %r4, [s+4];
  add.u32 %r4, %r4, 1;
  st.volatile.shared.u32 [s+4], %r4;
  atom.shared.exch.b32 %r2, [s], 0;
  bar.sync 0;
  ld.shared.u32 %r0, [s+4];`,
        96,
      );
      assert.deepEqual(
        found,
        lanes(() => 96, 96),
      );
    }
  });

  it('give back a lock that a function tries to take, which others call in a loop', () => {
    const attempt = `.func (.param .b32 got) attempt(.param .b32 where)
{
  .reg .b32 %r<3>;
  ld.param.b32 %r1, [where];
  atom.shared.cas.b32 %r2, [%r1], 0, 1;
  st.param.b32 [got], %r2;
  ret;
}`;
    const found = run(
      `  setp.ne.u32 %p1, %r1, 0;
  mov.u32 %r5, s;
  @%p1 bra READY;
  st.shared.u32 [s], 0;
  st.shared.u32 [s+4], 0;
READY:
  bar.sync 0;
TRY:
  {
    .param .b32 where;
    .param .b32 got;
    st.param.b32 [where], %r5;
    call (got), attempt, (where);
    ld.param.b32 %r2, [got];
  }
  setp.ne.u32 %p2, %r2, 0;
  @%p2 bra TRY;
  ld.volatile.shared.u32 %r4, [s+4];
  add.u32 %r4, %r4, 1;
  st.volatile.shared.u32 [s+4], %r4;
  atom.shared.exch.b32 %r2, [s], 0;
  bar.sync 0;
  ld.shared.u32 %r0, [s+4];`,
      96,
      attempt,
    );
    assert.deepEqual(
      found,
      lanes(() => 96, 96),
    );
  });

  it('wait at a barrier of the block on one side for those that have come to the end of the other', () => {
    const found = run(`  mov.u32 %r0, 1;
  setp.ge.u32 %p1, %r1, 16;
  @%p1 bra JOIN;
  bar.sync 0;
  add.u32 %r0, %r0, 1;
  bra DONE;
JOIN:
  add.u32 %r0, %r0, 10;
  bar.sync 0;
DONE:`);
    assert.deepEqual(
      found,
      lanes((lane) => (lane < 16 ? 2 : 11)),
    );
  });
});

describe('lanes that do something together', () => {
  it('do it in groups, each with its own member mask, in one instruction', () => {
    const found = run(`  setp.lt.u32 %p1, %r1, 16;
  selp.b32 %r2, 0xffff, 0xffff0000, %p1;
  redux.sync.add.u32 %r0, %r1, %r2;`);
    assert.deepEqual(
      found,
      lanes((lane) => (lane < 16 ? 120 : 376)),
    );
  });

  it('find the minimum and maximum float, without and with NaNs among the lanes', () => {
    /** Lane 3 has a NaN, lanes 4 and 5 have -0 and +0, 6 and 7 have NaNs, the others have lane - 15.5. */
    const reduced = (operation: string): readonly number[] =>
      run(
        `  cvt.rn.f32.u32 %f1, %r1;
  sub.f32 %f1, %f1, 0f41780000;
  setp.eq.u32 %p1, %r1, 3;
  @%p1 mov.b32 %f1, 0xffc00001;
  setp.eq.u32 %p2, %r1, 4;
  @%p2 mov.b32 %f1, 0x80000000;
  setp.eq.u32 %p2, %r1, 5;
  @%p2 mov.b32 %f1, 0;
  and.b32 %r3, %r1, 30;
  setp.eq.u32 %p3, %r3, 6;
  @%p3 mov.b32 %f1, 0x7f800001;
  mov.b32 %r2, 0xffffff0f;
  setp.eq.u32 %p4, %r3, 4;
  @%p4 mov.b32 %r2, 0x30;
  @%p3 mov.b32 %r2, 0xc0;
  redux.sync.${operation}.f32 %f2, %f1, %r2;
  mov.b32 %r0, %f2;`,
        32,
        '',
        100,
      );
    const bits = (value: number): number => new Uint32Array(Float32Array.of(value).buffer)[0] ?? 0;
    const nan = 0x7fffffff;
    for (const [operation, all, zeros] of [
      ['min', bits(-15.5), bits(-0)],
      ['max', bits(15.5), 0],
      ['min.abs', bits(0.5), 0],
      ['max.abs', bits(15.5), 0],
      ['min.NaN', nan, bits(-0)],
      ['max.NaN', nan, 0],
      ['max.abs.NaN', nan, 0],
    ] as const)
      assert.deepEqual(
        reduced(operation),
        lanes((lane) => (lane >> 1 === 2 ? zeros : lane >> 1 === 3 ? nan : all)),
        operation,
      );
  });

  it('meet at the same operation in two places', () => {
    const found = run(`  setp.lt.u32 %p1, %r1, 16;
  @%p1 bra LOW;
  mul.lo.u32 %r2, %r1, 3;
  shfl.sync.bfly.b32 %r0, %r2, 16, 31, 0xffffffff;
  bra DONE;
LOW:
  mul.lo.u32 %r3, %r1, 7;
  shfl.sync.bfly.b32 %r0, %r3, 16, 31, 0xffffffff;
DONE:`);
    assert.deepEqual(
      found,
      lanes((lane) => (lane < 16 ? (lane + 16) * 3 : (lane - 16) * 7)),
    );
  });

  it('go on when their group is complete, while another group of the same instruction waits', () => {
    // the upper half comes in two parts, the second only after the lower half has written
    const found = run(`  mov.u32 %r5, 0;
  setp.ne.u32 %p1, %r1, 0;
  @!%p1 st.volatile.shared.u32 [s], 0;
  bar.sync 0;
  setp.lt.u32 %p1, %r1, 16;
  selp.b32 %r2, 0xffff, 0xffff0000, %p1;
  setp.lt.u32 %p2, %r1, 24;
  @%p2 bra TOGETHER;
WAIT:
  ld.volatile.shared.u32 %r5, [s];
  setp.eq.u32 %p3, %r5, 0;
  @%p3 bra WAIT;
TOGETHER:
  redux.sync.add.u32 %r0, %r1, %r2;
  @%p1 st.volatile.shared.u32 [s], 1;`);
    assert.deepEqual(
      found,
      lanes((lane) => (lane < 16 ? 120 : 376)),
    );
  });

  it('get 0 from a lane that does not take part', () => {
    const found = run(`  mov.u32 %r0, 77;
  add.u32 %r2, %r1, 100;
  setp.lt.u32 %p1, %r1, 20;
  @%p1 shfl.sync.down.b32 %r0, %r2, 8, 31, 0xfffff;`);
    assert.deepEqual(
      found,
      lanes((lane) => (lane >= 20 ? 77 : lane + 8 < 20 ? lane + 108 : 0)),
    );
  });
});

describe('the carry', () => {
  const carry = (text: string): number => run(`  mov.u32 %r2, 5; mov.u32 %r3, 3;\n${text}`)[0] ?? -1;
  it('of a subtraction is NOT borrow, for every instruction that reads it', () => {
    assert.equal(carry('sub.cc.u32 %r4, %r3, %r2; addc.u32 %r0, 4103, 0;'), 4103);
    assert.equal(carry('sub.cc.u32 %r4, %r2, %r3; addc.u32 %r0, 4103, 0;'), 4104);
    assert.equal(carry('sub.cc.u32 %r4, %r3, %r2; subc.u32 %r0, 4103, 0;'), 4102);
    assert.equal(carry('sub.cc.u32 %r4, %r2, %r3; subc.u32 %r0, 4103, 0;'), 4103);
  });
  it('of an addition is read by a subtraction as NOT borrow', () => {
    assert.equal(carry('add.cc.u32 %r4, %r2, %r3; subc.u32 %r0, 4103, 0;'), 4102);
    assert.equal(carry('add.cc.u32 %r4, %r2, 0xfffffffe; subc.u32 %r0, 4103, 0;'), 4103);
    assert.equal(carry('sub.cc.u32 %r4, %r3, %r2; addc.cc.u32 %r4, 4103, 0; subc.u32 %r0, 8199, 0;'), 8198);
  });
});
