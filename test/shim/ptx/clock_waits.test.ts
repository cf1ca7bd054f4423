/** Grids whose blocks wait until a time. On a GPU all blocks that it holds wait at once; no more of them do. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { runPtx, u64 } from './machine.js';

const WAIT_NS = 1_000_000;

/** Thread 0 of each block waits by a clock, then the block tells when it began and ended, and how many threads saw it. */
function wait(begin: string, now: string, cluster: string): string {
  return `.version 8.4\n.target sm_90\n.address_size 64
.entry k(.param .u64 out) ${cluster}
{
.reg .b64 %rd<9>; .reg .b32 %r<8>; .reg .pred %p<4>;
.shared .u32 threads;
ld.param.u64 %rd1, [out];
mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; setp.ne.u32 %p1, %r1, 0;
mul.wide.u32 %rd2, %r2, 24; add.u64 %rd1, %rd1, %rd2;
@%p1 bra behind;
st.shared.u32 [threads], 0;
mov.u64 %rd3, %globaltimer; st.global.u64 [%rd1], %rd3;
${begin}
again:
${now}
setp.lt.u64 %p2, %rd5, ${WAIT_NS}; @%p2 bra again;
behind:
bar.sync 0;
red.shared.add.u32 [threads], 1;
bar.sync 0;
@%p1 bra done;
mov.u64 %rd6, %globaltimer; st.global.u64 [%rd1+8], %rd6;
ld.shared.u32 %rd7, [threads]; st.global.u64 [%rd1+16], %rd7;
done:
ret;
}
`;
}

const CLOCKS: readonly [name: string, begin: string, now: string][] = [
  ['clock64', 'mov.u64 %rd4, %clock64;', 'mov.u64 %rd5, %clock64; sub.u64 %rd5, %rd5, %rd4;'],
  ['globaltimer', 'mov.u64 %rd4, %globaltimer;', 'mov.u64 %rd5, %globaltimer; sub.u64 %rd5, %rd5, %rd4;'],
  ['clock', 'mov.u32 %r3, %clock;', 'mov.u32 %r4, %clock; sub.u32 %r4, %r4, %r3; cvt.u64.u32 %rd5, %r4;'],
];

/** The most intervals that have a moment in common. */
function mostAtOnce(begins: readonly number[], ends: readonly number[]): number {
  const changes = [...begins.map((at) => ({ at, by: 1 })), ...ends.map((at) => ({ at, by: -1 }))];
  changes.sort((a, b) => a.at - b.at || a.by - b.by);
  let now = 0;
  let most = 0;
  for (const { by } of changes) {
    now += by;
    most = Math.max(most, now);
  }
  return most;
}

describe('a grid whose blocks wait until a time', () => {
  for (const [name, begin, now] of CLOCKS) {
    for (const [helpers, blocks, threads, cluster, held] of [
      [0, 2000, 33, '', 132 * 32],
      [1, 2000, 33, '', 132 * 32],
      [1, 1000, 1024, '', 132 * 2],
      [1, 400, 64, '.explicitcluster .reqnctapercluster 4, 1, 1', 132 * 32],
    ] as const) {
      const where = `${blocks} blocks of ${threads}, ${helpers + 1} threads`;
      it(`by ${name} waits with many of them at once: ${where}${cluster === '' ? '' : ', in clusters'}`, () => {
        const { launches, buffers } = runPtx({
          ptx: { text: wait(begin, now, cluster) },
          before: [`helpers ${helpers}`],
          buffers: [blocks * 24],
          launches: [{ kernel: 'k', grid: [blocks], block: [threads], args: ['b1'] }],
        });
        assert.match(launches[0] ?? '', /^ok/);
        const told = [...u64(buffers[0] ?? Buffer.alloc(0))].map(Number);
        const column = (which: number): readonly number[] => told.filter((_, i) => i % 3 === which);
        const begins = column(0);
        const ends = column(1);
        assert.ok(column(2).every((seen) => seen === threads));
        const waits = begins.map((at, i) => (ends[i] ?? 0) - at);
        assert.ok(waits.every((time) => time >= WAIT_NS));
        const span = Math.max(...ends) - Math.min(...begins);
        /* one after the other it would be at most the number of threads */
        const atOnce = waits.reduce((sum, time) => sum + time, 0) / span;
        assert.ok(atOnce > 8 * (helpers + 1), `${atOnce} at once`);
        assert.ok(mostAtOnce(begins, ends) <= held);
      });
    }
  }
});
