/** mma.sync in the shapes and types that NVIDIA's libraries do not use, against products computed here. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { random, runPtx } from './machine.js';

function at<T>(list: ArrayLike<T>, index: number): T {
  const value = list[index];
  assert.ok(value !== undefined, `no element ${index} of ${list.length}`);
  return value;
}

/** Bits of a float of few bits, for values that it holds exactly and normally. */
function small(exponentBits: number, fractionBits: number): (value: number) => number {
  const bias = 2 ** (exponentBits - 1) - 1;
  return (value) => {
    if (value === 0) return 0;
    const exponent = Math.floor(Math.log2(Math.abs(value)));
    const fraction = (Math.abs(value) / 2 ** exponent - 1) * 2 ** fractionBits;
    assert.equal(fraction, Math.floor(fraction), `${value} does not fit`);
    return (
      (value < 0 ? 2 ** (exponentBits + fractionBits) : 0) + (exponent + bias) * 2 ** fractionBits + fraction
    );
  };
}
const half = small(5, 10);
const few = (next: () => number): number => at([0, 0.5, 1, 1.5, 2, 3, -0.5, -1, -1.5, -3], next() % 10);

interface Type {
  readonly bits: number;
  encode(value: number): number;
  values(next: () => number): number;
}
const TYPES: Record<string, Type> = {
  e4m3: { bits: 8, encode: small(4, 3), values: few },
  e5m2: { bits: 8, encode: small(5, 2), values: few },
  f16: { bits: 16, encode: half, values: few },
  tf32: { bits: 32, encode: small(8, 23), values: few },
  s8: { bits: 8, encode: (value) => value & 255, values: (next) => (next() % 256) - 128 },
  u8: { bits: 8, encode: (value) => value, values: (next) => next() % 256 },
  s4: { bits: 4, encode: (value) => value & 15, values: (next) => (next() % 16) - 8 },
  u4: { bits: 4, encode: (value) => value, values: (next) => next() % 16 },
  b1: { bits: 1, encode: (value) => value, values: (next) => next() % 2 },
  f64: { bits: 64, encode: (value) => value, values: (next) => ((next() % 2001) - 1000) / 64 },
};

interface Case {
  readonly m: 8 | 16;
  readonly k: number;
  readonly d: 'f32' | 'f16' | 's32' | 'f64';
  readonly a: string;
  readonly b: string;
  readonly bits?: 'and' | 'xor';
  readonly saturated?: boolean;
}

/** Where element i of a lane's fragment stands: row (of a) or column (of b), and place along k. */
function place(of: 'a' | 'b', m: number, bits: number, lane: number, i: number): [number, number] {
  const run = Math.max(1, 32 / bits);
  const part = Math.floor(i / run);
  const tall = of === 'a' && m === 16;
  const along = (lane % 4) * run + (i % run) + (tall ? part >> 1 : part) * run * 4;
  return [(lane >> 2) + (tall && part % 2 === 1 ? 8 : 0), along];
}
const ofD = (lane: number, i: number): [number, number] => [
  (lane >> 2) + (i >= 2 ? 8 : 0),
  (lane % 4) * 2 + (i % 2),
];

