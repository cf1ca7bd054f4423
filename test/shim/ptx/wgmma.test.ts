/** Products of a warp group (wgmma), against products computed here. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { bytes, random, runPtx, u32 } from './machine.js';

function at<T>(list: ArrayLike<T>, index: number): T {
  const value = list[index];
  assert.ok(value !== undefined, `no element ${index} of ${list.length}`);
  return value;
}

/** How a type's elements look, and which values fit it so well that every sum is exact. */
interface Type {
  readonly bits: number;
  encode(value: number): number;
  values(next: () => number): number;
}

/** A float of few bits, for values that it holds exactly and normally. */
function small(exponentBits: number, fractionBits: number): (value: number) => number {
  const bias = 2 ** (exponentBits - 1) - 1;
  return (value) => {
    if (value === 0) return 0;
    const exponent = Math.floor(Math.log2(Math.abs(value)));
    const fraction = (Math.abs(value) / 2 ** exponent - 1) * 2 ** fractionBits;
    assert.equal(fraction, Math.floor(fraction), `${value} does not fit`);
    const sign = value < 0 ? 2 ** (exponentBits + fractionBits) : 0;
    return sign + (exponent + bias) * 2 ** fractionBits + fraction;
  };
}
const eighths = (next: () => number): number => ((next() % 33) - 16) / 8;
const few = (next: () => number): number => at([0, 0.5, 1, 1.5, 2, 3, -0.5, -1, -1.5, -3], next() % 10);
const TYPES: Record<string, Type> = {
  f16: { bits: 16, encode: small(5, 10), values: eighths },
  bf16: { bits: 16, encode: small(8, 7), values: eighths },
  tf32: { bits: 32, encode: small(8, 23), values: eighths },
  e4m3: { bits: 8, encode: small(4, 3), values: few },
  e5m2: { bits: 8, encode: small(5, 2), values: few },
  s8: { bits: 8, encode: (value) => value & 0xff, values: (next) => (next() % 256) - 128 },
  u8: { bits: 8, encode: (value) => value, values: (next) => next() % 256 },
  b1: { bits: 1, encode: (value) => value, values: (next) => next() % 2 },
};
const typeOf = (name: string): Type => {
  const type = TYPES[name];
  assert.ok(type);
  return type;
};

interface Case {
  readonly d: 'f32' | 'f16' | 's32';
  readonly a: string;
  readonly b: string;
  readonly n: number;
  /** Bytes of the swizzle of both; 0: none. */
  readonly swizzle: 0 | 32 | 64 | 128;
  readonly registers?: boolean;
  readonly transposed?: { readonly a?: boolean; readonly b?: boolean };
  readonly negated?: { readonly a?: boolean; readonly b?: boolean };
  readonly saturated?: boolean;
  /** scale-d: whether d is added to. */
  readonly adds?: boolean;
  /** Every other element of a is not there: which lanes have the metadata. */
  readonly sparse?: 0 | 1;
}

/** Rows of which every other element (of tf32: one of two) is there, where each is, and the register that says so. */
function halfEmpty(type: Type, how: Case, rows: number, k: number, next: () => number, value: () => number) {
  const group = type.bits === 32 ? 2 : 4;
  const dense = new Array<number>(rows * k).fill(0);
  const stored: number[] = [];
  const metadata = Buffer.alloc(128 * 4, 0xff);
  const pairs = [0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b1110];
  for (let row = 0; row < rows; row++) {
    let bits = 0n;
    for (let chunk = 0; chunk < k / group; chunk++) {
      const said = group === 2 ? at([0b0100, 0b1110], next() % 2) : at(pairs, next() % 6);
      for (const place of group === 2 ? [said === 0b0100 ? 0 : 1] : [said & 3, said >> 2]) {
        const element = value();
        dense[row * k + chunk * group + place] = element;
        stored.push(element);
      }
      bits |= BigInt(said) << BigInt(chunk * 4);
    }
    const first = (row >> 4) * 32 + (row & 7) * 4;
    const below = (row >> 3) & 1;
    for (let part = 0; part < 2; part++) {
      // 8-bit elements: half a row, 32 bits, in a lane; else 16 bits of a row and 16 of the row 8 below
      if (type.bits === 8)
        metadata.writeUInt32LE(
          Number((bits >> BigInt(part * 32)) & 0xffffffffn),
          (first + part * 2 + below) * 4,
        );
      else
        metadata.writeUInt16LE(
          Number((bits >> BigInt(part * 16)) & 0xffffn),
          (first + (how.sparse ?? 0) * 2 + part) * 4 + below * 2,
        );
    }
  }
  return { dense, stored, metadata };
}

