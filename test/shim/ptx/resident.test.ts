/** Grids whose blocks wait for blocks behind them, without a cooperative launch. A GPU that holds the whole grid runs them. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { runPtx, u32 } from './machine.js';

/** Each block counts itself, waits until all blocks have, and tells how many it has seen. */
function barrier(wait: string, cluster: string): string {
  return `.version 8.4\n.target sm_90\n.address_size 64
.entry k(.param .u64 out, .param .u64 counter, .param .u32 blocks) ${cluster}
{
.reg .b64 %rd<5>; .reg .b32 %r<8>; .reg .pred %p<4>;
ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [counter]; ld.param.u32 %r1, [blocks];
mov.u32 %r2, %tid.x; setp.ne.u32 %p1, %r2, 0;
mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mad.lo.u32 %r5, %r3, %r4, %r2;
@%p1 bra behind;
red.release.gpu.global.add.u32 [%rd2], 1;
again:
${wait}
setp.lt.u32 %p2, %r6, %r1; @%p2 bra again;
behind:
bar.sync 0;
ld.volatile.global.u32 %r7, [%rd2];
mul.wide.u32 %rd3, %r5, 4; add.u64 %rd1, %rd1, %rd3; st.global.u32 [%rd1], %r7;
ret;
}
`;
}

const WAITS: readonly [name: string, text: string][] = [
  ['loads', 'ld.volatile.global.u32 %r6, [%rd2];'],
  ['atomics', 'atom.global.add.u32 %r6, [%rd2], 0;'],
  ['naps', 'nanosleep.u32 100; ld.relaxed.gpu.global.u32 %r6, [%rd2];'],
];

describe('a grid whose blocks wait for each other', () => {
  for (const [name, wait] of WAITS) {
    for (const [helpers, blocks, cluster] of [
      [0, 5, ''],
      [2, 132, ''],
      [1, 24, '.explicitcluster .reqnctapercluster 2, 1, 1'],
    ] as const) {
      it(`by ${name} ends: ${blocks} blocks, ${helpers + 1} threads${cluster === '' ? '' : ', in clusters'}`, () => {
        const { launches, buffers } = runPtx({
          ptx: { text: barrier(wait, cluster) },
          before: [`helpers ${helpers}`],
          buffers: [blocks * 64 * 4, 4],
          launches: [{ kernel: 'k', grid: [blocks], block: [64], args: ['b1', 'b2', `u32:${blocks}`] }],
        });
        assert.match(launches[0] ?? '', /^ok/);
        const seen = u32(buffers[0] ?? Buffer.alloc(0));
        assert.equal(seen.length, blocks * 64);
        assert.ok(seen.every((count) => count === blocks));
      });
    }
  }
});
