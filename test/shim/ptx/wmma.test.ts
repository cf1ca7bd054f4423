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
type Space = 'global' | 'shared' | 'generic';
/** Registers that are not adjacent; d in the registers of c, of c from the second on, of a and b. */
type Registers = 'plain' | 'scattered' | 'd is c' | 'd over c' | 'd over a';

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
  space: Space,
  of: Registers = 'plain',
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
  const shape = `m${m}n${n}k${k}`;
  const types = `${how.ab === 'f16' ? `${how.d}.${how.c}` : `${how.d}.${how.ab}.${how.ab}.${how.c}`}${how.rounding ?? ''}`;
  const [na, nb, nc, nd] = how.registers;
  const list = (registers: readonly string[]): string => `{${registers.join(', ')}}`;
  const shared = space === 'shared' || space === 'generic';
  const suffix = space === 'generic' ? '' : `.${space}`;
  const names = (name: string, count: number): string[] =>
    Array.from({ length: count }, (_, i) => `%${name}${i}`);
  const all = { a: names('a', na), b: names('b', nb), c: names('c', nc), d: names('d', nd) };
  // the first that appears is the first in the frame
  const first =
    of === 'scattered'
      ? Object.values(all)
          .flatMap((list) => list.toReversed())
          .map((name) => `mov.${TYPES[how.ab] === TYPES.f64 ? 'b64' : 'b32'} ${name}, 0;`)
          .join(' ')
      : '';
  const ofD = {
    plain: all.d,
    scattered: all.d,
    'd is c': all.c,
    'd over c': [...all.c.slice(1), ...all.d.slice(nc - 1)],
    'd over a': [...all.a, ...all.b, ...all.d].slice(0, nd),
  }[of];
  // Into shared memory, and out of it. LLVM took an hour for a load and a store of each word.
  const copy = (number: number, bytes: number, way: 'in' | 'out'): string => `
mov.u32 %i, %tid.x; shl.b32 %i, %i, 2;
copy${number}: setp.ge.u32 %more, %i, ${bytes}; @%more bra copied${number};
cvt.u64.u32 %rd8, %i; add.u64 %rd8, %rd8, %rd${number}; add.u32 %j, %i, %s${number};
${way === 'in' ? 'ld.global.b32 %w, [%rd8]; st.shared.b32 [%j], %w;' : 'ld.shared.b32 %w, [%j]; st.global.b32 [%rd8], %w;'}
add.u32 %i, %i, 128; bra copy${number};
copied${number}: bar.warp.sync 0xffffffff;`;
  const offsets = buffers.map((_, i) =>
    buffers.slice(0, i).reduce((sum, one) => sum + Math.ceil(one.length / 64) * 64, 0),
  );
  const padded = buffers.map((one) => Buffer.concat([one, Buffer.alloc((4 - (one.length % 4)) % 4)]));
  const at = (i: number): string =>
    space === 'generic' ? `%rd${4 + i}` : space === 'shared' ? `%s${i}` : `%rd${i}`;
  const text = `.version 8.4\n.target sm_90\n.address_size 64
.entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d)
{
.reg .b64 %rd<9>; .reg .b32 %s<4>; .reg .b32 %i, %j, %w, %n; .reg .pred %more; .reg .${ab.register} %a<8>; .reg .${ab.register} %b<8>;
.reg .${c.register} %c<8>; .reg .${d.register} %d<8>;
.shared .align 128 .b8 kept[16384];
ld.param.u64 %rd0, [a]; ld.param.u64 %rd1, [b]; ld.param.u64 %rd2, [c]; ld.param.u64 %rd3, [d];
${shared ? padded.map((one, i) => `mov.u32 %s${i}, kept; add.u32 %s${i}, %s${i}, ${offsets[i]};\n${i < 3 ? copy(i, one.length, 'in') : ''}`).join('\n') : ''}
${space === 'generic' ? [0, 1, 2, 3].map((i) => `cvt.u64.u32 %rd${4 + i}, %s${i}; cvta.shared.u64 %rd${4 + i}, %rd${4 + i};`).join('\n') : ''}
${first}
mov.b32 %n, 2;
again:
wmma.load.a.sync.aligned.${la}.${shape}${suffix}.${how.ab} ${list(all.a)}, [${at(0)}], ${stride(la, m, k)};
wmma.load.b.sync.aligned.${lb}.${shape}${suffix}.${how.ab} ${list(all.b)}, [${at(1)}], ${stride(lb, k, n)};
wmma.load.c.sync.aligned.${lc}.${shape}${suffix}.${how.c} ${list(all.c)}, [${at(2)}], ${stride(lc, m, n)};
wmma.mma.sync.aligned.${la}.${lb}.${shape}.${types} ${list(ofD)}, ${list(all.a)}, ${list(all.b)}, ${list(all.c)};
wmma.store.d.sync.aligned.${ld}.${shape}${suffix}.${how.d} [${at(3)}], ${list(ofD)}, ${stride(ld, m, n)};
// what an instruction finds out of the memory helps it the next time
sub.u32 %n, %n, 1;
setp.ne.u32 %more, %n, 0;
@%more bra again;
${shared ? copy(3, padded[3]?.length ?? 0, 'out') : ''}
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
      assert.equal(
        found,
        sum,
        `${row}, ${column} of ${shape}.${types} ${layouts.join()} ${space} ${gap} ${of}`,
      );
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
            check(how, [la, lb, lc, ld], la === lb ? 16 : 3, lc === 'row' ? 'shared' : 'global');
    });
  }
  for (const how of CASES.filter((one) => one.rounding === undefined)) {
    const [na, nb, nc, nd] = how.registers;
    it(`multiplies ${how.ab} to ${how.d}, adding to ${how.c}, ${how.shape.join(' by ')} wherever its registers are`, () => {
      check(how, ['row', 'col', 'row', 'row'], 16, 'generic', 'scattered');
      check(how, ['row', 'col', 'row', 'row'], 8, 'global', 'd over c');
      if (how.c === how.d) check(how, ['row', 'row', 'row', 'row'], 8, 'shared', 'd is c');
      if (na + nb >= nd && nc === nd) check(how, ['col', 'col', 'row', 'row'], 8, 'generic', 'd over a');
    });
  }

  it('reports the row that is outside of the memory, and one that is not aligned', () => {
    // the first time in the middle of the buffer, the second time where it is told
    const launch = (kind: 'load' | 'store', offset: number): string => {
      const fragment = '{%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7}';
      const operation =
        kind === 'load'
          ? `wmma.load.a.sync.aligned.row.m16n16k16.global.f16 ${fragment}, [%rd], 32;`
          : `wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%rd], ${fragment}, 16;`;
      const text = `.version 8.4\n.target sm_90\n.address_size 64