/** Where the 16 bytes with this row and column of 16-byte units lie, as the PTX ISA's tables of layouts say. */
function unit(
  how: Case,
  across: boolean,
  row: number,
  column: number,
  leading: number,
  stride: number,
): number {
  const width = how.swizzle === 0 ? 1 : how.swizzle / 16;
  let offset: number;
  if (!across) {
    // 8 rows make a core matrix; rows go on by the stride, and without a swizzle columns by the leading distance
    offset = (row % 8) * width * 16 + Math.floor(row / 8) * stride + column * (width === 1 ? leading : 16);
  } else if (width === 1) {
    // `row` is along k, `column` counts 8 elements of the other dimension
    offset = (row % 8) * 16 + Math.floor(row / 8) * leading + column * stride;
  } else {
    offset = (row % 8) * width * 16 + Math.floor(row / 8) * stride;
    offset += (column % width) * 16 + Math.floor(column / width) * leading;
  }
  return offset ^ ((Math.floor(offset / 128) % width) * 16);
}

interface Placed {
  readonly image: Buffer;
  readonly leading: number;
  readonly stride: number;
}

/** A matrix of `rows` by `k` elements as it lies in shared memory. */
function place(
  how: Case,
  type: Type,
  values: readonly number[],
  rows: number,
  k: number,
  across: boolean,
): Placed {
  const width = how.swizzle === 0 ? 1 : how.swizzle / 16;
  const pattern = width * 128;
  const groups = Math.ceil(rows / 8);
  // Not the tightest, so that the two distances are not mixed up.
  const leading = across && width > 1 ? 2 * pattern : across ? groups * pattern + 256 : groups * pattern;
  const stride = across && width === 1 ? 128 : across ? Math.ceil(groups / width) * 2 * pattern : pattern;
  const image = Buffer.alloc(1 << 18);
  let end = 0;
  const put = (index: number, bit: number, value: number): void => {
    end = Math.max(end, index + 4);
    if (type.bits === 32) image.writeUInt32LE(value, index);
    else if (type.bits === 16) image.writeUInt16LE(value, index);
    else if (type.bits === 8) image.writeUInt8(value, index);
    else image.writeUInt8(image.readUInt8(index) | (value << bit), index);
  };
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < k; column++) {
      const value = type.encode(at(values, row * k + column));
      if (across) {
        const offset = unit(how, true, column, Math.floor(row / 8), leading, stride);
        put(offset + (row % 8) * 2, 0, value);
      } else {
        const bit = column * type.bits;
        const offset = unit(how, false, row, Math.floor(bit / 128), leading, stride);
        put(offset + Math.floor((bit % 128) / 8), bit % 8, value);
      }
    }
  }
  return { image: image.subarray(0, end), leading, stride };
}

function descriptor(how: Case, placed: Placed, start: number): bigint {
  const mode = { 0: 0n, 128: 1n, 64: 2n, 32: 3n }[how.swizzle];
  const field = (value: number): bigint => BigInt((value >> 4) & 0x3fff);
  return field(start) | (field(placed.leading) << 16n) | (field(placed.stride) << 32n) | (mode << 62n);
}

