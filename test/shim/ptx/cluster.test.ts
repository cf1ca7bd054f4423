/** Clusters of blocks: their registers, each other's shared memory, their barrier. */
import assert from 'node:assert/strict';
import path from 'node:path';
import { describe, it } from 'node:test';
import { ROOT } from '../cuda/private_programs.js';
import { bytes, i32, random, runPtx, u32 } from './machine.js';

function at<T>(list: ArrayLike<T>, index: number): T {
  const value = list[index];
  assert.ok(value !== undefined, `no element ${index} of ${list.length}`);
  return value;
}

interface Run {
  readonly grid: readonly number[];
  readonly cluster?: readonly number[];
  readonly block?: number;
  readonly words: number;
  readonly input?: Buffer;
  readonly before?: readonly string[];
  readonly directives?: string;
}

/** `body` has %rd0 as the address of b1 (the result), %rd1 of b2, %r0 of shared memory, %r1 as %tid.x. */
function launch(body: string, how: Run): { said: string; words: Uint32Array } {
  const text = `.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b) ${how.directives ?? ''}
{
  .shared .align 128 .b8 memory[1024];
  .reg .b32 %r<40>; .reg .b64 %rd<20>; .reg .b16 %h<4>; .reg .pred %p<8>;
  ld.param.u64 %rd0, [a];
  ld.param.u64 %rd1, [b];
  mov.u32 %r0, memory;
  mov.u32 %r1, %tid.x;
${body}
  ret;
}
`;
  const cluster = how.cluster === undefined ? [] : [`cluster ${how.cluster.join(' ')}`];
  const outcome = runPtx({
    ptx: { text },
    buffers: [how.words * 4, how.input ?? 16],
    before: ['limit 20000', ...cluster, ...(how.before ?? [])],
    launches: [{ kernel: 'k', grid: how.grid, block: [how.block ?? 32], args: ['b1', 'b2'] }],
  });
  assert.match(outcome.load, /^ok /);
  return { said: at(outcome.launches, 0), words: u32(at(outcome.buffers, 0)) };
}
function run(body: string, how: Run): number[] {
  const { said, words } = launch(body, how);
  assert.match(said, /^ok /);
  return [...words];
}

const BARRIER = '  barrier.cluster.arrive.release.aligned;\n  barrier.cluster.wait.acquire.aligned;\n';
/** %r2 is the number of the thread in a grid of one dimension, %rd2 where its word of the result lies. */
const PLACE = `  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mad.lo.u32 %r2, %r2, %r3, %r1;
  mad.wide.u32 %rd2, %r2, 4, %rd0;
`;