function check(how: Case): void {
  const { m, k } = how;
  const [typeA, typeB] = [TYPES[how.a], TYPES[how.b]];
  assert.ok(typeA && typeB);
  const next = random(k + m);
  const a = Array.from({ length: m * k }, () => typeA.values(next));
  const b = Array.from({ length: 8 * k }, () => typeB.values(next));
  const c = Array.from({ length: m * 8 }, () =>
    how.saturated === true ? (next() % 2 === 0 ? 2147483647 : -2147483648) : (next() % 65) - 32,
  );
  const wide = how.a === 'f64';
  const registers = (elements: number, bits: number): number =>
    Math.max(1, (elements * bits) / (wide ? 64 : 32));
  const [nA, nB] = [registers((m * k) / 32, typeA.bits), registers((8 * k) / 32, typeB.bits)];
  const elementsD = m / 4;
  const nD = how.d === 'f16' ? elementsD / 2 : elementsD;
  const size = wide ? 8 : 4;
  const fragment = (of: 'a' | 'b', type: Type, values: readonly number[], count: number): Buffer => {
    const out = Buffer.alloc(32 * count * size);
    for (let lane = 0; lane < 32; lane++) {
      for (let i = 0; i < (count * size * 8) / type.bits; i++) {
        const [outer, along] = place(of, m, type.bits, lane, i);
        const value = type.encode(at(values, outer * k + along));
        const bit = lane * count * size * 8 + i * type.bits;
        const byte = Math.floor(bit / 8);
        if (type.bits === 64) out.writeDoubleLE(value, byte);
        else if (type.bits === 32) out.writeUInt32LE(value, byte);
        else if (type.bits === 16) out.writeUInt16LE(value, byte);
        else out.writeUInt8(out.readUInt8(byte) | (value << (bit % 8)), byte);
      }
    }
    return out;
  };
  const d = Buffer.alloc(32 * nD * size);
  const eachOfD = (visit: (byte: number, row: number, column: number) => void): void => {
    for (let lane = 0; lane < 32; lane++) {
      for (let i = 0; i < elementsD; i++) {
        const [row, column] = ofD(lane, i);
        visit(how.d === 'f16' ? lane * nD * 4 + i * 2 : (lane * nD + i) * size, row, column);
      }
    }
  };
  eachOfD((byte, row, column) => {
    const value = at(c, row * 8 + column);
    if (how.d === 'f64') d.writeDoubleLE(value, byte);
    else if (how.d === 'f32') d.writeFloatLE(value, byte);
    else if (how.d === 's32') d.writeInt32LE(value, byte);
    else d.writeUInt16LE(half(value), byte);
  });
  const [type, register] = wide ? ['f64', '.f64'] : ['b32', '.b32'];
  const list = (name: string, count: number): string =>
    `{${Array.from({ length: count }, (_, i) => `%${name}${i}`).join(', ')}}`;
  const each = (name: string, count: number, line: (i: number) => string): string =>
    Array.from({ length: count }, (_, i) => `  ${line(i).replaceAll('$', `%${name}${i}`)};`).join('\n');
  const more = how.bits !== undefined ? `.${how.bits}.popc` : '';
  const text = `.version 8.4
.target sm_90
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 d)
{
  .reg ${register} %a<8>; .reg ${register} %b<8>; .reg ${register} %d<8>; .reg .b32 %r<2>; .reg .b64 %rd<4>;
  ld.param.u64 %rd0, [a];
  ld.param.u64 %rd1, [b];
  ld.param.u64 %rd2, [d];
  mov.u32 %r0, %tid.x;
  mad.wide.u32 %rd0, %r0, ${nA * size}, %rd0;
  mad.wide.u32 %rd1, %r0, ${nB * size}, %rd1;
  mad.wide.u32 %rd2, %r0, ${nD * size}, %rd2;
${each('a', nA, (i) => `ld.global.${type} $, [%rd0+${i * size}]`)}
${each('b', nB, (i) => `ld.global.${type} $, [%rd1+${i * size}]`)}
${each('d', nD, (i) => `ld.global.${type} $, [%rd2+${i * size}]`)}
  mma.sync.aligned.m${m}n8k${k}.row.col${how.saturated === true ? '.satfinite' : ''}.${how.d}.${how.a}.${how.b}.${how.d}${more}
    ${list('d', nD)}, ${list('a', nA)}, ${list('b', nB)}, ${list('d', nD)};
${each('d', nD, (i) => `st.global.${type} [%rd2+${i * size}], $`)}
  ret;
}
`;
  const outcome = runPtx({
    ptx: { text },
    buffers: [fragment('a', typeA, a, nA), fragment('b', typeB, b, nB), d],
    launches: [{ kernel: 'k', block: [32], args: ['b1', 'b2', 'b3'] }],
  });
  assert.match(outcome.load, /^ok /);
  assert.match(at(outcome.launches, 0), /^ok /);
  const out = at(outcome.buffers, 2);
  eachOfD((byte, row, column) => {
    let sum = at(c, row * 8 + column);
    for (let j = 0; j < k; j++) {
      const [x, y] = [at(a, row * k + j), at(b, column * k + j)];
      sum += how.bits === 'xor' ? x ^ y : x * y;
    }
    if (how.saturated === true) sum = Math.max(-(2 ** 31), Math.min(2 ** 31 - 1, sum));
    const where = `${row},${column}`;
    if (how.d === 'f64') assert.equal(out.readDoubleLE(byte), sum, where);
    else if (how.d === 'f32') assert.equal(out.readFloatLE(byte), sum, where);
    else if (how.d === 's32') assert.equal(out.readInt32LE(byte), sum, where);
    else assert.equal(out.readUInt16LE(byte), half(sum), where);
  });
}