function kernel(how: Case, k: number): string {
  const count = how.d === 'f16' ? how.n / 4 : how.n / 2;
  const list = Array.from({ length: count }, (_, i) => `%d${i}`).join(', ');
  const scales = how.d === 's32' ? [] : [how.negated?.a === true ? -1 : 1, how.negated?.b === true ? -1 : 1];
  const turns =
    typeOf(how.a).bits !== 16 ? [] : [how.transposed?.a === true ? 1 : 0, how.transposed?.b === true ? 1 : 0];
  if (how.registers === true) turns.shift();
  const operands = [
    `{${list}}`,
    how.registers === true ? '{%a0, %a1, %a2, %a3}' : '%rd2',
    '%rd3',
    ...(how.sparse === undefined ? [] : ['%r7', how.sparse]),
    '%p1',
    ...scales,
    ...turns,
  ];
  const more = how.a === 'b1' ? '.and.popc' : how.saturated === true ? '.satfinite' : '';
  return `.version 8.4
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 memory[];
.visible .entry product(.param .u64 image, .param .u32 words, .param .u64 d, .param .u64 a, .param .u64 b,
                        .param .u32 adds, .param .u64 fragments, .param .u64 metadata)
{
  .reg .b32 %r<9>; .reg .b32 %d<128>; .reg .b32 %a<4>; .reg .b64 %rd<9>; .reg .pred %p<3>;
  ld.param.u64 %rd0, [image];
  ld.param.u32 %r0, [words];
  ld.param.u64 %rd1, [d];
  ld.param.u64 %rd2, [a];
  ld.param.u64 %rd3, [b];
  ld.param.u32 %r1, [adds];
  ld.param.u64 %rd4, [fragments];
  ld.param.u64 %rd6, [metadata];
  setp.ne.u32 %p1, %r1, 0;
  mov.u32 %r2, %tid.x;
  mov.u32 %r3, %r2;
again:
  setp.ge.u32 %p2, %r3, %r0;
  @%p2 bra done;
  mul.wide.u32 %rd5, %r3, 4;
  add.u64 %rd5, %rd0, %rd5;
  ld.global.u32 %r4, [%rd5];
  mov.u32 %r5, memory;
  shl.b32 %r6, %r3, 2;
  add.u32 %r5, %r5, %r6;
  st.shared.u32 [%r5], %r4;
  add.u32 %r3, %r3, 128;
  bra again;
done:
  bar.sync 0;
  mad.wide.u32 %rd1, %r2, ${count * 4}, %rd1;
  mad.wide.u32 %rd4, %r2, 16, %rd4;
  mad.wide.u32 %rd6, %r2, 4, %rd6;
  ld.global.b32 %r7, [%rd6];
${Array.from({ length: count }, (_, i) => `  ld.global.b32 %d${i}, [%rd1+${i * 4}];`).join('\n')}
${Array.from({ length: 4 }, (_, i) => `  ld.global.b32 %a${i}, [%rd4+${i * 4}];`).join('\n')}
  wgmma.fence.sync.aligned;
  wgmma.mma_async${how.sparse === undefined ? '' : '.sp'}.sync.aligned.m64n${how.n}k${k}.${how.d}.${how.a}.${how.b}${more} ${operands.join(', ')};
  wgmma.commit_group.sync.aligned;
  wgmma.wait_group.sync.aligned 0;
${Array.from({ length: count }, (_, i) => `  st.global.b32 [%rd1+${i * 4}], %d${i};`).join('\n')}
  ret;
}
`;
}

/** Calls back with each element of d: thread, register, row, column. */
function eachOfD(n: number, visit: (thread: number, i: number, row: number, column: number) => void): void {
  for (let thread = 0; thread < 128; thread++) {
    const [warp, lane] = [thread >> 5, thread & 31];
    for (let i = 0; i < n / 2; i++) {
      const row = warp * 16 + (lane >> 2) + ((i >> 1) & 1) * 8;
      visit(thread, i, row, (i >> 2) * 8 + (lane & 3) * 2 + (i & 1));
    }
  }
}

