/**
 * Instructions and modifiers that compilers seldom write, over operands at their edges (ptx/edges.ts) against an
 * evaluation that shares nothing with the machine (ptx/float.ts, BigInt).
 */
import { describe, it } from 'node:test';
import { checkAll, clamp, type Instruction, integer, integers } from './edges.js';
import * as fp from './float.js';
import { greater, lesser } from './random_operations.js';

const M32 = 0xffffffffn;
const byte = (x: bigint, i: number): bigint => (x >> BigInt(i * 8)) & 255n;

describe('integers', () => {
  it('are multiplied by 24 bits, the upper part too', () => {
    const low = (t: string, x: bigint): bigint => (t === 's32' ? BigInt.asIntN(24, x) : x & 0xffffffn);
    checkAll(
      ['u32', 's32'].flatMap((t) => [
        ...integers(
          () => `mad24.hi.${t}`,
          [t],
          3,
          (_, a = 0n, b = 0n, c = 0n) => ((low(t, a) * low(t, b)) >> 16n) + c,
        ),
        ...(t === 'u32'
          ? []
          : integers(
              () => 'mad24.hi.sat.s32',
              [t],
              3,
              (_, a = 0n, b = 0n, c = 0n) =>
                clamp(((low(t, a) * low(t, b)) >> 16n) + c, -(1n << 31n), (1n << 31n) - 1n),
            )),
      ]),
    );
  });

  it('carry from one instruction to the next, 32 and 64 bits wide', () => {
    const list: Instruction[] = [];
    for (const bits of [32, 64]) {
      const t = `u${bits}`;
      const top = 1n << BigInt(bits);
      const steps: readonly (readonly [
        string,
        (a: bigint, b: bigint, c: bigint, carry: bigint) => readonly [bigint, bigint],
      ])[] = [
        ['add', (a, b, _, carry) => [a + b + carry, a + b + carry >= top ? 1n : 0n]],
        // the carry of a subtraction is NOT borrow
        ['sub', (a, b, _, carry) => [a - b - (1n - carry), a - b - (1n - carry) < 0n ? 0n : 1n]],
        [
          'mad.lo',
          (a, b, c, carry) => {
            const sum = ((a * b) % top) + c + carry;
            return [sum, sum >= top ? 1n : 0n];
          },
        ],
        [
          'mad.hi',
          (a, b, c, carry) => {
            const sum = ((a * b) >> BigInt(bits)) + c + carry;
            return [sum, sum >= top ? 1n : 0n];
          },
        ],
      ];
      for (const [first, one] of steps) {
        for (const [second, two] of steps) {
          const text = (name: string, carries: boolean, a: string, b: string, c: string): string => {
            const [op = '', part] = name.split('.');
            const full = `${op}${carries ? 'c' : ''}${part === undefined ? '' : `.${part}`}.cc.${t}`;
            return op === 'mad' ? `${full} ${a}, ${b}, ${c};` : `${full} ${a}, ${b};`;
          };
          const write = (to: string, instruction: string): string => instruction.replace(' ', ` ${to}, `);
          list.push({
            name: `${first}.cc, ${second}c.cc, addc of ${bits} bits`,
            to: t,
            from: [t, t, t],
            body: `.reg .${t} low, high, last;
  ${write('low', text(first, false, 'x0', 'x1', 'x2'))}
  ${write('high', text(second, true, 'x1', 'x2', 'x0'))}
  addc.${t} last, 0, 0;
  mad.lo.${t} low, low, 3, high;
  mad.lo.${t} y, last, 12345, low;`,
            result: (a = 0n, b = 0n, c = 0n) => {
              const [low, carry] = one(a, b, c, first === 'sub' ? 1n : 0n);
              const [high, last] = two(b, c, a, carry);
              return low * 3n + high + last * 12345n;
            },
          });
        }
      }
    }
    checkAll(list);
  });

  it('are permuted in every mode', () => {
    const modes: readonly (readonly [string, (s: number) => readonly number[]])[] = [
      ['f4e', (s) => [s, s + 1, s + 2, s + 3]],
      ['b4e', (s) => [s, (s + 7) % 8, (s + 6) % 8, (s + 5) % 8]],
      ['rc8', (s) => [s, s, s, s]],
      ['ecl', (s) => [s, Math.max(s, 1), Math.max(s, 2), 3]],
      ['ecr', (s) => [0, Math.min(s, 1), Math.min(s, 2), s]],
      ['rc16', (s) => [(s % 2) * 2, (s % 2) * 2 + 1, (s % 2) * 2, (s % 2) * 2 + 1]],
    ];
    checkAll(
      modes.map(
        ([mode, bytes]): Instruction => ({
          name: `prmt.b32.${mode}`,
          to: 'b32',
          from: ['b32', 'b32', 'b32'],
          result: (a = 0n, b = 0n, c = 0n) =>
            bytes(Number(c & 3n)).reduce(
              (r, from, i) => r | (byte((b << 32n) | a, from) << BigInt(8 * i)),
              0n,
            ),
        }),
      ),
    );
  });

  it('have masks made, signs extended and set bits found', () => {
    const masks = (mode: string): Instruction => ({
      name: `bmsk.${mode}.b32`,
      to: 'b32',
      from: ['b32', 'b32'],
      result: (a = 0n, b = 0n) => {
        const [at, size] = mode === 'wrap' ? [a & 31n, b & 31n] : [a, b];
        if (at > 31n) return 0n;
        return (((1n << clamp(size, 0n, 32n)) - 1n) << at) & M32;
      },
    });
    const extend = (mode: string, t: string): Instruction => ({
      name: `szext.${mode}.${t}`,
      to: t,
      from: [t, 'u32'],
      result: (a = 0n, n = 0n) => {
        const size = mode === 'wrap' ? n & 31n : clamp(n, 0n, 32n);
        const low = a & ((1n << size) - 1n);
        if (t === 'u32' || size === 0n) return low;
        return BigInt.asIntN(Number(size), low);
      },
    });
    checkAll([
      masks('clamp'),
      masks('wrap'),
      ...['clamp', 'wrap'].flatMap((mode) => ['u32', 's32'].map((t) => extend(mode, t))),
      ...[1, 2, 5, -1, -3, 0].map(
        (offset): Instruction => ({
          name: `fns.b32 ${offset}`,
          to: 'b32',
          from: ['b32', 'b32'],
          body: `.reg .b32 base;\n  and.b32 base, x1, 31;\n  fns.b32 y, x0, base, ${offset};`,
          result: (mask = 0n, b = 0n) => {
            const base = Number(b & 31n);
            const set = (i: number): boolean => ((mask >> BigInt(i)) & 1n) === 1n;
            if (offset === 0) return set(base) ? BigInt(base) : M32;
            const step = offset > 0 ? 1 : -1;
            let left = Math.abs(offset);
            for (let i = base; i >= 0 && i < 32; i += step) if (set(i) && --left === 0) return BigInt(i);
            return M32;
          },
        }),
      ),
    ]);
  });

  it('come in pairs', () => {
    const half = (t: string, x: bigint, i: bigint): bigint => {
      const bits = (x >> (16n * i)) & 0xffffn;
      return t === 's16x2' ? BigInt.asIntN(16, bits) : bits;
    };
    const both =
      (t: string, f: (a: bigint, b: bigint) => bigint) =>
      (a = 0n, b = 0n): bigint =>
        [0n, 1n].reduce((r, i) => r | (BigInt.asUintN(16, f(half(t, a, i), half(t, b, i))) << (16n * i)), 0n);
    checkAll(
      ['u16x2', 's16x2'].flatMap((t): Instruction[] => [
        { name: `add.${t}`, to: 'b32', from: ['b32', 'b32'], result: both(t, (a, b) => a + b) },
        { name: `min.${t}`, to: 'b32', from: ['b32', 'b32'], result: both(t, lesser) },
        { name: `max.${t}`, to: 'b32', from: ['b32', 'b32'], result: both(t, greater) },
      ]),
    );
  });
});