describe('mma.sync', () => {
  for (const k of [16, 32]) {
    for (const [a, b] of [
      ['e4m3', 'e4m3'],
      ['e4m3', 'e5m2'],
      ['e5m2', 'e4m3'],
      ['e5m2', 'e5m2'],
    ] as const) {
      it(`multiplies ${a} by ${b} 16 by 8 by ${k}`, () => {
        check({ m: 16, k, d: 'f32', a, b });
        check({ m: 16, k, d: 'f16', a, b });
      });
    }
  }
  for (const bits of ['and', 'xor'] as const) {
    it(`counts bits that ${bits} leaves`, () => {
      check({ m: 8, k: 128, d: 's32', a: 'b1', b: 'b1', bits });
      check({ m: 16, k: 128, d: 's32', a: 'b1', b: 'b1', bits });
      check({ m: 16, k: 256, d: 's32', a: 'b1', b: 'b1', bits });
    });
  }
  it('multiplies doubles in every shape', () => {
    check({ m: 8, k: 4, d: 'f64', a: 'f64', b: 'f64' });
    for (const k of [4, 8, 16]) check({ m: 16, k, d: 'f64', a: 'f64', b: 'f64' });
  });
  it('multiplies integers of 4 bits, signed or not', () => {
    for (const [a, b] of [
      ['s4', 's4'],
      ['u4', 's4'],
      ['s4', 'u4'],
      ['u4', 'u4'],
    ] as const) {
      check({ m: 8, k: 32, d: 's32', a, b });
      check({ m: 16, k: 32, d: 's32', a, b });
      check({ m: 16, k: 64, d: 's32', a, b });
    }
  });
  it('multiplies integers of 8 bits, signed or not, and saturates', () => {
    for (const [a, b] of [
      ['s8', 'u8'],
      ['u8', 's8'],
    ] as const) {
      for (const saturated of [false, true]) {
        check({ m: 8, k: 16, d: 's32', a, b, saturated });
        check({ m: 16, k: 16, d: 's32', a, b, saturated });
        check({ m: 16, k: 32, d: 's32', a, b, saturated });
      }
    }
    check({ m: 16, k: 64, d: 's32', a: 's4', b: 'u4', saturated: true });
  });
  it('multiplies halves to halves, and tf32', () => {
    check({ m: 16, k: 8, d: 'f16', a: 'f16', b: 'f16' });
    check({ m: 16, k: 16, d: 'f16', a: 'f16', b: 'f16' });
    check({ m: 16, k: 4, d: 'f32', a: 'tf32', b: 'tf32' });
    check({ m: 16, k: 8, d: 'f32', a: 'tf32', b: 'tf32' });
  });
});

