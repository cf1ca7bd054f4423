/** wmma: every shape and type, each matrix by rows and by columns, in global and shared memory, against products computed here. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import * as fp from './float.js';
import { random, runPtx } from './machine.js';

interface Type {
  readonly bytes: number;
  put(to: Buffer, index: number, value: number): void;
  get(from: Buffer, index: number): number;
  /** The type of a register of it. */
  readonly register: string;
}

const wide = new DataView(new ArrayBuffer(8));
function floatOf(format: fp.Format): Type {
  return {
    bytes: 2,
    register: 'b32',
    put: (to, index, value) => {
      wide.setFloat64(0, value);
      to.writeUInt16LE(Number(fp.encode(format, fp.decode(fp.F64, wide.getBigUint64(0)))), index * 2);
    },
    get: (from, index) => {
      const value = fp.decode(format, BigInt(from.readUInt16LE(index * 2)));
      assert.equal(value.kind, 'finite');
      return value.kind === 'finite'
        ? (value.negative ? -1 : 1) * Number(value.magnitude) * 2 ** value.scale
        : Number.NaN;
    },
  };
}
const TYPES = {
  f16: floatOf(fp.F16),
  bf16: floatOf(fp.BF16),
  tf32: {
    bytes: 4,
    register: 'b32',
    put: (to, i, x) => to.writeFloatLE(x, i * 4),
    get: (from, i) => from.readFloatLE(i * 4),
  },
  f32: {
    bytes: 4,
    register: 'f32',
    put: (to, i, x) => to.writeFloatLE(x, i * 4),
    get: (from, i) => from.readFloatLE(i * 4),
  },
  f64: {
    bytes: 8,
    register: 'f64',
    put: (to, i, x) => to.writeDoubleLE(x, i * 8),
    get: (from, i) => from.readDoubleLE(i * 8),
  },
  s8: {
    bytes: 1,
    register: 'b32',
    put: (to, i, x) => to.writeInt8(x, i),
    get: (from, i) => from.readInt8(i),
  },
  u8: {
    bytes: 1,
    register: 'b32',
    put: (to, i, x) => to.writeUInt8(x, i),
    get: (from, i) => from.readUInt8(i),
  },
  s32: {
    bytes: 4,
    register: 'b32',
    put: (to, i, x) => to.writeInt32LE(x, i * 4),
    get: (from, i) => from.readInt32LE(i * 4),
  },
} as const satisfies Record<string, Type>;
type Name = keyof typeof TYPES;

interface Case {
  readonly shape: readonly [m: number, n: number, k: number];
  readonly ab: Name;
  readonly c: Name;
  readonly d: Name;
  /** Registers of a, b, c and d. */
  readonly registers: readonly [number, number, number, number];
  /** A rounding behind the types, as nvcc 13 writes it for f64. */
  readonly rounding?: '.rn';
}

type Layout = 'row' | 'col';

/** A matrix as it lies in memory, its rows or columns `stride` elements apart. */
function laid(
  type: Type,
  values: readonly number[],
  rows: number,
  columns: number,
  layout: Layout,
  gap: number,
): Buffer {
  const stride = (layout === 'row' ? columns : rows) + gap;
  const out = Buffer.alloc(stride * (layout === 'row' ? rows : columns) * type.bytes);
  values.forEach((value, i) => {
    const [row, column] = [Math.floor(i / columns), i % columns];
    type.put(out, layout === 'row' ? row * stride + column : column * stride + row, value);
  });
  return out;
}

