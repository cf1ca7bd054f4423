/**
 * Accesses that happen as a whole: what one block stores by one instruction another never sees in halves. Two
 * threads run a block each, at the same time; one stores values whose parts agree, the other looks for some that
 * do not.
 */
import assert from 'node:assert/strict';
import { availableParallelism } from 'node:os';
import { describe, it } from 'node:test';
import { runPtx } from './machine.js';

interface Access {
  /** Of the vector: `v2.u64`. */
  readonly type: string;
  readonly count: number;
  readonly bits: 8 | 16 | 32 | 64;
  /** Of the registers, if wider. */
  readonly held?: 16 | 32 | 64;
}

const ACCESSES: readonly Access[] = [
  { type: 'v2.u64', count: 2, bits: 64 },
  { type: 'v4.u32', count: 4, bits: 32 },
  { type: 'v2.u32', count: 2, bits: 32 },
  { type: 'v2.u32', count: 2, bits: 32, held: 64 },
  { type: 'v4.u16', count: 4, bits: 16 },
  { type: 'v2.u16', count: 2, bits: 16 },
  { type: 'v4.u8', count: 4, bits: 8, held: 32 },
  { type: 'u64', count: 1, bits: 64 },
];

const ROUNDS = 10000;
const LANES = 32;

/** Registers `%NAME0, %NAME1, ...` as an operand. */
const list = (name: string, count: number): string =>
  count === 1 ? `%${name}0` : `{${Array.from({ length: count }, (_, i) => `%${name}${i}`).join(',')}}`;

/**
 * Block 0 stores round after round, block 1 loads and counts what is torn. Lanes that are `apart` use two pieces of
 * memory, which the machine looks at lane by lane.
 */
function kernel(
  { type, count, bits, held = bits === 8 ? 32 : bits }: Access,
  load: readonly string[],
): string {
  const register = held === 16 ? 'b16' : `b${held}`;
  const differ = Array.from(
    { length: count - 1 },
    (_, i) => `setp.ne.${register} %q, %v0, %v${i + 1};\n@%q add.u32 %torn, %torn, 1;`,
  );
  // a single 64-bit value holds the round twice
  const one =
    count === 1 ? ['shr.u64 %high, %v0, 32;', 'cvt.u32.u64 %low, %v0;', 'cvt.u32.u64 %up, %high;'] : [];
  if (count === 1) differ.push('setp.ne.u32 %q, %low, %up;', '@%q add.u32 %torn, %torn, 1;');
  // what is stored in each part: the round, as far as it fits
  const parts = (to: string): string => {
    if (count === 1)
      return `cvt.u64.u32 %double, %i; shl.b64 ${to}, %double, 32; or.b64 ${to}, ${to}, %double;`;
    if (held === 64) return `cvt.u64.u32 ${to}, %i;`;
    if (held === 16) return `cvt.u16.u32 ${to}, %i;`;
    return bits === 8 ? `and.b32 ${to}, %i, 255;` : `mov.b32 ${to}, %i;`;
  };
  return `.version 7.8
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 found, .param .u32 rounds) {
  .reg .b64 %a, %b, %f, %at, %high, %double; .reg .b32 %i, %n, %tid, %block, %torn, %half, %low, %up, %window;
  .reg .pred %p, %q, %writes, %odd, %first; .reg .${register} %v<8>, %s<8>;
  .shared .align 16 .b8 copy[512];
  ld.param.u64 %a, [a]; ld.param.u64 %b, [b]; ld.param.u64 %f, [found];
  mov.u32 %tid, %tid.x; mov.u32 %block, %ctaid.x; setp.eq.u32 %writes, %block, 0;
  and.b32 %half, %tid, 1; setp.ne.u32 %odd, %half, 0;
  mul.wide.u32 %at, %tid, ${(count * bits) / 8};
  @%odd mov.b64 %a, %b;
  add.u64 %at, %at, %a;
  mul.lo.u32 %window, %tid, 16;
  mov.u32 %torn, 0; mov.u32 %i, 0;
  setp.eq.u32 %first, %tid, 0;
  @%first atom.global.add.u32 %n, [%f+4], 1; // both are here
arrive:
  ld.volatile.global.u32 %low, [%f+4]; setp.lt.u32 %p, %low, 2;
  @%p bra arrive;
  ld.param.u32 %n, [rounds];
again:
  add.u32 %i, %i, 1;
  @%writes bra store;
${load.join('\n').replaceAll('TYPE', type).replaceAll('VALUES', list('v', count))}
${[...one, ...differ].join('\n')}
  bra next;
store:
${Array.from({ length: count }, (_, k) => parts(`%s${k}`)).join('\n')}
  st.global.${type} [%at], ${list('s', count)};
next:
  setp.lt.u32 %p, %i, %n;
  @%p bra again;
  @%writes st.volatile.global.u32 [%f+8], %n; // it has stored all
  ld.volatile.global.u32 %low, [%f+8]; setp.eq.u32 %p, %low, 0;
  @%p bra again;
  @!%writes atom.global.add.u32 %i, [%f], %torn;
  ret;
}
`;
}

function torn(access: Access, load: readonly string[], apart: boolean): number {
  const outcome = runPtx({
    ptx: { text: kernel(access, load) },
    buffers: [512, 512, 12],
    before: ['helpers 1'],
    launches: [
      { kernel: 'k', grid: [2], block: [LANES], args: ['b1', apart ? 'b2' : 'b1', 'b3', `u32:${ROUNDS}`] },
    ],
  });
  assert.match(outcome.load, /^ok /);
  for (const line of outcome.launches) assert.match(line, /^ok /);
  const [, , found] = outcome.buffers;
  assert.ok(found !== undefined);
  return found.readUInt32LE(0);
}

const skip = availableParallelism() < 2 ? 'one processor: nothing runs at the same time' : false;

describe('an access of up to 16 bytes is one access', { skip }, () => {
  for (const access of ACCESSES) {
    const name = `${access.type}${access.held === undefined ? '' : ` in registers of ${access.held} bits`}`;
    const load = ['ld.relaxed.gpu.global.TYPE VALUES, [%at];'];
    it(`${name} of lanes whose memory lies together`, () => {
      assert.equal(torn(access, load, false), 0);
    });
    it(`${name} of lanes whose memory lies in two places`, () => {
      assert.equal(torn(access, load, true), 0);
    });
  }

  for (const [bytes, type, count, bits] of [
    [16, 'v2.u64', 2, 64],
    [8, 'v2.u32', 2, 32],
  ] as const) {
    it(`cp.async of ${bytes} bytes`, () => {
      const load = [
        `mov.u32 %low, copy; add.u32 %window, %low, %window;`,
        `cp.async.ca.shared.global [%window], [%at], ${bytes};`,
        'cp.async.wait_all;',
        'ld.shared.TYPE VALUES, [%window];',
        'sub.u32 %window, %window, %low;',
      ];
      assert.equal(torn({ type, count, bits }, load, false), 0);
    });
  }
});