/** 2:4 (of tf32 1:2): which elements of four are there, and the metadata that says so. */
function checkSparse(
  /** Of a and b: one type, or two with a dot between. */
  type: string,
  k: number,
  selector: number,
  ordered: boolean,
): void {
  const known: Record<string, Type> = { ...TYPES, bf16: { bits: 16, encode: small(8, 7), values: few } };
  const [typeA = '', typeB = typeA] = type.split('.');
  const [element, elementB] = [known[typeA], known[typeB]];
  assert.ok(element && elementB);
  const next = random(k + selector);
  const [group, kept] = type === 'tf32' ? [2, 1] : [4, 2];
  // of 4-bit elements it is pairs that are there or not
  const pair = element.bits === 4 ? 2 : 1;
  const dense = new Array<number>(16 * k).fill(0);
  const stored: number[] = [];
  const metadata: number[][] = [];
  for (let row = 0; row < 16; row++) {
    const words: number[] = new Array<number>(k / pair / group / 4).fill(0);
    for (let chunk = 0; chunk < k / pair / group; chunk++) {
      const places =
        type === 'tf32'
          ? [next() % 2]
          : at(
              [
                [0, 1],
                [0, 2],
                [0, 3],
                [1, 2],
                [1, 3],
                [2, 3],
              ],
              next() % 6,
            );
      for (const place of places) {
        for (let i = 0; i < pair; i++) {
          const value = element.values(next);
          dense[row * k + (chunk * group + place) * pair + i] = value;
          stored.push(value);
        }
      }
      const said =
        type === 'tf32'
          ? at(places, 0) === 0
            ? 0b0100
            : 0b1110
          : at(places, 0) | (at(places, kept - 1) << 2);
      words[Math.floor(chunk / 4)] = at(words, Math.floor(chunk / 4)) | (said << ((chunk % 4) * 4));
    }
    metadata.push(words);
  }
  const b = Array.from({ length: 8 * k }, () => elementB.values(next));
  const [nA, nB] = [(16 * (k / 2) * element.bits) / 1024, (8 * k * element.bits) / 1024];
  const fragment = (of: 'a' | 'b', values: readonly number[], count: number, depth: number): Buffer => {
    const out = Buffer.alloc(32 * count * 4);
    for (let lane = 0; lane < 32; lane++) {
      for (let i = 0; i < (count * 32) / element.bits; i++) {
        const [outer, along] = place(of, 16, element.bits, lane, i);
        const value = (of === 'a' ? element : elementB).encode(at(values, outer * depth + along));
        const byte = lane * count * 4 + Math.floor((i * element.bits) / 8);
        if (element.bits === 32) out.writeUInt32LE(value, byte);
        else if (element.bits === 16) out.writeUInt16LE(value, byte);
        else out.writeUInt8(out.readUInt8(byte) | (value << ((i * element.bits) % 8)), byte);
      }
    }
    return out;
  };
  const lanes = k / pair / group / 4;
  const words = Buffer.alloc(128, 0xff);
  for (let row = 0; row < 8; row++) {
    if (lanes === 4) {
      // all lanes: the first two of four have the first half of row and row + 8, the others the second half
      for (let lane = 0; lane < 4; lane++) {
        const said = at(metadata, row + (lane % 2) * 8);
        const from = lane < 2 ? 0 : 2;
        words.writeUInt32LE((at(said, from) | (at(said, from + 1) << 16)) >>> 0, (row * 4 + lane) * 4);
      }
      continue;
    }
    for (let i = 0; i < lanes; i++) {
      const [low, high] = [at(at(metadata, row), i), at(at(metadata, row + 8), i)];
      words.writeUInt32LE((low | (high << 16)) >>> 0, (row * 4 + selector * lanes + i) * 4);
    }
  }
  const d = /^[su]/.test(type) ? 's32' : 'f32';
  const list = (name: string, count: number): string =>
    `{${Array.from({ length: count }, (_, i) => `%${name}${i}`).join(', ')}}`;
  const load = (name: string, count: number, from: string): string =>
    Array.from({ length: count }, (_, i) => `  ld.global.b32 %${name}${i}, [${from}+${i * 4}];`).join('\n');
  const text = `.version 8.5
.target sm_90
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 e, .param .u64 d)
{
  .reg .b32 %a<4>; .reg .b32 %b<4>; .reg .b32 %d<4>; .reg .b32 %r<3>; .reg .b64 %rd<4>;
  ld.param.u64 %rd0, [a];
  ld.param.u64 %rd1, [b];
  ld.param.u64 %rd2, [e];
  ld.param.u64 %rd3, [d];
  mov.u32 %r0, %tid.x;
  mad.wide.u32 %rd0, %r0, ${nA * 4}, %rd0;
  mad.wide.u32 %rd1, %r0, ${nB * 4}, %rd1;
  mad.wide.u32 %rd2, %r0, 4, %rd2;
  mad.wide.u32 %rd3, %r0, 16, %rd3;
${load('a', nA, '%rd0')}
${load('b', nB, '%rd1')}
${load('d', 4, '%rd3')}
  ld.global.b32 %r1, [%rd2];
  mma.sp${ordered ? '::ordered_metadata' : ''}.sync.aligned.m16n8k${k}.row.col.${d}.${typeA}.${typeB}.${d}
    ${list('d', 4)}, ${list('a', nA)}, ${list('b', nB)}, ${list('d', 4)}, %r1, ${selector};
  st.global.v4.b32 [%rd3], ${list('d', 4)};
  ret;
}
`;
  const outcome = runPtx({
    ptx: { text },
    buffers: [fragment('a', stored, nA, k / 2), fragment('b', b, nB, k), words, 512],
    launches: [{ kernel: 'k', block: [32], args: ['b1', 'b2', 'b3', 'b4'] }],
  });
  assert.match(outcome.load, /^ok /);
  assert.match(at(outcome.launches, 0), /^ok /);
  const out = at(outcome.buffers, 3);
  for (let lane = 0; lane < 32; lane++) {
    for (let i = 0; i < 4; i++) {
      const [row, column] = ofD(lane, i);
      let sum = 0;
      for (let j = 0; j < k; j++) sum += at(dense, row * k + j) * at(b, column * k + j);
      const byte = (lane * 4 + i) * 4;
      assert.equal(d === 's32' ? out.readInt32LE(byte) : out.readFloatLE(byte), sum, `${row},${column}`);
    }
  }
}

