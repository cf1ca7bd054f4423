/** Programs of one warp whose first lane works with bulk copies and mbarriers. */
import assert from 'node:assert/strict';
import { runPtx } from './machine.js';

export function at<T>(list: ArrayLike<T>, index: number): T {
  const value = list[index];
  assert.ok(value !== undefined, `no element ${index} of ${list.length}`);
  return value;
}

export const HEAD = `.version 8.6
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 memory[];
`;
export const REGISTERS =
  '.reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .b16 %h<4>; .reg .f32 %f<4>; .reg .pred %p<4>;';

/** One warp: `body` runs in lane 0 with %rd0 as the address of b1, %rd1 of b2, %r0 of shared memory. */
export function one(
  body: string,
  buffers: readonly (Buffer | number)[],
  shared = 8192,
  device: 90 | 100 = 90,
): readonly Buffer[] {
  const text = `${HEAD.replace('sm_90a', `sm_${device}a`)}
.visible .entry k(.param .u64 a, .param .u64 b)
{
  ${REGISTERS}
  ld.param.u64 %rd0, [a];
  ld.param.u64 %rd1, [b];
  mov.u32 %r0, memory;
  mov.u32 %r1, %tid.x;
  setp.ne.u32 %p0, %r1, 0;
  @%p0 bra end;
${body}
end:
  ret;
}
`;
  const outcome = runPtx({
    ptx: { text },
    device,
    buffers,
    before: ['limit 20000'],
    launches: [{ kernel: 'k', block: [32], shared, args: ['b1', 'b2'] }],
  });
  assert.match(outcome.load, /^ok /);
  const [said = ''] = outcome.launches;
  if (!said.startsWith('ok ')) throw new Error(said);
  return outcome.buffers;
}

/** Ends when the phase with this parity of the barrier at [%r0] is over. */
export const wait = (parity: number, label: string): string => `
${label}:
  mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r0], ${parity};
  @!%p1 bra ${label};
`;
