/** vadd2, vset4 and their kin on random operands, against the ISA's own pseudocode written in TypeScript. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { bytes, runPtx, u32 } from './machine.js';

const OPERATIONS = ['vadd', 'vsub', 'vavrg', 'vabsdiff', 'vmin', 'vmax'] as const;
const COMPARISONS: Readonly<Record<string, (a: number, b: number) => boolean>> = {
  eq: (a, b) => a === b,
  ne: (a, b) => a !== b,
  lt: (a, b) => a < b,
  le: (a, b) => a <= b,
  gt: (a, b) => a > b,
  ge: (a, b) => a >= b,
};

/** Numbers below `limit` that depend on the seed alone. */
function sequence(seed: number): (limit: number) => number {
  let state = seed >>> 0;
  return (limit) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * limit);
  };
}

interface Instruction {
  readonly text: string;
  readonly of: (a: number, b: number, c: number) => number;
}

function part(word: number, index: number, bits: number, signed: boolean): number {
  const value = (word >>> (index * bits)) & (2 ** bits - 1);
  return signed && value >= 2 ** (bits - 1) ? value - 2 ** bits : value;
}

function operation(name: string, a: number, b: number): number {
  switch (name) {
    case 'vadd':
      return a + b;
    case 'vsub':
      return a - b;
    case 'vavrg':
      return a + b >= 0 ? (a + b + 1) >> 1 : (a + b) >> 1;
    case 'vabsdiff':
      return Math.abs(a - b);
    case 'vmin':
      return Math.min(a, b);
    case 'vmax':
      return Math.max(a, b);
    default:
      return COMPARISONS[name]?.(a, b) === true ? 1 : 0;
  }
}

/** One instruction, its selectors and its mask by chance. */
function instruction(random: (limit: number) => number): Instruction {
  const quad = random(2) === 1;
  const parts = quad ? 4 : 2;
  const bits = 32 / parts;
  const letter = quad ? 'b' : 'h';
  const signs = [random(2) === 1, random(2) === 1, random(2) === 1] as const;
  const types = signs.map((signed) => (signed ? 's32' : 'u32'));
  const compared = random(3) === 0;
  const name = compared
    ? (Object.keys(COMPARISONS)[random(6)] ?? 'eq')
    : (OPERATIONS[random(OPERATIONS.length)] ?? 'vadd');
  const adds = random(3) === 0;
  const saturates = !compared && !adds && random(2) === 1;
  const digits = (): readonly number[] => Array.from({ length: parts }, () => random(2 * parts));
  const [ofA, ofB] = [random(2) === 1 ? digits() : undefined, random(2) === 1 ? digits() : undefined];
  const written = random(2) === 1 ? Array.from({ length: parts }, () => random(2) === 1) : undefined;
  const mask = written?.some((on) => on) === true ? written : undefined;
  const selector = (list: readonly number[] | undefined): string =>
    list === undefined ? '' : `.${letter}${[...list].reverse().join('')}`;
  const listed =
    mask === undefined
      ? ''
      : `.${letter}${mask
          .map((on, i) => (on ? `${i}` : ''))
          .reverse()
          .join('')}`;
  const mnemonic = compared
    ? `vset${parts}.${types[1]}.${types[2]}.${name}`
    : `${name}${parts}.${types.join('.')}${saturates ? '.sat' : ''}`;
  const own = Array.from({ length: parts }, (_, i) => i);
  return {
    text: `${mnemonic}${adds ? '.add' : ''} %r4${listed}, %r1${selector(ofA)}, %r2${selector(ofB)}, %r3;`,
    of: (a, b, c) => {
      const from = (index: number, signed: boolean): number =>
        part(index < parts ? a : b, index % parts, bits, signed);
      let d = c;
      for (let i = 0; i < parts; i++) {
        if (mask !== undefined && mask[i] !== true) continue;
        let t = operation(
          name,
          from((ofA ?? own)[i] ?? 0, signs[1]),
          from((ofB ?? own.map((index) => index + parts))[i] ?? 0, signs[2]),
        );
        const low = signs[0] ? -(2 ** (bits - 1)) : 0;
        if (saturates) t = Math.max(low, Math.min(low + 2 ** bits - 1, t));
        if (adds) d = (d + t) >>> 0;
        else d = ((d & ~((2 ** bits - 1) << (i * bits))) | ((t & (2 ** bits - 1)) << (i * bits))) >>> 0;
      }
      return d;
    },
  };
}

describe('SIMD video instructions', () => {
  it('compute what the ISA says, whatever they select, mask, saturate or add', () => {
    const random = sequence(20261122);
    const instructions = Array.from({ length: 400 }, () => instruction(random));
    const words = Uint32Array.from({ length: 96 }, () => random(2 ** 32));
    const kernels = instructions.map(
      ({ text }, i) => `.entry k${i}(.param .u64 in, .param .u64 out)
{
.reg .b32 %r<9>; .reg .b64 %rd<9>;
ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out];
mov.u32 %r0, %tid.x;
mul.wide.u32 %rd3, %r0, 12; add.u64 %rd1, %rd1, %rd3;
mul.wide.u32 %rd3, %r0, 4; add.u64 %rd2, %rd2, %rd3;
ld.global.b32 %r1, [%rd1]; ld.global.b32 %r2, [%rd1+4]; ld.global.b32 %r3, [%rd1+8];
${text}
st.global.b32 [%rd2+${i * 128}], %r4;
ret;
}`,
    );
    const outcome = runPtx({
      ptx: { text: `.version 8.4\n.target sm_90\n.address_size 64\n${kernels.join('\n')}\n` },
      buffers: [bytes(words), instructions.length * 128],
      launches: instructions.map((_, i) => ({ kernel: `k${i}`, block: [32], args: ['b1', 'b2'] })),
    });
    assert.deepEqual(outcome.refused, []);
    const results = u32(outcome.buffers[1] ?? Buffer.alloc(0));
    instructions.forEach(({ text, of }, i) => {
      for (let lane = 0; lane < 32; lane++) {
        const [a = 0, b = 0, c = 0] = words.subarray(lane * 3, lane * 3 + 3);
        assert.equal(results[i * 32 + lane], of(a, b, c), `${text} of ${a}, ${b}, ${c}`);
      }
    });
  });

  for (const [why, text] of [
    ['a selector of bytes for halves', 'vadd2.u32.u32.u32 %r4, %r1.b3210, %r2, %r3'],
    ['a mask whose parts rise', 'vadd4.u32.u32.u32 %r4.b12, %r1, %r2, %r3'],
    ['an unknown type', 'vadd4.u32.u32.u16 %r4, %r1, %r2, %r3'],
    ['no comparison', 'vset2.u32.u32.xx %r4, %r1, %r2, %r3'],
  ] as const) {
    it(`are refused with ${why}`, () => {
      const { load, refused } = runPtx({
        ptx: {
          text: `.version 8.4\n.target sm_90\n.address_size 64\n.entry k()\n{\n.reg .b32 %r<9>;\n${text};\n}\n`,
        },
      });
      assert.match(load, /^ok /);
      assert.match(refused.join(), /^line 7: v\S+ is not supported/);
    });
  }
});