describe('mma.sp', () => {
  for (const [type, k, most] of [
    ['f16', 16, 3],
    ['f16', 32, 1],
    ['bf16', 16, 3],
    ['bf16', 32, 1],
    ['tf32', 8, 3],
    ['tf32', 16, 1],
    ['s8', 32, 1],
    ['u8', 32, 1],
    ['s8.u8', 64, 0],
    ['u8.s8', 64, 0],
    ['e4m3.e5m2', 64, 0],
    ['e5m2.e4m3', 64, 0],
    ['s4.u4', 64, 1],
    ['u4.s4', 64, 1],
    ['u4', 128, 0],
    ['s4', 128, 0],
  ] as const) {
    it(`multiplies ${type} 16 by 8 by ${k}, half of which is not there`, () => {
      for (let selector = 0; selector <= most; selector++) checkSparse(type, k, selector, selector % 2 === 1);
    });
  }

  it('has no other shapes, and no selector where all lanes have metadata', () => {
    const four = '{%r1, %r2, %r3, %r4}';
    for (const [shape, d, type, selector] of [
      ['m16n8k64', 's32', 's8', 1],
      ['m16n8k64', 's32', 'u4', 2],
      ['m16n8k128', 's32', 'u8', 0],
      ['m16n8k32', 'f32', 'e4m3', 0],
      ['m16n8k64', 'f16', 'e4m3', 0],
    ] as const) {
      const instruction = `mma.sp.sync.aligned.${shape}.row.col.${d}.${type}.${type}.${d}`;
      const a = shape === 'm16n8k64' && type === 'u4' ? '{%r1, %r2}' : four;
      const text = `.version 8.5\n.target sm_90\n.address_size 64\n.entry k() {\n.reg .b32 %r<9>;
${instruction} ${four}, ${a}, ${a}, ${four}, %r5, ${selector};\nret;\n}\n`;
      const said = runPtx({ ptx: { text } }).refused.join();
      assert.ok(said.startsWith(`line 6: ${instruction} is not supported`), said);
    }
  });

  it('round products of doubles as the modifier says', () => {
    const tiny = 2 ** -60;
    const [below, one, above] = [1 - 2 ** -53, 1, 1 + 2 ** -52];
    for (const [mode, less, more] of [
      ['rn', one, one],
      ['rz', below, one],
      ['rm', below, one],
      ['rp', one, above],
    ] as const) {
      const instructions = [
        `mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64.${mode}`,
        `wmma.mma.sync.aligned.row.col.m8n8k4.f64.f64.f64.f64.${mode}`,
      ];
      const text = `.version 8.4\n.target sm_90\n.address_size 64\n.entry k(.param .u64 out) {
.reg .b64 %rd; .reg .f64 %a, %b, %c, %d<2>; .reg .b32 %r; .reg .pred %p;\nld.param.u64 %rd, [out];\nmov.f64 %c, 0d3ff0000000000000;
mov.u32 %r, %laneid;\nand.b32 %r, %r, 3;\nsetp.ne.u32 %p, %r, 0; // a has one column that is not zero
${[-tiny, tiny]
  .flatMap((product, i) =>
    instructions.map(
      (
        instruction,
        j,
      ) => `mov.f64 %b, ${product === tiny ? '' : '-'}0d3c30000000000000;\nmov.f64 %a, %c;\n@%p mov.f64 %a, 0d0000000000000000;
${instruction} {%d0, %d1}, {%a}, {%b}, {%c, %c};\nst.global.f64 [%rd+${(i * 2 + j) * 8}], %d1;`,
    ),
  )
  .join('\n')}\nret;\n}\n`;
      const { launches, buffers } = runPtx({
        ptx: { text },
        buffers: [32],
        launches: [{ kernel: 'k', block: [32], args: ['b1'] }],
      });
      assert.match(launches[0] ?? '', /^ok/);
      const out = buffers[0] ?? Buffer.alloc(32);
      const got = [0, 8, 16, 24].map((byte) => out.readDoubleLE(byte));
      assert.deepEqual(got, [less, less, more, more], mode);
    }
  });

  it('round nothing else', () => {
    const four = '{%r1, %r2, %r3, %r4}';
    const instruction = 'mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32.rn';
    const text = `.version 8.4\n.target sm_90\n.address_size 64\n.entry k() {\n.reg .b32 %r<9>;
${instruction} ${four}, ${four}, {%r5, %r6}, ${four};\nret;\n}\n`;
    assert.match(runPtx({ ptx: { text } }).refused.join(), /a rounding mode for these types/);
  });
});
