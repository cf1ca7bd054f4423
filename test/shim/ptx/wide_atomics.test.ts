/** Atomics of 128 bits. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { runPtx } from './machine.js';

const HEAD = '.version 8.4\n.target sm_90\n.address_size 64\n';
const REGISTERS =
  '.reg .b64 %rd<20>; .reg .b32 %r<9>; .reg .b128 %q<4>; .reg .pred %p<3>; .shared .align 16 .b8 s[512];';

function run(body: string, buffers: readonly (Buffer | number)[], grid = 1, block = 32): readonly Buffer[] {
  const parameters = buffers.map((_, i) => `.param .u64 p${i}`).join(', ');
  const outcome = runPtx({
    ptx: { text: `${HEAD}.entry k(${parameters})\n{\n${REGISTERS}\n${body}\nret;\n}\n` },
    before: ['helpers 3'],
    buffers,
    launches: [{ kernel: 'k', grid: [grid], block: [block], args: buffers.map((_, i) => `b${i + 1}`) }],
  });
  assert.deepEqual(outcome.refused, []);
  assert.match(outcome.launches[0] ?? '', /^ok/);
  return outcome.buffers;
}

/** Of 32 lanes: what is there, what is compared with, what is written; a lane in four differs in no half, one in one... */
function operands(): { readonly there: Buffer; readonly with: Buffer; readonly next: Buffer } {
  const [there, other, next] = [Buffer.alloc(512), Buffer.alloc(512), Buffer.alloc(512)];
  for (let lane = 0; lane < 32; lane++) {
    for (let half = 0; half < 2; half++) {
      const value = BigInt.asUintN(64, BigInt(lane + 1) * 0x9e3779b97f4a7c15n + BigInt(half));
      const differs = (lane >> half) & 1;
      there.writeBigUInt64LE(value, lane * 16 + half * 8);
      other.writeBigUInt64LE(value ^ BigInt(differs), lane * 16 + half * 8);
      next.writeBigUInt64LE(~value & 0xffffffffffffffffn, lane * 16 + half * 8);
    }
  }
  return { there, with: other, next };
}

const LOAD = `ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1]; ld.param.u64 %rd3, [p2]; ld.param.u64 %rd4, [p3];
mov.u32 %r1, %tid.x; mul.wide.u32 %rd5, %r1, 16;
add.u64 %rd1, %rd1, %rd5; add.u64 %rd2, %rd2, %rd5; add.u64 %rd3, %rd3, %rd5; add.u64 %rd4, %rd4, %rd5;
ld.global.b128 %q1, [%rd2]; ld.global.b128 %q2, [%rd3];`;

describe('atom of 128 bits', () => {
  for (const space of ['global', 'shared', 'generic'] as const) {
    it(`compares and exchanges in ${space} memory`, () => {
      const given = operands();
      const [name, address, before, after] =
        space === 'shared'
          ? [
              '.shared::cta',
              '%r2',
              'mov.u32 %r2, s; shl.b32 %r3, %r1, 4; add.u32 %r2, %r2, %r3; ld.global.b128 %q3, [%rd1]; st.shared.b128 [%r2], %q3;',
              'ld.shared.b128 %q3, [%r2]; st.global.b128 [%rd1], %q3;',
            ]
          : [space === 'global' ? '.global' : '', '%rd1', '', ''];
      const body = (operation: string): string =>
        `${LOAD} ${before} atom${name}.${operation}; st.global.b128 [%rd4], %q0; ${after}`;
      for (const compares of [true, false]) {
        const text = compares
          ? `acq_rel.gpu.cas.b128 %q0, [${address}], %q1, %q2`
          : `exch.b128 %q0, [${address}], %q2`;
        // the semantics stand before the space
        const written = body(text).replace(`${name}.acq_rel.gpu`, `.acq_rel.gpu${name}`);
        const [there, , , old] = run(written, [given.there, given.with, given.next, 512]);
        for (let at = 0; at < 512; at += 16) {
          const equal = given.there.compare(given.with, at, at + 16, at, at + 16) === 0;
          const expected = (!compares || equal ? given.next : given.there).subarray(at, at + 16);
          assert.deepEqual(old?.subarray(at, at + 16), given.there.subarray(at, at + 16), `lane ${at / 16}`);
          assert.deepEqual(there?.subarray(at, at + 16), expected, `lane ${at / 16}`);
        }
      }
    });
  }

  it('loses no turn of blocks that run at the same time, and shows no half of one', () => {
    const body = `ld.param.u64 %rd1, [p0];
mov.u32 %r1, 0;
again:
ld.global.b128 %q1, [%rd1];
retry:
mov.b128 {%rd2, %rd3}, %q1;
add.u64 %rd4, %rd2, 1; sub.u64 %rd5, %rd3, 3;
mov.b128 %q2, {%rd4, %rd5};
atom.global.cas.b128 %q0, [%rd1], %q1, %q2;
mov.b128 {%rd6, %rd7}, %q0;
setp.ne.u64 %p1, %rd6, %rd2;
setp.ne.or.u64 %p1, %rd7, %rd3, %p1;
mov.b128 %q1, {%rd6, %rd7};
@%p1 bra retry;
add.u32 %r1, %r1, 1;
setp.lt.u32 %p2, %r1, 50;
@%p2 bra again;`;
    const [counter] = run(body, [Buffer.alloc(16)], 16, 32);
    const turns = 16n * 32n * 50n;
    assert.equal(counter?.readBigUInt64LE(0), turns);
    assert.equal(counter?.readBigInt64LE(8), -3n * turns);
  });

  it('needs an aligned address and exists for cas and exch only', () => {
    const kernel = (instruction: string): string =>
      `${HEAD}.entry k(.param .u64 out)\n{\n${REGISTERS}\nld.param.u64 %rd1, [out];\n${instruction};\n}\n`;
    const { launches } = runPtx({
      ptx: { text: kernel('atom.global.exch.b128 %q0, [%rd1+8], %q1') },
      buffers: [64],
      launches: [{ kernel: 'k', block: [1], args: ['b1'] }],
    });
    assert.match(launches[0] ?? '', /misaligned/);
    for (const instruction of [
      'atom.global.and.b128 %q0, [%rd1], %q1',
      'atom.global.exch.b128 %rd2, [%rd1], %q1',
      'atom.global.exch.b128 %q0, [%rd1], {%rd2, %rd3}',
      'red.global.and.b128 [%rd1], %q1',
    ]) {
      const name = instruction.split(' ')[0] ?? '';
      const said = runPtx({ ptx: { text: kernel(instruction) } }).refused.join();
      assert.ok(said.startsWith(`line 8: ${name} is not supported`), said);
    }
  });
});