describe('clusters', () => {
  it('have their special registers', () => {
    const names = ['clusterid', 'nclusterid', 'cluster_ctaid', 'cluster_nctaid'].flatMap((name) =>
      ['x', 'y', 'z'].map((d) => `%${name}.${d}`),
    );
    names.push('%cluster_ctarank', '%cluster_nctarank');
    const body = `
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ctaid.y;
  mad.lo.u32 %r2, %r3, 4, %r2;
  mov.u32 %r3, %ctaid.z;
  mad.lo.u32 %r2, %r3, 16, %r2;
  mad.wide.u32 %rd2, %r2, ${names.length * 4 + 4}, %rd0;
${names.map((name, i) => `  mov.u32 %r4, ${name};\n  st.global.u32 [%rd2+${i * 4}], %r4;`).join('\n')}
  mov.pred %p1, %is_explicit_cluster;
  selp.u32 %r4, 1, 0, %p1;
  st.global.u32 [%rd2+${names.length * 4}], %r4;`;
    const [gx, gy, gz] = [4, 4, 2];
    const [cx, cy, cz] = [2, 4, 1];
    const per = names.length + 1;
    const words = run(body, {
      grid: [gx, gy, gz],
      cluster: [cx, cy, cz],
      block: 1,
      words: gx * gy * gz * per,
    });
    for (let z = 0; z < gz; z++) {
      for (let y = 0; y < gy; y++) {
        for (let x = 0; x < gx; x++) {
          const [ix, iy, iz] = [x % cx, y % cy, z % cz];
          const start = ((z * gy + y) * gx + x) * per;
          assert.deepEqual(words.slice(start, start + per), [
            ...[(x - ix) / cx, (y - iy) / cy, (z - iz) / cz],
            ...[gx / cx, gy / cy, gz / cz],
            ...[ix, iy, iz],
            ...[cx, cy, cz],
            ix + cx * (iy + cy * iz),
            cx * cy * cz,
            1,
          ]);
        }
      }
    }
  });

  // Every thread writes its number to its block's memory and reads that of the next block.
  const shift = (load: string): string => `${PLACE}
  shl.b32 %r4, %r1, 2;
  add.u32 %r4, %r0, %r4;
  st.shared::cta.u32 [%r4], %r2;
${BARRIER}
  mov.u32 %r5, %cluster_ctarank;
  mov.u32 %r6, %cluster_nctarank;
  add.u32 %r5, %r5, 1;
  rem.u32 %r5, %r5, %r6;
${load}
  st.global.u32 [%rd2], %r7;
${BARRIER}`;
  const shifted = Array.from({ length: 8 * 64 }, (_, i) => {
    const block = Math.floor(i / 64);
    return (block - (block % 4) + ((block + 1) % 4)) * 64 + (i % 64);
  });
  const how: Run = { grid: [8], cluster: [4, 1, 1], block: 64, words: 8 * 64 };

  it("read each other's shared memory", () => {
    const load = '  mapa.shared::cluster.u32 %r8, %r4, %r5;\n  ld.shared::cluster.u32 %r7, [%r8];';
    assert.deepEqual(run(shift(load), how), shifted);
  });

  it('read it by generic addresses, too', () => {
    const load = `  cvt.u64.u32 %rd3, %r4;
  cvta.shared.u64 %rd3, %rd3;
  mapa.u64 %rd4, %rd3, %r5;
  ld.u32 %r7, [%rd4];`;
    assert.deepEqual(run(shift(load), how), shifted);
  });

  it('run as the kernel requires, and several at a time', () => {
    const load = '  mapa.shared::cluster.u32 %r8, %r4, %r5;\n  ld.shared::cluster.u32 %r7, [%r8];';
    const { cluster: _, ...plain } = how;
    for (const before of [['helpers 1'], ['helpers 1', 'cooperative 1'], ['check race,init']]) {
      const directives = '.reqnctapercluster 4, 1, 1';
      assert.deepEqual(run(shift(load), { ...plain, directives, before }), shifted);
    }
  });

  it("write to, and count in, each other's shared memory", () => {
    const words = run(
      `${PLACE}
  st.shared.u32 [%r0], 0;
  st.shared.u32 [%r0+4], 0;
${BARRIER}
  mov.u32 %r5, %cluster_ctarank;
  xor.b32 %r5, %r5, 1;
  mapa.shared::cluster.u32 %r6, %r0, %r5;
  atom.shared::cluster.add.u32 %r7, [%r6], 3;
  red.shared::cluster.max.u32 [%r6+4], %r2;
  st.shared::cluster.u32 [%r6+8], %r5;
${BARRIER}
  ld.shared.u32 %r7, [%r0];
  ld.shared.u32 %r8, [%r0+4];
  ld.shared.u32 %r9, [%r0+8];
  mov.u32 %r10, %ctaid.x;
  mad.wide.u32 %rd3, %r10, 12, %rd0;
  st.global.u32 [%rd3], %r7;
  st.global.u32 [%rd3+4], %r8;
  st.global.u32 [%rd3+8], %r9;`,
      { grid: [4], cluster: [2, 1, 1], words: 12 },
    );
    assert.deepEqual(words, [96, 63, 0, 96, 31, 1, 96, 127, 0, 96, 95, 1]);
  });

  it('tell whose shared memory an address is of', () => {
    const words = run(
      `  mov.u32 %r2, %ctaid.x;
  mad.wide.u32 %rd2, %r2, 16, %rd0;
  mapa.shared::cluster.u32 %r3, %r0, 1;
  getctarank.shared::cluster.u32 %r4, %r3;
  getctarank.shared::cluster.u32 %r5, %r0;
  cvt.u64.u32 %rd3, %r3;
  cvta.shared::cluster.u64 %rd3, %rd3;
  isspacep.shared::cta %p1, %rd3;
  isspacep.shared::cluster %p2, %rd3;
  selp.u32 %r6, 1, 0, %p1;
  selp.u32 %r7, 1, 0, %p2;
  st.global.v4.u32 [%rd2], {%r4, %r5, %r6, %r7};`,
      { grid: [2], cluster: [2, 1, 1], block: 1, words: 8 },
    );
    assert.deepEqual(words, [1, 0, 0, 1, 1, 1, 1, 1]);
  });

  const waits = (label: string): string => `
${label}:
  mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [%r0], 0;
  @!%p1 bra ${label};
`;

  it('send words to another block, whose mbarrier counts their bytes', () => {
    const words = run(
      `  mov.u32 %r2, %cluster_ctarank;
  setp.ne.u32 %p3, %r1, 0;
  @!%p3 mbarrier.init.shared::cta.b64 [%r0], 1;
  @!%p3 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r0], ${32 * 4 + 32 * 8 + 32 * 4};
  shl.b32 %r3, %r1, 2;
  add.u32 %r3, %r0, %r3;
  shl.b32 %r4, %r1, 3;
  add.u32 %r4, %r0, %r4;
  st.shared.u32 [%r0+8], 0;
${BARRIER}
  xor.b32 %r5, %r2, 1;
  mapa.shared::cluster.u32 %r6, %r0, %r5;
  mapa.shared::cluster.u32 %r7, %r3, %r5;
  mapa.shared::cluster.u32 %r8, %r4, %r5;
  mad.lo.u32 %r9, %r2, 1000, %r1;
  st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r7+128], %r9, [%r6];
  st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%r8+256], {%r9, %r1}, [%r6];
  red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r6+8], %r1, [%r6];
${waits('go')}
  mad.lo.u32 %r10, %r2, 32, %r1;
  mad.wide.u32 %rd2, %r10, 16, %rd0;
  ld.shared.u32 %r11, [%r3+128];
  ld.shared.v2.u32 {%r12, %r13}, [%r4+256];
  ld.shared.u32 %r14, [%r0+8];
  st.global.v4.u32 [%rd2], {%r11, %r12, %r13, %r14};
${BARRIER}`,
      { grid: [2], cluster: [2, 1, 1], words: 256 },
    );
    const expected = Array.from({ length: 64 }, (_, i) => {
      const from = (i < 32 ? 1000 : 0) + (i % 32);
      return [from, from, i % 32, 496];
    }).flat();
    assert.deepEqual(words, expected);
  });

  it('copy to several blocks at once, and arrive at their barriers', () => {
    const words = run(
      `${PLACE}
  setp.ne.u32 %p3, %r1, 0;
  mov.u32 %r5, %cluster_ctarank;
  setp.ne.u32 %p4, %r5, 0;
  or.pred %p5, %p3, %p4;
  @!%p3 mbarrier.init.shared::cta.b64 [%r0], 2;
  @!%p3 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r0], 128;
${BARRIER}
  mov.b16 %h1, 0xb;
  @!%p5 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r0+128], [%rd1], 128, [%r0], %h1;
  mapa.shared::cluster.u32 %r6, %r0, %r1;
  setp.lt.u32 %p6, %r1, 4;
  not.pred %p4, %p4;
  and.pred %p6, %p6, %p4;
  @%p6 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r6];
  setp.eq.u32 %p7, %r5, 2;
  @%p7 bra last;
${waits('go')}
last:
  shl.b32 %r7, %r1, 2;
  add.u32 %r7, %r0, %r7;
  ld.shared.u32 %r8, [%r7+128];
  st.global.u32 [%rd2], %r8;
${BARRIER}`,
      {
        grid: [4],
        cluster: [4, 1, 1],
        words: 128,
        input: Buffer.from(Uint32Array.from({ length: 32 }, (_, i) => i * 5 + 1).buffer),
      },
    );
    assert.deepEqual(
      words,
      Array.from({ length: 128 }, (_, i) => (i >= 64 && i < 96 ? 0 : (i % 32) * 5 + 1)),
    );
  });

  it('go on between arriving at their barrier and waiting for it', () => {
    // Thread 0 arrives, then waits for what thread 32 says after it has waited.
    for (const cluster of [
      [1, 1, 1],
      [2, 1, 1],
    ]) {
      const words = run(
        `${PLACE}
  st.shared.u32 [%r0], 0;
  bar.sync 0;
  barrier.cluster.arrive.relaxed;
  setp.ge.u32 %p1, %r1, 32;
  @%p1 bra other;
spin:
  ld.volatile.shared.u32 %r4, [%r0];
  setp.eq.u32 %p2, %r4, 0;
  @%p2 bra spin;
  barrier.cluster.wait;
  st.global.u32 [%rd2], %r4;
  bra end;
other:
  barrier.cluster.wait;
  st.volatile.shared.u32 [%r0], 7;
  st.global.u32 [%rd2], 8;
end:`,
        { grid: [2], cluster, block: 64, words: 128 },
      );
      assert.deepEqual(
        words,
        Array.from({ length: 128 }, (_, i) => (i % 64 < 32 ? 7 : 8)),
      );
    }
  });

  it('do not wait for threads that have ended, before or after they came', () => {
    const words = run(
      `${PLACE}
  setp.lt.u32 %p1, %r1, 7;
  @%p1 exit;
  setp.lt.u32 %p1, %r1, 9;
  @%p1 barrier.cluster.arrive;
  @%p1 exit;
  barrier.cluster.arrive;
  barrier.cluster.wait;
  barrier.cluster.arrive;
  barrier.cluster.wait;
  st.global.u32 [%rd2], 1;`,
      { grid: [2], cluster: [2, 1, 1], words: 64 },
    );
    assert.deepEqual(
      words,
      Array.from({ length: 64 }, (_, i) => (i % 32 < 9 ? 0 : 1)),
    );
  });

  it('end at once when no other thread can reach their barrier', () => {
    const { said } = launch(
      `  mov.u32 %r2, %cluster_ctarank;
  setp.eq.u32 %p1, %r2, 0;
  @%p1 bra other;
${BARRIER}
  ret;
other:
  bar.sync 1, 64;`,
      { grid: [2], cluster: [2, 1, 1], words: 1 },
    );
    assert.match(said, /^error timeout: .*barriers that can never open/);
  });

  it('fault beyond their last block', () => {
    const { said } = launch('  mapa.shared::cluster.u32 %r3, %r0, 2;\n  ld.shared::cluster.u32 %r4, [%r3];', {
      grid: [2],
      cluster: [2, 1, 1],
      words: 1,
    });
    assert.match(said, /^error illegal address: /);
  });

  for (const [what, how_, said] of [
    [
      'a grid that they do not divide',
      { grid: [3], cluster: [2, 1, 1] },
      /^error bad launch: .*in clusters of 2/,
    ],
    ['more blocks than there may be', { grid: [32], cluster: [8, 4, 1] }, /^error bad launch: /],
    [
      'another size than the kernel requires',
      { grid: [8], cluster: [4, 1, 1], directives: '.reqnctapercluster 2, 1, 1' },
      /^error bad launch: .*the kernel requires 2/,
    ],
  ] as const) {
    it(`refuse ${what}`, () => {
      assert.match(launch('', { ...how_, words: 1 }).said, said);
    });
  }
});