function check(how: Case): void {
  const next = random(how.n + how.swizzle + 1);
  const [typeA, typeB] = [typeOf(how.a), typeOf(how.b)];
  const sparse = how.sparse !== undefined;
  const k = (256 / typeA.bits) * (sparse ? 2 : 1);
  // A sum that is a half holds 11 bits.
  const of = (type: Type): number => (how.d === 'f16' ? (next() % 9) - 4 : type.values(next));
  const empty = sparse ? halfEmpty(typeA, how, 64, k, next, () => of(typeA)) : undefined;
  const a = empty?.dense ?? Array.from({ length: 64 * k }, () => of(typeA));
  const stored = empty?.stored ?? a;
  const storedK = stored.length / 64;
  const b = Array.from({ length: how.n * k }, () => of(typeB));
  const small16 = small(5, 10);
  const before = Array.from({ length: 64 * how.n }, () =>
    how.saturated === true ? (next() % 2 === 0 ? 2147483600 : -2147483600) : (next() % 65) - 32,
  );
  const placedA = place(how, typeA, stored, 64, storedK, how.transposed?.a === true);
  const placedB = place(how, typeB, b, how.n, k, how.transposed?.b === true);
  const startB = Math.ceil(placedA.image.length / 1024) * 1024;
  const image = Buffer.alloc(startB + Math.ceil(placedB.image.length / 4) * 4);
  placedA.image.copy(image, 0);
  placedB.image.copy(image, startB);
  const count = how.d === 'f16' ? how.n / 4 : how.n / 2;
  const d = Buffer.alloc(128 * count * 4);
  eachOfD(how.n, (thread, i, row, column) => {
    const value = at(before, row * how.n + column);
    if (how.d === 'f32') d.writeFloatLE(value, (thread * count + i) * 4);
    else if (how.d === 's32') d.writeInt32LE(value, (thread * count + i) * 4);
    else d.writeUInt16LE(small16(value), thread * count * 4 + i * 2);
  });
  const fragments = Buffer.alloc(128 * 16);
  for (let thread = 0; thread < 128; thread++) {
    const lane = thread & 31;
    for (let bit = 0; bit < 128; bit += typeA.bits) {
      const i = Math.floor(bit / 32);
      const row = (thread >> 5) * 16 + (lane >> 2) + (i & 1) * 8;
      const column = ((lane & 3) * 32 + (i >> 1) * 128 + (bit % 32)) / typeA.bits;
      const value = typeA.encode(at(stored, row * storedK + column));
      const [byte, within] = [thread * 16 + Math.floor(bit / 8), bit % 8];
      if (typeA.bits === 32) fragments.writeUInt32LE(value, byte);
      else if (typeA.bits === 16) fragments.writeUInt16LE(value, byte);
      else fragments.writeUInt8(fragments.readUInt8(byte) | (value << within), byte);
    }
  }
  const adds = how.adds !== false;
  const outcome = runPtx({
    ptx: { text: kernel(how, k) },
    buffers: [image, d, fragments, empty?.metadata ?? 512],
    launches: [
      {
        kernel: 'product',
        block: [128],
        shared: image.length,
        args: [
          'b1',
          `u32:${image.length / 4}`,
          'b2',
          `u64:${descriptor(how, placedA, 0)}`,
          `u64:${descriptor(how, placedB, startB)}`,
          `u32:${adds ? 1 : 0}`,
          'b3',
          'b4',
        ],
      },
    ],
  });
  assert.match(outcome.load, /^ok /);
  assert.match(at(outcome.launches, 0), /^ok /);
  const out = at(outcome.buffers, 1);
  const sign = (how.negated?.a === true ? -1 : 1) * (how.negated?.b === true ? -1 : 1);
  const wrong: string[] = [];
  eachOfD(how.n, (thread, i, row, column) => {
    let sum = 0;
    for (let j = 0; j < k; j++) sum += at(a, row * k + j) * at(b, column * k + j) * sign;
    if (adds) sum += at(before, row * how.n + column);
    if (how.saturated === true) sum = Math.max(-(2 ** 31), Math.min(2 ** 31 - 1, sum));
    const place = (thread * count + i) * 4;
    const [expected, found] =
      how.d === 'f32'
        ? [sum, out.readFloatLE(place)]
        : how.d === 's32'
          ? [sum, out.readInt32LE(place)]
          : [small16(sum), out.readUInt16LE(thread * count * 4 + i * 2)];
    if (expected !== found && wrong.length < 5) wrong.push(`${row},${column}: ${found}, not ${expected}`);
  });
  assert.deepEqual(wrong, []);
}

