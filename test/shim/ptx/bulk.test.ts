/** Bulk copies and counts of bytes at mbarriers, against the same done here. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { bytes, runPtx, u32 } from './machine.js';
import { at, HEAD, one, REGISTERS, wait } from './one_warp.js';

describe('mbarriers that count bytes', () => {
  /** Whether phase 0 was over after each step. */
  function phases(count: number, steps: readonly string[]): number[] {
    const body = steps
      .map(
        (step, i) => `${step}
  mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r0], 0;
  selp.u32 %r2, 1, 0, %p1;
  st.global.u32 [%rd1+${i * 4}], %r2;`,
      )
      .join('\n');
    const out = one(`mbarrier.init.shared::cta.b64 [%r0], ${count};\n${body}`, [16, steps.length * 4]);
    return [...u32(at(out, 1))];
  }
  const arrive = 'mbarrier.arrive.shared::cta.b64 _, [%r0];';
  const expect = (n: number): string => `mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r0], ${n};`;
  const complete = (n: number): string => `mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r0], ${n};`;

  it('end a phase when neither arrivals nor bytes are missing', () => {
    assert.deepEqual(phases(1, [expect(64), arrive, complete(48), complete(16)]), [0, 0, 0, 1]);
    assert.deepEqual(phases(1, [expect(64), complete(64), arrive]), [0, 0, 1]);
    assert.deepEqual(
      phases(2, ['mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r0], 32;', arrive, complete(32)]),
      [0, 0, 1],
    );
  });

  it('take bytes that come before they are expected', () => {
    assert.deepEqual(phases(1, [complete(1048575), arrive, expect(1048575)]), [0, 0, 1]);
  });

  it('know of no bytes when the next phase begins', () => {
    const out = one(
      `mbarrier.init.shared::cta.b64 [%r0], 1;
  mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 %rd2, [%r0], 16;
  mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r0], 16;
${wait(0, 'first')}
  mbarrier.arrive.shared::cta.b64 %rd3, [%r0];
${wait(1, 'second')}
  mbarrier.test_wait.shared::cta.b64 %p2, [%r0], %rd3;
  selp.u32 %r2, 1, 0, %p2;
  mbarrier.pending_count.b64 %r3, %rd3;
  st.global.v2.u32 [%rd1], {%r2, %r3};`,
      [16, 8],
    );
    assert.deepEqual([...u32(at(out, 1))], [1, 1]);
  });

  it('lets arrive_drop take part in the phase, and be missing in the next', () => {
    const out = one(
      `mbarrier.init.shared::cta.b64 [%r0], 2;
  mbarrier.arrive_drop.expect_tx.release.cta.shared::cta.b64 _, [%r0], 16;
  mbarrier.arrive.shared::cta.b64 _, [%r0];
  mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r0], 0;
  selp.u32 %r2, 1, 0, %p1;
  mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r0], 16;
${wait(0, 'first')}
  mbarrier.arrive.shared::cta.b64 _, [%r0];
${wait(1, 'second')}
  st.global.u32 [%rd1], %r2;`,
      [16, 4],
    );
    assert.deepEqual([...u32(at(out, 1))], [0]);
  });
});