.entry k(.param .u64 a)
{
.reg .b64 %rd; .reg .b32 %r<8>, %n; .reg .pred %more;
ld.param.u64 %rd, [a];
add.u64 %rd, %rd, 1024;
mov.b32 %n, 2;
again:
${operation}
add.s64 %rd, %rd, ${offset - 1024};
sub.u32 %n, %n, 1;
setp.ne.u32 %more, %n, 0;
@%more bra again;
ret;
}
`;
      const arg = { kernel: 'k', block: [32], args: ['b1'] };
      return runPtx({ ptx: { text }, buffers: [4096], launches: [arg] }).launches[0] ?? '';
    };
    // 16 rows of 32 bytes, 64 apart; 16 of 64
    assert.match(launch('load', 3104), /^ok /);
    assert.match(
      launch('load', 3136),
      /^error .*an access of 32 bytes at 0x200100001000 is outside of device memory/,
    );
    assert.match(
      launch('load', 3120),
      /^error .*an access of 2 bytes at 0x200100001000 is outside of device memory/,
    );
    assert.match(
      launch('load', -64),
      /^error .*an access of 32 bytes at 0x2000ffffffc0 is outside of device/,
    );
    assert.match(launch('load', 1), /^error .*is not aligned/);
    assert.match(launch('store', 3072), /^ok /);
    assert.match(
      launch('store', 3136),
      /^error .*an access of 64 bytes at 0x200100001000 is outside of device memory/,
    );
  });
});

describe('wmma of 4-bit and 1-bit elements', () => {
  const packedCases = [
    { type: 's4', k: 32, operation: '' },
    { type: 'u4', k: 32, operation: '' },
    { type: 's4', k: 32, operation: '', saturate: true },
    { type: 'b1', k: 128, operation: '.xor.popc' },
    { type: 'b1', k: 128, operation: '.and.popc' },
  ] as const;
  for (const how of packedCases)
    for (const [space, gap] of [
      ['.global', 0],
      ['.shared', 128],
      ['', 256],
    ] as const)
      it(`multiplies ${how.type}${how.operation}${'saturate' in how ? '.satfinite' : ''} from ${space === '' ? 'generic' : space.slice(1)} memory`, () => {
        const bits = how.type === 'b1' ? 1 : 4;
        const next = random(how.k + gap);
        const stride = how.k + gap;
        const bytesOf = (8 * stride * bits) / 8;
        const [a, b] = [Buffer.alloc(bytesOf), Buffer.alloc(bytesOf)].map((buffer) =>
          buffer.map(() => next() & 255),
        ) as [Buffer, Buffer];
        const c = Array.from({ length: 64 }, (_, i) =>
          'saturate' in how ? (i % 2 === 0 ? 2 ** 31 - 1 : -(2 ** 31)) : (next() % 2000) - 1000,
        );
        const element = (from: Buffer, run: number, i: number): number => {
          const at = (run * stride + i) * bits;
          const value = ((from[at >> 3] ?? 0) >> (at & 7)) & (2 ** bits - 1);
          return how.type === 's4' && value > 7 ? value - 16 : value;
        };
        const combine = (x: number, y: number): number => (how.operation === '.xor.popc' ? x ^ y : x * y);
        const wanted = c.map((before, at) => {
          let sum = before;
          for (let i = 0; i < how.k; i++) sum += combine(element(a, at >> 3, i), element(b, at & 7, i));
          return 'saturate' in how ? Math.max(-(2 ** 31), Math.min(2 ** 31 - 1, sum)) : sum | 0;
        });
        const shape = `m8n8k${how.k}`;
        const whole = Buffer.alloc(256);
        for (const [i, value] of c.entries()) whole.writeInt32LE(value, i * 4);
        const copy = (name: string, from: string): string =>
          `mov.u32 %r1, %tid.x; ${name}: cvt.u64.u32 %rd4, %r1; add.u64 %rd5, ${from}, %rd4; ld.global.u8 %h1, [%rd5];
