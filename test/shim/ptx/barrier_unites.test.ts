/** Barriers at which lanes come apart, and those that a block leaves behind. */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import { runPtx, u32 } from './machine.js';

const text = `.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{
  .shared .align 4 .b32 flag;
  .reg .pred %p<4>; .reg .b32 %r<12>; .reg .b64 %rd<4>; .reg .f32 %f<8>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %tid.x;
  st.volatile.shared.u32 [flag], 0;
  bar.sync 0;
  setp.ge.u32 %p1, %r1, 32;
  @%p1 bra slow;
  setp.ne.u32 %p2, %r1, 0;
  @%p2 bra come;
poll:
  ld.volatile.shared.u32 %r2, [flag];
  setp.eq.u32 %p3, %r2, 0;
  @%p3 bra poll;
come:
  bar.sync 1, 32;
  mov.u32 %r3, 0;
  cvt.rn.f32.u32 %f1, %r1;
  mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f2, %f3, %f4, %f5}, {%r3, %r3}, {%r3}, {%f1, %f1, %f1, %f1};
  cvt.rni.u32.f32 %r4, %f2;
  mul.wide.u32 %rd2, %r1, 4;
  add.u64 %rd2, %rd1, %rd2;
  st.global.u32 [%rd2], %r4;
  exit;
slow:
  mov.u32 %r5, 0;
again:
  add.u32 %r5, %r5, 1;
  ld.volatile.shared.u32 %r6, [flag];
  setp.lt.u32 %p3, %r5, 300000;
  @%p3 bra again;
  st.volatile.shared.u32 [flag], 1;
  exit;
}
`;

it('a whole warp goes on after a barrier before which one lane polled for long', () => {
  const outcome = runPtx({
    ptx: { text },
    buffers: [128],
    launches: [{ kernel: 'k', block: [64], args: ['b1'] }],
  });
  assert.match(outcome.load, /^ok/);
  assert.match(outcome.launches[0] ?? '', /^ok/);
  assert.deepEqual(
    [...u32(outcome.buffers[0] ?? Buffer.alloc(0))],
    Array.from({ length: 32 }, (_, lane) => lane),
  );
});

it('a block does not count the threads that came to a barrier of the block before', () => {
  const outcome = runPtx({
    ptx: {
      text: `.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{
  .shared .align 4 .b32 flag;
  .reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ctaid.x;
  setp.lt.u32 %p1, %r1, 32;
  setp.eq.u32 %p2, %r2, 0;
  @%p2 bra first;
  @%p1 bra waits;
  mov.u32 %r3, 7;
  st.shared.u32 [flag], %r3;
  bar.arrive 1, 64;
  exit;
first:
  @%p1 bar.arrive 1, 64;
  exit;
waits:
  bar.sync 1, 64;
  ld.shared.u32 %r4, [flag];
  mul.wide.u32 %rd2, %r1, 4;
  add.u64 %rd2, %rd1, %rd2;
  st.global.u32 [%rd2], %r4;
  exit;
}
`,
    },
    buffers: [128],
    launches: [{ kernel: 'k', grid: [2], block: [64], args: ['b1'] }],
  });
  assert.match(outcome.launches[0] ?? '', /^ok/);
  assert.deepEqual([...u32(outcome.buffers[0] ?? Buffer.alloc(0))], new Array<number>(32).fill(7));
});
