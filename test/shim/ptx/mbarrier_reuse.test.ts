/**
 * A thread whose wait at an mbarrier is over may make the next one in the same memory, or end it. The other threads that
 * wait see that the phase is over: on a GPU they wake together, and programs rely on it.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { runPtx, u32 } from './machine.js';

const WARPS = 8;
const THREADS = WARPS * 32;

/** How a thread arrives, %r3 times, and waits. */
const BY_STATE = (label: string): string => `
mbarrier.arrive.shared::cta.b64 %rd2, [%r0], %r3;
${label}: mbarrier.try_wait.shared::cta.b64 %p1, [%r0], %rd2;
@!%p1 bra ${label};`;
const BY_PARITY = (label: string): string => `
mbarrier.arrive.shared::cta.b64 %rd2, [%r0], %r3;
${label}: mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r0], 0;
@!%p1 bra ${label};`;
/** Odd and even lanes wait in loops of their own. */
const APART = (label: string): string => `
and.b32 %r4, %r1, 1;
setp.ne.u32 %p2, %r4, 0;
@%p2 bra ${label}_odd;
${BY_STATE(`${label}_even_loop`)}
bra ${label}_end;
${label}_odd:
${BY_STATE(`${label}_odd_loop`)}
${label}_end:`;

/** A thread of the last warp arrives, ends the mbarrier at once and does not wait. The others do. */
const ENDED = `.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out)
{
.reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<9>;
.shared .align 8 .b64 barrier;
ld.param.u64 %rd1, [out];
mov.u32 %r0, barrier;
mov.u32 %r1, %tid.x;
setp.eq.u32 %p3, %r1, ${THREADS - 1};
@%p3 mbarrier.init.shared::cta.b64 [%r0], ${THREADS};
bar.sync 0;
mov.u32 %r3, 1;
@!%p3 bra wait;
mbarrier.arrive.shared::cta.b64 _, [%r0];
mbarrier.inval.shared::cta.b64 [%r0];
bra end;
wait:
${BY_PARITY('loop')}
end:
mul.wide.u32 %rd3, %r1, 4;
add.u64 %rd1, %rd1, %rd3;
add.u32 %r6, %r1, 1;
st.global.u32 [%rd1], %r6;
ret;
}
`;

function run(ptx: string): void {
  const { refused, launches, buffers } = runPtx({
    ptx: { text: ptx },
    buffers: [THREADS * 4],
    before: ['limit 20000'],
    launches: [{ kernel: 'k', block: [THREADS], args: ['b1'] }],
  });
  assert.deepEqual(refused, []);
  assert.match(launches[0] ?? '', /^ok/);
  assert.deepEqual(
    [...u32(buffers[0] ?? Buffer.alloc(0))],
    Array.from({ length: THREADS }, (_, i) => i + 1),
  );
}

/** Thread 0 makes a new mbarrier as soon as its wait at the one before is over. The warp `late` arrives last. */
const text = (meet: (label: string) => string, late: number): string => `.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out)
{
.reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<9>;
.shared .align 8 .b64 barrier;
ld.param.u64 %rd1, [out];
mov.u32 %r0, barrier;
mov.u32 %r1, %tid.x;
setp.eq.u32 %p3, %r1, 0;
mov.u32 %r3, 1;
@%p3 mbarrier.init.shared::cta.b64 [%r0], ${THREADS};
bar.sync 0;
shr.u32 %r2, %r1, 5;
setp.ne.u32 %p4, %r2, ${late};
@%p4 bra meet;
mov.u32 %r5, 0;
slow: nanosleep.u32 100;
add.u32 %r5, %r5, 1;
setp.lt.u32 %p4, %r5, 64;
@%p4 bra slow;
meet:
${meet('first')}
@%p3 mbarrier.init.shared::cta.b64 [%r0], ${2 * THREADS};
bar.sync 0;
mov.u32 %r3, 2;
${meet('second')}
mul.wide.u32 %rd3, %r1, 4;
add.u64 %rd1, %rd1, %rd3;
add.u32 %r6, %r1, 1;
st.global.u32 [%rd1], %r6;
ret;
}
`;

describe('an mbarrier in the memory of one that is over', () => {
  const ways = [
    ['which threads recognise by its state', BY_STATE],
    ['which threads recognise by its parity', BY_PARITY],
    ['in two loops of a warp', APART],
  ] as const;
  for (const [name, meet] of ways) {
    for (const late of [0, 3, WARPS - 1]) {
      it(`lets all threads end the wait, ${name}, where warp ${late} arrives last`, () => {
        run(text(meet, late));
      });
    }
  }
});

describe('an mbarrier that a thread ends with inval', () => {
  it('still tells the threads that wait that its last phase is over', () => {
    run(ENDED);
  });
});