describe('bytes', () => {
  const bytes = (...x: bigint[]): bigint =>
    x.reduce((r, value, i) => r | ((value & 255n) << BigInt(8 * i)), 0n);
  it('are put together and taken apart', () => {
    checkAll([
      {
        name: 'mov.b16 of two bytes',
        to: 'b16',
        from: ['s8', 's8'],
        body: `.reg .b8 a, b;
  cvt.s8.s16 a, x0;
  cvt.s8.s16 b, x1;
  mov.b16 y, {a, b};`,
        result: (a = 0n, b = 0n) => bytes(a, b),
      },
      {
        name: 'mov.b16 of a byte and a number',
        to: 'b16',
        from: ['f32'],
        body: `.reg .b8 a;
  cvt.rzi.s8.f32 a, x0;
  mov.b16 y, {a, 129};`,
        result: (bits = 0n) => {
          const value = fp.decode(fp.F32, bits);
          const whole =
            value.kind === 'nan'
              ? 0n
              : value.kind === 'infinite'
                ? value.negative
                  ? -128n
                  : 127n
                : clamp(fp.toInteger(value, 'rz'), -128n, 127n);
          return bytes(whole, 129n);
        },
      },
      {
        name: 'mov.b32 of four bytes',
        to: 'b32',
        from: ['s8', 'u8', 's8', 'u8'],
        body: `.reg .b8 a<4>;
  cvt.s8.s16 a0, x0;
  cvt.u8.u16 a1, x1;
  cvt.s8.s16 a2, x2;
  cvt.u8.u16 a3, x3;
  mov.b32 y, {a0, a1, a2, a3};`,
        result: bytes,
      },
      ...[0, 1, 2, 3].map(
        (i): Instruction => ({
          name: `mov.b32 to byte ${i} of four`,
          to: 's16',
          from: ['b32'],
          body: `.reg .b8 a<4>;
  mov.b32 {${[0, 1, 2, 3].map((k) => (k === i ? 'a0' : '_')).join(', ')}}, x0;
  cvt.s16.s8 y, a0;`,
          result: (a = 0n) => BigInt.asIntN(8, byte(a, i)),
        }),
      ),
      ...[0, 1].map(
        (i): Instruction => ({
          name: `mov.b16 to byte ${i} of two`,
          to: 's16',
          from: ['b16'],
          body: `.reg .b8 a<2>;
  mov.b16 {a0, a1}, x0;
  cvt.s16.s8 y, a${i};`,
          result: (a = 0n) => BigInt.asIntN(8, byte(a, i)),
        }),
      ),
    ]);
  });
});