describe("code of NVIDIA's compiler for clusters and bulk copies in CUDA C++", () => {
  function hopper(
    launch: Parameters<typeof runPtx>[0]['launches'],
    buffers: readonly (Buffer | number)[],
  ): Buffer {
    const outcome = runPtx({
      ptx: { file: path.join(ROOT, 'test/shim/kernels/ptx/hopper.compute_90.ptx') },
      buffers,
      before: ['helpers 1', 'limit 20000'],
      ...(launch === undefined ? {} : { launches: launch }),
    });
    assert.match(outcome.load, /^ok /);
    assert.match(at(outcome.launches, 0), /^ok /);
    return at(outcome.buffers, 0);
  }

  it("counts in each other's shared memory", () => {
    const next = random(5);
    const list = Int32Array.from({ length: 5000 }, () => next() % 400);
    const counts = new Int32Array(400);
    for (const value of list) counts[value] = at(counts, value) + 1;
    const args = ['b1', 'u32:100', 'b2', 'u32:5000'];
    const out = hopper(
      [{ kernel: 'count', grid: [8], block: [128], shared: 400, args }],
      [1600, bytes(list)],
    );
    assert.deepEqual(i32(out), counts);
  });

  it('adds one by bulk copies', () => {
    const data = Int32Array.from({ length: 4096 }, (_, i) => i);
    const out = hopper([{ kernel: 'add_one', block: [128], args: ['b1', 'u64:1024'] }], [bytes(data)]);
    assert.deepEqual(
      i32(out),
      data.map((x, i) => (i >= 1024 && i < 2048 ? x + 1 : x)),
    );
  });

  it('exchanges words in pairs', () => {
    const out = hopper([{ kernel: 'exchange', grid: [4], block: [64], args: ['b1'] }], [1024]);
    assert.deepEqual(
      i32(out),
      Int32Array.from({ length: 256 }, (_, i) => 100 + (Math.floor(i / 64) ^ 1)),
    );
  });
});