const SWIZZLES = [0, 32, 64, 128] as const;
/** Types of the sum and of both matrices; b1 has no sparse form. */
const PRODUCTS = [
  ['f32', 'f16', 'f16'],
  ['f16', 'f16', 'f16'],
  ['f32', 'bf16', 'bf16'],
  ['f32', 'tf32', 'tf32'],
  ['f32', 'e4m3', 'e5m2'],
  ['f32', 'e5m2', 'e4m3'],
  ['f16', 'e4m3', 'e4m3'],
  ['f16', 'e5m2', 'e4m3'],
  ['s32', 's8', 'u8'],
  ['s32', 'u8', 's8'],
  ['s32', 'b1', 'b1'],
] as const;

describe('wgmma', () => {
  for (const swizzle of SWIZZLES) {
    describe(`with a swizzle of ${swizzle} bytes`, () => {
      for (const [d, a, b] of PRODUCTS) {
        it(`multiplies ${a} by ${b} to ${d}`, () => check({ d, a, b, n: 64, swizzle }));
        if (swizzle === 0)
          it(`takes ${a} from registers too, and does not add`, () =>
            check({ d, a, b, n: 24, swizzle, registers: true, adds: false }));
      }
      for (const type of ['f16', 'bf16']) {
        it(`takes a transposed matrix of ${type}`, () => {
          check({ d: 'f32', a: type, b: type, n: 128, swizzle, transposed: { b: true } });
          check({ d: 'f32', a: type, b: type, n: 64, swizzle, transposed: { a: true } });
          check({ d: 'f32', a: type, b: type, n: 40, swizzle, transposed: { a: true, b: true } });
          check({ d: 'f32', a: type, b: type, n: 96, swizzle, transposed: { b: true }, registers: true });
        });
      }
    });
  }

  it('has every width from 8 to 256', () => {
    for (let n = 8; n <= 256; n += 8) check({ d: 'f32', a: 'f16', b: 'f16', n, swizzle: 128 });
  });

  it('negates either matrix', () => {
    for (const negated of [{ a: true }, { b: true }, { a: true, b: true }]) {
      check({ d: 'f32', a: 'f16', b: 'f16', n: 32, swizzle: 64, negated });
      check({ d: 'f32', a: 'e5m2', b: 'e5m2', n: 32, swizzle: 64, negated });
      check({ d: 'f32', a: 'tf32', b: 'tf32', n: 32, swizzle: 0, negated, registers: true });
    }
  });

  for (const [d, a, b] of PRODUCTS.filter(([, type]) => type !== 'b1')) {
    it(`multiplies a sparse matrix of ${a} by ${b} to ${d}`, () => {
      for (const swizzle of [0, 64, 128] as const) {
        check({ d, a, b, n: 64, swizzle, sparse: 0 });
        check({ d, a, b, n: 256, swizzle, sparse: typeOf(a).bits === 8 ? 0 : 1 });
        check({ d, a, b, n: 24, swizzle, sparse: 0, registers: true, adds: false });
      }
    });
  }

  it('takes a sparse matrix with either matrix transposed', () => {
    for (const swizzle of SWIZZLES) {
      check({
        d: 'f32',
        a: 'f16',
        b: 'f16',
        n: 128,
        swizzle,
        sparse: 1,
        transposed: { b: true },
        registers: true,
      });
      check({ d: 'f32', a: 'bf16', b: 'bf16', n: 40, swizzle, sparse: 0, transposed: { a: true, b: true } });
    }
    check({ d: 'f32', a: 'f16', b: 'f16', n: 32, swizzle: 64, sparse: 0, negated: { a: true } });
    check({ d: 's32', a: 's8', b: 's8', n: 32, swizzle: 64, sparse: 0, saturated: true });
  });

  it('says that rows of 64 bytes do not fit into a swizzle of 32', () => {
    const outcome = runPtx({
      ptx: { text: kernel({ d: 'f32', a: 'f16', b: 'f16', n: 8, swizzle: 32, sparse: 0 }, 32) },
      buffers: [16, 128 * 16, 128 * 16, 512],
      launches: [
        {
          kernel: 'product',
          block: [128],
          shared: 8192,
          args: ['b1', 'u32:4', 'b2', `u64:${3n << 62n}`, `u64:${3n << 62n}`, 'u32:0', 'b3', 'b4'],
        },
      ],
    });
    assert.match(at(outcome.launches, 0), /^error .*wgmma whose rows are wider than its swizzle/);
  });

  it('saturates sums of integers with .satfinite', () => {
    check({ d: 's32', a: 's8', b: 's8', n: 32, swizzle: 32, saturated: true });
  });

  const text = (instruction: string): string => `.version 8.4
.target sm_90a
.address_size 64
.entry k() { .reg .b32 %r<64>; .reg .b64 %rd<4>; .reg .pred %p<2>; ${instruction}; ret; }
`;
  const list = (count: number): string => `{${Array.from({ length: count }, (_, i) => `%r${i}`).join(',')}}`;
  for (const [what, instruction] of [
    [
      'a width that does not exist',
      `wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16 ${list(6)}, %rd1, %rd2, %p1, 1, 1, 0, 0`,
    ],
    [
      'a width that integers do not have',
      `wgmma.mma_async.sync.aligned.m64n40k32.s32.s8.s8 ${list(20)}, %rd1, %rd2, %p1`,
    ],
    [
      'another depth',
      `wgmma.mma_async.sync.aligned.m64n8k8.f32.f16.f16 ${list(4)}, %rd1, %rd2, %p1, 1, 1, 0, 0`,
    ],
    [
      'too few registers',
      `wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 ${list(3)}, %rd1, %rd2, %p1, 1, 1, 0, 0`,
    ],
    [
      'a selector that there is not',
      `wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 ${list(4)}, %rd1, %rd2, %r1, 2, %p1, 1, 1, 0, 0`,
    ],
    [
      'a selector where all lanes have metadata',
      `wgmma.mma_async.sp.sync.aligned.m64n8k64.s32.s8.s8 ${list(4)}, %rd1, %rd2, %r1, 1, %p1`,
    ],
    [
      'the depth of a full matrix for a sparse one',
      `wgmma.mma_async.sp.sync.aligned.m64n8k16.f32.f16.f16 ${list(4)}, %rd1, %rd2, %r1, 0, %p1, 1, 1, 0, 0`,
    ],
    [
      'a scale of 2',
      `wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 ${list(4)}, %rd1, %rd2, %p1, 2, 1, 0, 0`,
    ],
  ] as const) {
    it(`is refused with ${what}`, () => {
      assert.match(
        runPtx({ ptx: { text: text(instruction) } }).refused.join(),
        /^line 4: wgmma\S* is not supported/,
      );
    });
  }

  it('says that a matrix lies outside of shared memory', () => {
    const outcome = runPtx({
      ptx: { text: kernel({ d: 'f32', a: 'f16', b: 'f16', n: 8, swizzle: 0 }, 16) },
      buffers: [16, 128 * 16, 128 * 16, 512],
      launches: [
        {
          kernel: 'product',
          block: [128],
          shared: 1024,
          args: ['b1', 'u32:4', 'b2', 'u64:0', 'u64:256', 'u32:0', 'b3', 'b4'],
        },
      ],
    });
    assert.match(at(outcome.launches, 0), /^error illegal address: .*wgmma/);
  });

  it('lets no warp go on before the whole group has read', () => {
    // Warp 0 does not meet the others again: it waits for its products, then overwrites what they read.
    const outcome = runPtx({
      ptx: {
        text: `.version 8.4
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 memory[];
.visible .entry late(.param .u64 out)
{
  .reg .b32 %r<9>; .reg .b32 %d<4>; .reg .b64 %rd<5>; .reg .pred %p<3>;
  ld.param.u64 %rd0, [out];
  mov.u32 %r0, %tid.x;
  shl.b32 %r1, %r0, 3;
  mov.u32 %r2, memory;
  add.u32 %r2, %r2, %r1;
  mov.b32 %r3, 0x3c003c00;
  st.shared.b32 [%r2], %r3;
  st.shared.b32 [%r2+4], %r3;
  st.shared.b32 [%r2+1024], %r3;
  st.shared.b32 [%r2+1028], %r3;
  bar.sync 0;
  setp.lt.u32 %p1, %r0, 32;
  @%p1 bra go;
  nanosleep.u32 100;
go:
  mov.b64 %rd1, 0x0000000800080000;
  wgmma.fence.sync.aligned;
  wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%d0, %d1, %d2, %d3}, %rd1, %rd1, 0, 1, 1, 0, 0;
  wgmma.commit_group.sync.aligned;
  wgmma.wait_group.sync.aligned 0;
  mov.b32 %r3, 0;
  @%p1 st.shared.b32 [%r2], %r3;
  @%p1 st.shared.b32 [%r2+4], %r3;
  mad.wide.u32 %rd0, %r0, 4, %rd0;
  st.global.b32 [%rd0], %d0;
  ret;
}
`,
      },
      buffers: [512],
      launches: [{ kernel: 'late', block: [128], shared: 4096, args: ['b1'] }],
    });
    assert.match(at(outcome.launches, 0), /^ok /);
    assert.deepEqual([...u32(at(outcome.buffers, 0))], [...u32(bytes(new Float32Array(128).fill(16)))]);
  });

  it('lets no warp go on before warps that have not begun', () => {
    // The matrices are zeros until warp 0 has its products; a second block begins in the memory of the first.
    const outcome = runPtx({
      ptx: {
        text: `.version 8.4
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 memory[];
.visible .entry early(.param .u64 out)
{
  .reg .b32 %r<9>; .reg .b32 %d<4>; .reg .b64 %rd<5>; .reg .pred %p<3>;
  ld.param.u64 %rd0, [out];
  mov.u32 %r0, %tid.x;
  shl.b32 %r1, %r0, 4;
  mov.u32 %r2, memory;
  add.u32 %r2, %r2, %r1;
  mov.b64 %rd1, 0x0000000800080000;
  wgmma.fence.sync.aligned;
  wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%d0, %d1, %d2, %d3}, %rd1, %rd1, 0, 1, 1, 0, 0;
  wgmma.commit_group.sync.aligned;
  wgmma.wait_group.sync.aligned 0;
  setp.lt.u32 %p1, %r0, 32;
  mov.b32 %r3, 0x3c003c00;
  @%p1 st.shared.v4.b32 [%r2], {%r3, %r3, %r3, %r3};
  bar.sync 0;
  mov.b32 %r3, 0;
  st.shared.v4.b32 [%r2], {%r3, %r3, %r3, %r3};
  mov.u32 %r4, %ctaid.x;
  mad.lo.u32 %r4, %r4, 128, %r0;
  mad.wide.u32 %rd0, %r4, 4, %rd0;
  st.global.b32 [%rd0], %d0;
  ret;
}
`,
      },
      buffers: [Buffer.alloc(1024, 0xff)],
      launches: [{ kernel: 'early', grid: [2], block: [128], shared: 4096, args: ['b1'] }],
    });
    assert.match(at(outcome.launches, 0), /^ok /);
    assert.deepEqual(at(outcome.buffers, 0), Buffer.alloc(1024));
  });
});