describe('scalar video instructions', () => {
  const selected = (x: bigint, part: string, t: string): bigint => {
    const bits = part === '' ? 32 : part.startsWith('b') ? 8 : 16;
    const at = part === '' ? 0 : Number(part.slice(1)) * bits;
    const value = (x >> BigInt(at)) & ((1n << BigInt(bits)) - 1n);
    return t === 's32' ? BigInt.asIntN(bits, value) : value;
  };
  const range = (t: string, bits = 32): readonly [bigint, bigint] =>
    t === 's32'
      ? [-(1n << BigInt(bits - 1)), (1n << BigInt(bits - 1)) - 1n]
      : [0n, (1n << BigInt(bits)) - 1n];
  const operations: readonly (readonly [string, (a: bigint, b: bigint) => bigint])[] = [
    ['vadd', (a, b) => a + b],
    ['vsub', (a, b) => a - b],
    ['vabsdiff', (a, b) => (a > b ? a - b : b - a)],
    ['vmin', lesser],
    ['vmax', greater],
  ];
  /** The second operation, on the result as the destination's type. */
  const second = (op: string, t: string, r: bigint, c: bigint): bigint => {
    const [x, y] = [integer(t, BigInt.asUintN(32, r)), integer(t, c)];
    return op === 'add' ? x + y : op === 'min' ? lesser(x, y) : greater(x, y);
  };
  const types = ['u32', 's32'];

  it('compute on parts, saturate and go on with a second operation', () => {
    const list: Instruction[] = [];
    const parts = ['', 'b0', 'b3', 'h1'];
    for (const [name, f] of operations) {
      for (const td of types) {
        for (const ta of types) {
          for (const tb of types) {
            for (const sat of ['', '.sat']) {
              const seed = list.length;
              const [pa = '', pb = ''] = [parts[seed % 4], parts[(seed >> 2) % 4]];
              const op = ['', 'add', 'min', 'max'][(seed >> 1) % 4] ?? '';
              const dot = (x: string): string => (x === '' ? '' : `.${x}`);
              const [low, high] = range(td);
              list.push({
                name: `${name}.${td}.${ta}.${tb}${sat}${dot(op)} ${pa} ${pb}`,
                to: 'b32',
                from: op === '' ? ['b32', 'b32'] : ['b32', 'b32', 'b32'],
                body: `${name}.${td}.${ta}.${tb}${sat}${dot(op)} y, x0${dot(pa)}, x1${dot(pb)}${op === '' ? '' : ', x2'};`,
                result: (a = 0n, b = 0n, c = 0n) => {
                  const exact = f(selected(a, pa, ta), selected(b, pb, tb));
                  const r = sat === '' ? exact : clamp(exact, low, high);
                  return op === '' ? r : second(op, td, r, c);
                },
              });
            }
          }
        }
      }
    }
    checkAll(list);
  });

  it('put a part into the third operand', () => {
    checkAll(
      operations.flatMap(([name, f]) =>
        types.flatMap((td) =>
          ['b0', 'b2', 'h0', 'h1'].flatMap((part) =>
            ['', '.sat'].map((sat): Instruction => {
              const bits = part.startsWith('b') ? 8 : 16;
              const at = BigInt(Number(part.slice(1)) * bits);
              const mask = ((1n << BigInt(bits)) - 1n) << at;
              const [low, high] = range(td, bits);
              return {
                name: `${name}.${td}.s32.u32${sat} .${part}`,
                to: 'b32',
                from: ['b32', 'b32', 'b32'],
                body: `${name}.${td}.s32.u32${sat} y.${part}, x0, x1, x2;`,
                result: (a = 0n, b = 0n, c = 0n) => {
                  const exact = f(integer('s32', a), b);
                  const r = sat === '' ? exact : clamp(exact, low, high);
                  return (c & ~mask & M32) | ((r << at) & mask);
                },
              };
            }),
          ),
        ),
      ),
    );
  });

  it('shift and compare', () => {
    checkAll([
      ...['vshl', 'vshr'].flatMap((name) =>
        types.flatMap((td) =>
          types.flatMap((ta) =>
            ['clamp', 'wrap'].map(
              (mode): Instruction => ({
                name: `${name}.${td}.${ta}.u32.${mode}`,
                to: 'b32',
                from: ['b32', 'b32'],
                result: (x = 0n, n = 0n) => {
                  const a = integer(ta, x);
                  const by = mode === 'wrap' ? n & 31n : clamp(n, 0n, 32n);
                  return name === 'vshl' ? a << by : a >> by;
                },
              }),
            ),
          ),
        ),
      ),
      ...(['eq', 'ne', 'lt', 'le', 'gt', 'ge'] as const).flatMap((c) =>
        types.flatMap((ta) =>
          types.flatMap((tb) =>
            ['', 'add', 'min', 'max'].map(
              (op): Instruction => ({
                name: `vset.${ta}.${tb}.${c}${op === '' ? '' : `.${op}`}`,
                to: 'b32',
                from: op === '' ? ['b32', 'b32'] : ['b32', 'b32', 'b32'],
                result: (x = 0n, y = 0n, z = 0n) => {
                  const [a, b] = [integer(ta, x), integer(tb, y)];
                  const holds = { eq: a === b, ne: a !== b, lt: a < b, le: a <= b, gt: a > b, ge: a >= b }[c];
                  const r = holds ? 1n : 0n;
                  return op === '' ? r : second(op, 'u32', r, z);
                },
              }),
            ),
          ),
        ),
      ),
    ]);
  });
});
