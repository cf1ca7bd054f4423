/** Checks of the blocks of a cluster, which write to each other's shared memory. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type Job, runPtx, u32 } from './machine.js';

/** Two blocks. %r0 is shared memory, %r1 = %tid.x, %r2 the block, %r3 the other block's same memory. */
const kernel = (body: string): string => `.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 in)
{
  .shared .align 128 .b8 memory[1024];
  .reg .b32 %r<20>; .reg .b64 %rd<8>; .reg .b16 %h<4>; .reg .pred %p<8>;
  ld.param.u64 %rd0, [out];
  ld.param.u64 %rd1, [in];
  mov.u32 %r0, memory;
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %cluster_ctarank;
  xor.b32 %r4, %r2, 1;
  mapa.shared::cluster.u32 %r3, %r0, %r4;
  setp.ne.u32 %p0, %r1, 0;
  setp.ne.u32 %p1, %r2, 0;
  or.pred %p2, %p0, %p1;
${body}
  ret;
}
`;
const BARRIER = '  barrier.cluster.arrive.release.aligned;\n  barrier.cluster.wait.acquire.aligned;\n';
/** An mbarrier at %r0 that expects `arrivals`, and `bytes` from the other block. */
const mbarrier = (bytes: number, arrivals = 1): string => `
  @!%p0 mbarrier.init.shared::cta.b64 [%r0], ${arrivals};
  @!%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r0], ${bytes};
${BARRIER}`;
const wait = (label: string): string => `
${label}:
  mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p7, [%r0], 0;
  @!%p7 bra ${label};
`;
/** Each thread gives the word at `offset` of its block's shared memory. */
const give = (offset: number): string => `
  mad.lo.u32 %r5, %r1, 4, %r0;
  ld.shared.u32 %r6, [%r5+${offset}];
  mad.lo.u32 %r7, %r2, %ntid.x, %r1;
  mad.wide.u32 %rd2, %r7, 4, %rd0;
  st.global.u32 [%rd2], %r6;
${BARRIER}`;

function run(body: string, block = 32): { findings: readonly string[]; words: Uint32Array } {
  const job: Job = {
    ptx: { text: kernel(body) },
    buffers: [2 * block * 4, Buffer.from(Uint32Array.from({ length: 64 }, (_, i) => 3 * i + 1).buffer)],
    before: ['limit 20000', 'check race,init', 'cluster 2 1 1'],
    launches: [{ kernel: 'k', grid: [2], block: [block], args: ['b1', 'b2'] }],
  };
  const outcome = runPtx(job);
  assert.match(outcome.load, /^ok/);
  for (const launch of outcome.launches) assert.match(launch, /^ok/);
  return { findings: outcome.findings, words: u32(outcome.buffers[0] ?? Buffer.alloc(0)) };
}
const clean = (body: string, expected: readonly number[], block = 32): void => {
  const { findings, words } = run(body, block);
  assert.deepEqual(findings, []);
  assert.deepEqual([...words], expected);
};
const each = (of: (block: number, thread: number) => number): number[] =>
  Array.from({ length: 64 }, (_, i) => of(i >> 5, i & 31));

describe('checks in a cluster', () => {
  it('take what a bulk copy to several blocks has written as written', () => {
    clean(
      `${mbarrier(128)}
  mov.b16 %h1, 3;
  @!%p2 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r0+128], [%rd1], 128, [%r0], %h1;
${wait('go')}${give(128)}`,
      each((_, thread) => 3 * thread + 1),
    );
  });

  it("take what a block has stored in the other's memory as written", () => {
    const store = '  mad.lo.u32 %r8, %r1, 4, %r3;\n  mad.lo.u32 %r9, %r2, 100, %r1;\n';
    const expected = each((block, thread) => (1 - block) * 100 + thread);
    clean(`${BARRIER}${store}  st.shared::cluster.u32 [%r8+128], %r9;\n${BARRIER}${give(128)}`, expected);
    clean(
      `${mbarrier(128)}${store}
  st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r8+128], %r9, [%r3];
${wait('go')}${give(128)}`,
      expected,
    );
  });

  it('still find what no block has written', () => {
    const { findings } = run(
      `${mbarrier(64)}
  mov.b16 %h1, 3;
  @!%p2 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r0+128], [%rd1], 64, [%r0], %h1;
${wait('go')}${give(128)}`,
    );
    assert.match(findings[0] ?? '', /^init k ld\.shared\.u32 .* thread 16,0,0 bytes 4 address 0xc0$/);
    assert.deepEqual(findings.slice(1), ['rest 31']); // 16 words in each of two blocks
  });

  /** The first warp of block 0 writes, and its other warp reads after a turn through block 1, or without it. */
  const turn = (through: boolean): string => `
  @!%p0 mbarrier.init.shared::cta.b64 [%r0], 1;
${BARRIER}
  setp.lt.u32 %p3, %r1, 32;
  @%p1 bra second;
  mad.lo.u32 %r8, %r1, 4, %r0;
  mov.u32 %r9, 7;
  @!%p3 bra reads;
  st.shared.u32 [%r8+256], %r9;
  bar.warp.sync 0xffffffff;
  @!%p0 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r3];
  bra end;
reads:
  ${through ? wait('go') : ''}
  ld.shared.u32 %r6, [%r8+128];
  mad.wide.u32 %rd2, %r1, 4, %rd0;
  st.global.u32 [%rd2+-128], %r6;
  bra end;
second:
  @!%p3 bra end;
  ${wait('there')}
  @!%p0 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r3];
end:
${BARRIER}`;
  it('follow an order that goes through the other block', () => {
    const { findings, words } = run(turn(true), 64);
    assert.deepEqual(findings, []);
    assert.deepEqual([...words.subarray(0, 32)], Array<number>(32).fill(7));
  });

  it('find the race where that order is missing', () => {
    assert.match(run(turn(false), 64).findings.join('\n'), /^race k ld\.shared\.u32 /m);
  });
});