mov.u32 %r2, s${name}; add.u32 %r2, %r2, %r1; st.shared.u8 [%r2], %h1; add.u32 %r1, %r1, 32; setp.lt.u32 %p1, %r1, ${bytesOf}; @%p1 bra ${name};`;
        const place =
          space === '.global'
            ? ''
            : `${copy('A', '%rd1')} ${copy('B', '%rd2')} bar.sync 0; mov.u64 %rd1, sA; mov.u64 %rd2, sB;${space === '' ? ' cvta.shared.u64 %rd1, %rd1; cvta.shared.u64 %rd2, %rd2;' : ''}`;
        const text = `.version 8.0
.target sm_90
.address_size 64
.entry k(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pd)
{
.reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .b16 %h<3>; .reg .pred %p<2>; .shared .align 128 .b8 sA[${bytesOf}], sB[${bytesOf}];
ld.param.u64 %rd1, [pa]; ld.param.u64 %rd2, [pb]; ld.param.u64 %rd3, [pc]; ld.param.u64 %rd6, [pd];
${place}
mov.u32 %r1, ${stride};
wmma.load.a.sync.aligned.row.${shape}${space}.${how.type} {%r2}, [%rd1]${gap === 0 ? '' : ', %r1'};
wmma.load.b.sync.aligned.col.${shape}${space}.${how.type} {%r3}, [%rd2]${gap === 0 ? '' : ', %r1'};
wmma.load.c.sync.aligned.row.${shape}.global.s32 {%r4, %r5}, [%rd3];
wmma.mma${how.operation}.sync.aligned.row.col.${shape}.s32.${how.type}.${how.type}.s32${'saturate' in how ? '.satfinite' : ''} {%r6, %r7}, {%r2}, {%r3}, {%r4, %r5};
wmma.store.d.sync.aligned.row.${shape}.global.s32 [%rd6], {%r6, %r7};
ret;
}
`;
        const { load, refused, launches, buffers } = runPtx({
          ptx: { text },
          buffers: [a, b, whole, 256],
          launches: [{ kernel: 'k', block: [32], args: ['b1', 'b2', 'b3', 'b4'] }],
        });
        assert.match(`${load} ${launches[0]}`, /^ok .* ok /, refused.join());
        assert.deepEqual(
          wanted.map((_, i) => buffers[3]?.readInt32LE(i * 4)),
          wanted,
        );
      });

  for (const wrong of [
    'wmma.load.a.sync.aligned.col.m8n8k32.global.s4 {%r1}, [%rd1]',
    'wmma.load.b.sync.aligned.col.m8n8k128.global.s4 {%r1}, [%rd1]',
    'wmma.mma.sync.aligned.row.col.m8n8k32.s32.s4.u4.s32 {%r1, %r2}, {%r3}, {%r4}, {%r1, %r2}',
    'wmma.mma.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32 {%r1, %r2}, {%r3}, {%r4}, {%r1, %r2}',
    'wmma.mma.xor.popc.sync.aligned.row.col.m8n8k32.s32.s4.s4.s32 {%r1, %r2}, {%r3}, {%r4}, {%r1, %r2}',
  ])
    it(`refuses ${wrong.split(' ')[0]}`, () => {
      const { refused } = runPtx({
        ptx: {
          text: `.version 8.0\n.target sm_90\n.address_size 64\n.entry k() { .reg .b32 %r<9>; .reg .b64 %rd<2>; ${wrong}; ret; }\n`,
        },
      });
      assert.match(refused.join(), /^line 4: wmma\S* is not supported/);
    });
});