function check(
  how: Case,
  layouts: readonly [Layout, Layout, Layout, Layout],
  gap: number,
  shared: boolean,
): void {
  const [m, n, k] = how.shape;
  const next = random(m + n + gap);
  const [ab, c, d]: readonly Type[] = [TYPES[how.ab], TYPES[how.c], TYPES[how.d]];
  assert.ok(ab && c && d);
  const small = (): number =>
    how.ab === 'u8' ? next() % 256 : how.ab === 's8' ? (next() % 256) - 128 : (next() % 9) - 4;
  const a = Array.from({ length: m * k }, small);
  const b = Array.from({ length: k * n }, small);
  const before = Array.from({ length: m * n }, () => (next() % 65) - 32);
  const [la, lb, lc, ld] = layouts;
  const buffers = [
    laid(ab, a, m, k, la, gap),
    laid(ab, b, k, n, lb, gap),
    laid(c, before, m, n, lc, gap),
    laid(d, new Array<number>(m * n).fill(0), m, n, ld, gap),
  ];
  const stride = (layout: Layout, rows: number, columns: number): number =>
    (layout === 'row' ? columns : rows) + gap;
  const list = (name: string, count: number): string =>
    `{${Array.from({ length: count }, (_, i) => `%${name}${i}`).join(', ')}}`;
  const shape = `m${m}n${n}k${k}`;
  const types = `${how.ab === 'f16' ? `${how.d}.${how.c}` : `${how.d}.${how.ab}.${how.ab}.${how.c}`}${how.rounding ?? ''}`;
  const [na, nb, nc, nd] = how.registers;
  const space = shared ? 'shared' : 'global';
  // into shared memory word by word, and out of it
  const copy = (from: string, to: string, bytes: number, way: string): string =>
    Array.from(
      { length: Math.ceil(bytes / 4) },
      (_, i) =>
        `ld.${way === 'in' ? 'global' : 'shared'}.b32 %w, [${from}+${i * 4}]; st.${way === 'in' ? 'shared' : 'global'}.b32 [${to}+${i * 4}], %w;`,
    ).join('\n');
  const offsets = buffers.map((_, i) =>
    buffers.slice(0, i).reduce((sum, one) => sum + Math.ceil(one.length / 64) * 64, 0),
  );
  const padded = buffers.map((one) => Buffer.concat([one, Buffer.alloc((4 - (one.length % 4)) % 4)]));
  const at = (i: number): string => (shared ? `%s${i}` : `%rd${i}`);
  const text = `.version 8.4\n.target sm_90\n.address_size 64
.entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d)
{
.reg .b64 %rd<4>; .reg .b32 %s<4>; .reg .b32 %w; .reg .${ab.register} %a<8>; .reg .${ab.register} %b<8>;
.reg .${c.register} %c<8>; .reg .${d.register} %d<8>;
.shared .align 128 .b8 kept[16384];
ld.param.u64 %rd0, [a]; ld.param.u64 %rd1, [b]; ld.param.u64 %rd2, [c]; ld.param.u64 %rd3, [d];
${shared ? padded.map((one, i) => `mov.u32 %s${i}, kept; add.u32 %s${i}, %s${i}, ${offsets[i]};\n${i < 3 ? copy(`%rd${i}`, `%s${i}`, one.length, 'in') : ''}`).join('\n') : ''}
wmma.load.a.sync.aligned.${la}.${shape}.${space}.${how.ab} ${list('a', na)}, [${at(0)}], ${stride(la, m, k)};
wmma.load.b.sync.aligned.${lb}.${shape}.${space}.${how.ab} ${list('b', nb)}, [${at(1)}], ${stride(lb, k, n)};
wmma.load.c.sync.aligned.${lc}.${shape}.${space}.${how.c} ${list('c', nc)}, [${at(2)}], ${stride(lc, m, n)};
wmma.mma.sync.aligned.${la}.${lb}.${shape}.${types} ${list('d', nd)}, ${list('a', na)}, ${list('b', nb)}, ${list('c', nc)};
wmma.store.d.sync.aligned.${ld}.${shape}.${space}.${how.d} [${at(3)}], ${list('d', nd)}, ${stride(ld, m, n)};
${shared ? copy('%s3', '%rd3', padded[3]?.length ?? 0, 'out') : ''}
ret;
}
`;
  const outcome = runPtx({
    ptx: { text },
    buffers: padded,
    launches: [{ kernel: 'k', block: [32], args: ['b1', 'b2', 'b3', 'b4'] }],
  });
  assert.deepEqual(outcome.refused, []);
  assert.match(outcome.launches[0] ?? '', /^ok/);
  const out = outcome.buffers[3] ?? Buffer.alloc(0);
  const apart = stride(ld, m, n);
  for (let row = 0; row < m; row++) {
    for (let column = 0; column < n; column++) {
      let sum = before[row * n + column] ?? Number.NaN;
      for (let j = 0; j < k; j++) sum += (a[row * k + j] ?? Number.NaN) * (b[j * n + column] ?? Number.NaN);
      const found: number = d.get(out, ld === 'row' ? row * apart + column : column * apart + row);
      assert.equal(found, sum, `${row}, ${column} of ${shape}.${types} ${layouts.join()} ${space} ${gap}`);
    }
  }
}

const SHAPES = [
  [16, 16, 16],
  [32, 8, 16],
  [8, 32, 16],
] as const;
const CASES: readonly Case[] = [
  ...SHAPES.flatMap((shape): Case[] => {
    const [m, n] = shape;
    const bytes = (of: number): number => Math.max(1, of / 8);
    return [
      ...(['f16', 'f32'] as const).flatMap((c) =>
        (['f16', 'f32'] as const).map(
          (d): Case => ({
            shape,
            ab: 'f16',
            c,
            d,
            registers: [8, 8, c === 'f16' ? 4 : 8, d === 'f16' ? 4 : 8],
          }),
        ),
      ),
      { shape, ab: 'bf16', c: 'f32', d: 'f32', registers: [m / 4, n / 4, 8, 8] },
      { shape, ab: 's8', c: 's32', d: 's32', registers: [bytes(m), bytes(n), 8, 8] },
      { shape, ab: 'u8', c: 's32', d: 's32', registers: [bytes(m), bytes(n), 8, 8] },
    ];
  }),
  { shape: [16, 16, 8], ab: 'tf32', c: 'f32', d: 'f32', registers: [4, 4, 8, 8] },
  { shape: [8, 8, 4], ab: 'f64', c: 'f64', d: 'f64', registers: [1, 1, 2, 2] },
  { shape: [8, 8, 4], ab: 'f64', c: 'f64', d: 'f64', registers: [1, 1, 2, 2], rounding: '.rn' },
];
const LAYOUTS: readonly Layout[] = ['row', 'col'];

describe('wmma', () => {
  for (const how of CASES) {
    it(`multiplies ${how.ab} to ${how.d}, adding to ${how.c}, ${how.shape.join(' by ')}${how.rounding ?? ''}`, () => {
      for (const la of LAYOUTS)
        for (const lb of LAYOUTS)
          for (const [lc, ld] of [
            ['row', 'col'],
            ['col', 'row'],
          ] as const)
            check(how, [la, lb, lc, ld], la === lb ? 16 : 3, lc === 'row');
    });
  }
});
