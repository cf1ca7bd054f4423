/** Cooperative grids as large as a device takes: all blocks are there at once, with all their registers. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { runPtx, u32 } from './machine.js';

/** Registers that every thread keeps over the barrier: 33 KiB for a warp. */
const KEPT = 264;
const THREADS = 1024;

/** Each thread fills its registers, waits until all blocks are there, and adds the registers up. */
function text(): string {
  const all = Array.from({ length: KEPT }, (_, i) => i);
  return `.version 7.0
.target sm_70
.address_size 64
.entry k(.param .u64 out, .param .u64 count, .param .u32 blocks)
{
.reg .b32 %v<${KEPT}>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<3>;
ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [count]; ld.param.u32 %r1, [blocks];
mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
mad.lo.u32 %r5, %r2, %r3, %r4;
${all.map((i) => `mad.lo.u32 %v${i}, %r5, ${i + 1}, ${i * i};`).join('\n')}
bar.sync 0;
setp.ne.u32 %p1, %r4, 0;
@%p1 bra behind;
atom.global.add.u32 %r6, [%rd2], 1;
again: ld.volatile.global.u32 %r6, [%rd2];
setp.lt.u32 %p2, %r6, %r1;
@%p2 bra again;
behind: bar.sync 0;
mov.u32 %r7, 0;
${all.map((i) => `mad.lo.u32 %r7, %v${i}, ${2 * i + 1}, %r7;`).join('\n')}
mul.wide.u32 %rd3, %r5, 4;
add.u64 %rd1, %rd1, %rd3;
st.global.u32 [%rd1], %r7;
ret;
}
`;
}

describe('a cooperative grid', () => {
  for (const blocks of [3, 264]) {
    const mebibytes = Math.round((blocks * (THREADS / 32) * KEPT * 128) / 2 ** 20);
    it(`of ${blocks} blocks keeps ${mebibytes} MiB of registers over a barrier of all blocks`, () => {
      const { refused, launches, buffers } = runPtx({
        ptx: { text: text() },
        buffers: [blocks * THREADS * 4, 4],
        before: ['cooperative 1'],
        launches: [{ kernel: 'k', grid: [blocks], block: [THREADS], args: ['b1', 'b2', `u32:${blocks}`] }],
      });
      assert.deepEqual(refused, []);
      assert.match(launches[0] ?? '', /^ok/);
      const out = u32(buffers[0] ?? Buffer.alloc(0));
      let factor = 0;
      let rest = 0;
      for (let i = 0; i < KEPT; i++) {
        factor += (i + 1) * (2 * i + 1);
        rest += i * i * (2 * i + 1);
      }
      for (let thread = 0; thread < blocks * THREADS; thread += 37)
        assert.equal(out[thread], (Math.imul(thread, factor | 0) + (rest | 0)) >>> 0, `thread ${thread}`);
    });
  }
});
