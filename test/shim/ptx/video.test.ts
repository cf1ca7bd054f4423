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

/** vmad by the pseudocode of the ISA, with integers that do not end. */
function multiplyAdd(
  how: {
    readonly signs: readonly boolean[];
    readonly po: boolean;
    readonly sat: boolean;
    readonly scale: number;
  },
  [product, last]: readonly [boolean, boolean],
  a: number,
  b: number,
  c: number,
): number {
  const signed = how.signs.some((one) => one) || product || last;
  let [sum, added] = [BigInt(a) * BigInt(b), BigInt(c >>> 0)];
  if (product) sum = ~sum;
  if (last) added = ~added & 0xffffffffn;
  if (signed) added = BigInt.asIntN(32, added);
  sum = (sum + added + (how.po || product || last ? 1n : 0n)) >> BigInt(how.scale);
  const result = signed ? BigInt.asIntN(64, sum) : BigInt.asUintN(64, sum);
  const [low, high] = signed ? [-(2n ** 31n), 2n ** 31n - 1n] : [0n, 2n ** 32n - 1n];
  const bounded = !how.sat ? result : result < low ? low : result > high ? high : result;
  return Number(BigInt.asUintN(32, bounded));
}

describe('vmad', () => {
  it('is what the ISA says, with each part, negation, scale and saturation', () => {
    const random = sequence(41);
    const edges = [0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 0x8000, 0xffff8000, 127];
    const operands = Array.from({ length: 32 * 3 }, () =>
      random(2) === 0 ? (edges[random(edges.length)] ?? 0) : random(2 ** 32),
    );
    const cases = Array.from({ length: 300 }, () => {
      const signs = [random(2) === 1, random(2) === 1];
      const po = random(4) === 0;
      const negated = po ? -1 : random(5);
      const parts = [random(7), random(7)].map(
        (i) => ['', '.b0', '.b1', '.b2', '.b3', '.h0', '.h1'][i] ?? '',
      );
      return { signs, po, negated, parts, sat: random(2) === 1, scale: [0, 7, 15][random(3)] ?? 0 };
    });
    const value = (word: number, of: string, signed: boolean): number =>
      of === ''
        ? signed
          ? word | 0
          : word >>> 0
        : part(word, Number(of[2]), of.startsWith('.b') ? 8 : 16, signed);
    const text = `.version 8.0
.target sm_90
.address_size 64
.entry k(.param .u64 in, .param .u64 out)
{
.reg .b32 %r<9>; .reg .b64 %rd<9>;
ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 12; add.u64 %rd1, %rd1, %rd3;
mul.wide.u32 %rd3, %r1, ${cases.length * 4}; add.u64 %rd2, %rd2, %rd3;
ld.global.u32 %r1, [%rd1]; ld.global.u32 %r2, [%rd1+4]; ld.global.u32 %r3, [%rd1+8];
${cases
  .map(({ signs, po, negated, parts, sat, scale }, i) => {
    const [a, b] = signs.map((signed) => (signed ? 's32' : 'u32'));
    const minus = (n: number): string => (negated === n || (n < 3 && negated === 4) ? '-' : '');
    return `vmad.s32.${a}.${b}${po ? '.po' : ''}${sat ? '.sat' : ''}${scale === 0 ? '' : `.shr${scale}`} %r4, ${minus(1)}%r1${parts[0]}, ${minus(2)}%r2${parts[1]}, ${minus(3)}%r3; st.global.u32 [%rd2+${i * 4}], %r4;`;
  })
  .join('\n')}
ret;
}
`;
    const { load, refused, launches, buffers } = runPtx({
      ptx: { text },
      buffers: [bytes(Uint32Array.from(operands)), 32 * cases.length * 4],
      launches: [{ kernel: 'k', block: [32], args: ['b1', 'b2'] }],
    });
    assert.match(`${load} ${launches[0]}`, /^ok .* ok /, refused.join());
    const got = u32(buffers[1] ?? Buffer.alloc(0));
    for (let lane = 0; lane < 32; lane++) {
      const [a = 0, b = 0, c = 0] = operands.slice(lane * 3);
      cases.forEach((how, i) => {
        const wanted = multiplyAdd(
          how,
          [how.negated === 1 || how.negated === 2, how.negated === 3],
          value(a, how.parts[0] ?? '', how.signs[0] === true),
          value(b, how.parts[1] ?? '', how.signs[1] === true),
          c,
        );
        assert.equal(got[lane * cases.length + i], wanted, `${JSON.stringify(how)} ${a} ${b} ${c}`);
      });
    }
  });

  it('is refused with two negations that are left, or with one beside .po', () => {
    for (const wrong of [
      'vmad.s32.s32.s32 %r1, -%r2, %r3, -%r4',
      'vmad.s32.s32.s32.po %r1, -%r2, %r3, %r4',
    ]) {
      const text = `.version 8.0\n.target sm_90\n.address_size 64\n.entry k() { .reg .b32 %r<9>; ${wrong}; ret; }\n`;
      assert.match(
        runPtx({ ptx: { text } }).refused.join(),
        /^line 4: vmad\S* is not supported: these negated/,
      );
    }
  });
});