describe('bulk copies', () => {
  const data = Buffer.from(Uint8Array.from({ length: 256 }, (_, i) => (i * 7 + 3) & 255));
  const begin = 'mbarrier.init.shared::cta.b64 [%r0], 1;\n  add.u32 %r2, %r0, 1024;';

  it('go to shared memory and tell the barrier, and back in a group', () => {
    const out = one(
      `${begin}
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r0], 240;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%r2], [%rd0+16], 240, [%r0], %rd5;
${wait(0, 'go')}
  add.u32 %r3, %r0, 2048;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r0], 160;
  cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r3], [%r2+16], 160, [%r0];
${wait(1, 'on')}
  cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r3], 160;
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group.read 0;
  cp.async.bulk.prefetch.L2.global [%rd0], 64;`,
      [data, 256],
    );
    assert.deepEqual(at(out, 1), Buffer.concat([data.subarray(32, 192), Buffer.alloc(96)]));
  });

  it('leave out bytes that a mask does', () => {
    const out = one(
      `${begin}
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r0], 32;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd0], 32, [%r0];
${wait(0, 'go')}
  mov.b16 %h1, 0x8001;
  cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%rd1], [%r2], 32, %h1;`,
      [data, 32],
    );
    const expected = Buffer.alloc(32);
    for (const i of [0, 15, 16, 31]) expected[i] = at(data, i);
    assert.deepEqual(at(out, 1), expected);
  });

  const half = (value: number): number => (value === 0 ? 0 : 0x3c00 + (Math.log2(value) << 10));
  for (const [what, values, with_, expected] of [
    ['add.u32', Uint32Array.of(1, 0xffffffff, 7, 9), Uint32Array.of(5, 2, 0, 1), Uint32Array.of(6, 1, 7, 10)],
    ['min.s32', Int32Array.of(1, -5, 7, 9), Int32Array.of(-2, 2, 0, 10), Int32Array.of(-2, -5, 0, 9)],
    [
      'max.u64',
      BigUint64Array.of(1n, 1n << 63n),
      BigUint64Array.of(2n, 5n),
      BigUint64Array.of(2n, 1n << 63n),
    ],
    ['inc.u32', Uint32Array.of(1, 5, 7, 9), Uint32Array.of(5, 5, 0, 10), Uint32Array.of(2, 0, 0, 10)],
    ['xor.b64', BigUint64Array.of(1n, 6n), BigUint64Array.of(3n, 5n), BigUint64Array.of(2n, 3n)],
    ['add.f32', Float32Array.of(1, 2, 3, 4), Float32Array.of(0.5, -2, 8, 1), Float32Array.of(1.5, 0, 11, 5)],
    ['add.f64', Float64Array.of(1, 2), Float64Array.of(0.5, -2), Float64Array.of(1.5, 0)],
    [
      'add.noftz.f16',
      Uint16Array.from([1, 2, 4, 8, 1, 2, 4, 8], half),
      Uint16Array.from([1, 2, 4, 8, 0, 0, 0, 8], half),
      Uint16Array.from([2, 4, 8, 16, 1, 2, 4, 16], half),
    ],
  ] as const) {
    it(`reduce with ${what}`, () => {
      const out = one(
        `${begin}
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r0], 16;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd0], 16, [%r0];
${wait(0, 'go')}
  cp.reduce.async.bulk.global.shared::cta.bulk_group.${what} [%rd1], [%r2], 16;`,
        [bytes(with_), bytes(values)],
      );
      assert.deepEqual(at(out, 1), bytes(expected));
    });
  }

  for (const [what, line, said] of [
    ['a size that is no multiple of 16', '[%r2], [%rd0], 24, [%r0]', /misaligned address.*the size/],
    ['a source that is not aligned', '[%r2], [%rd0+8], 32, [%r0]', /misaligned address.*the source/],
    [
      'a destination outside of shared memory',
      '[%r2+7168], [%rd0], 32, [%r0]',
      /illegal address.*shared memory/,
    ],
    ['a source outside of the buffer', '[%r2], [%rd0+240], 32, [%r0]', /illegal address.*device memory/],
  ] as const) {
    it(`fault with ${what}`, () => {
      const line_ = `cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes ${line};`;
      assert.throws(() => one(`${begin}\n  ${line_}`, [data, 16]), said);
    });
  }

  it('are found as reads and writes by the checks', () => {
    const body = `${HEAD}
.visible .entry k(.param .u64 a)
{
  ${REGISTERS}
  ld.param.u64 %rd0, [a];
  mov.u32 %r0, memory;
  cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r0], 16;
  ret;
}`;
    const outcome = runPtx({
      ptx: { text: body },
      buffers: [16],
      before: ['check init'],
      launches: [{ kernel: 'k', block: [1], shared: 64, args: ['b1'] }],
    });
    assert.match(at(outcome.findings, 0), /^init k cp\.async\.bulk shared/);
  });
});
