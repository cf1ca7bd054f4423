/**
 * Single instructions over operands at their edges (ptx/edges.ts) against an evaluation that shares nothing with the
 * machine (ptx/float.ts, BigInt).
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  abs,
  BITS,
  bitsOf,
  checkAll,
  clamp,
  count,
  format,
  highest,
  INTEGERS,
  type Instruction,
  integer,
  integers,
  kernel,
  lowest,
  signedness,
} from './edges.js';
import * as fp from './float.js';
import { bytes, f32, runPtx, u32 } from './machine.js';

describe('integer instructions', () => {
  it('add, subtract, multiply and mad wrap', () => {
    checkAll([
      ...integers(
        (t) => `add.${t}`,
        INTEGERS,
        2,
        (_, a = 0n, b = 0n) => a + b,
      ),
      ...integers(
        (t) => `sub.${t}`,
        INTEGERS,
        2,
        (_, a = 0n, b = 0n) => a - b,
      ),
      ...integers(
        (t) => `mul.lo.${t}`,
        INTEGERS,
        2,
        (_, a = 0n, b = 0n) => a * b,
      ),
      ...integers(
        (t) => `mul.hi.${t}`,
        INTEGERS,
        2,
        (t, a = 0n, b = 0n) => (a * b) >> BigInt(bitsOf(t)),
      ),
      ...integers(
        (t) => `mad.lo.${t}`,
        INTEGERS,
        3,
        (_, a = 0n, b = 0n, c = 0n) => a * b + c,
      ),
      ...integers(
        (t) => `mad.hi.${t}`,
        INTEGERS,
        3,
        (t, a = 0n, b = 0n, c = 0n) => ((a * b) >> BigInt(bitsOf(t))) + c,
      ),
    ]);
  });
  it('saturate', () => {
    checkAll([
      ...integers(
        () => 'add.sat.s32',
        ['s32'],
        2,
        (t, a = 0n, b = 0n) => clamp(a + b, lowest(t), highest(t)),
      ),
      ...integers(
        () => 'sub.sat.s32',
        ['s32'],
        2,
        (t, a = 0n, b = 0n) => clamp(a - b, lowest(t), highest(t)),
      ),
      ...integers(
        () => 'mad.hi.sat.s32',
        ['s32'],
        3,
        (t, a = 0n, b = 0n, c = 0n) => clamp(((a * b) >> 32n) + c, lowest(t), highest(t)),
      ),
    ]);
  });
  it('multiply to twice the width', () => {
    const wide = { u16: 'u32', s16: 's32', u32: 'u64', s32: 's64' } as const;
    checkAll(
      (['u16', 's16', 'u32', 's32'] as const).flatMap((t): Instruction[] => [
        {
          name: `mul.wide.${t}`,
          to: wide[t],
          from: [t, t],
          result: (a, b) => integer(t, a ?? 0n) * integer(t, b ?? 0n),
        },
        {
          name: `mad.wide.${t}`,
          to: wide[t],
          from: [t, t, wide[t]],
          result: (a, b, c) => integer(t, a ?? 0n) * integer(t, b ?? 0n) + (c ?? 0n),
        },
      ]),
    );
  });
  it('divide, with all ones for a division by zero', () => {
    checkAll([
      ...integers(
        (t) => `div.${t}`,
        INTEGERS,
        2,
        (_, a = 0n, b = 0n) => (b === 0n ? -1n : a / b),
      ),
      ...integers(
        (t) => `rem.${t}`,
        INTEGERS,
        2,
        (_, a = 0n, b = 0n) => (b === 0n ? a : a % b),
      ),
    ]);
  });
  it('compare and choose', () => {
    checkAll([
      ...integers(
        (t) => `min.${t}`,
        INTEGERS,
        2,
        (_, a = 0n, b = 0n) => (a < b ? a : b),
      ),
      ...integers(
        (t) => `max.${t}`,
        INTEGERS,
        2,
        (_, a = 0n, b = 0n) => (a > b ? a : b),
      ),
      ...integers(
        (t) => `sad.${t}`,
        INTEGERS,
        3,
        (_, a = 0n, b = 0n, c = 0n) => c + abs(a - b),
      ),
      ...integers(
        (t) => `abs.${t}`,
        ['s16', 's32', 's64'],
        1,
        (_, a = 0n) => abs(a),
      ),
      ...integers(
        (t) => `neg.${t}`,
        ['s16', 's32', 's64'],
        1,
        (_, a = 0n) => -a,
      ),
      ...INTEGERS.flatMap((t) =>
        (['eq', 'ne', 'lt', 'le', 'gt', 'ge'] as const).map(
          (c): Instruction => ({
            name: `setp.${c}.${t}`,
            to: 'pred',
            from: [t, t],
            result: (x, y) => {
              const [a, b] = [integer(t, x ?? 0n), integer(t, y ?? 0n)];
              return { eq: a === b, ne: a !== b, lt: a < b, le: a <= b, gt: a > b, ge: a >= b }[c] ? 1n : 0n;
            },
          }),
        ),
      ),
      {
        name: 'set.lt.u32.s32',
        to: 'u32',
        from: ['s32', 's32'],
        result: (a, b) => (integer('s32', a ?? 0n) < integer('s32', b ?? 0n) ? 0xffffffffn : 0n),
      },
      {
        name: 'slct.u32.s32',
        to: 'u32',
        from: ['u32', 'u32', 's32'],
        result: (a, b, c) => (integer('s32', c ?? 0n) >= 0n ? (a ?? 0n) : (b ?? 0n)),
      },
      {
        name: 'slct.b64.s32',
        to: 'b64',
        from: ['b64', 'b64', 's32'],
        result: (a, b, c) => (integer('s32', c ?? 0n) >= 0n ? (a ?? 0n) : (b ?? 0n)),
      },
    ]);
  });
  it('do logic by bits, and any table of three', () => {
    const table = (m: number): Instruction => ({
      name: 'lop3.b32',
      to: 'b32',
      from: ['b32', 'b32', 'b32'],
      immediate: `${m}`,
      result: (a = 0n, b = 0n, c = 0n) => {
        let r = 0n;
        for (let i = 0n; i < 32n; i++) {
          const index = Number((((a >> i) & 1n) << 2n) | (((b >> i) & 1n) << 1n) | ((c >> i) & 1n));
          if ((m >> index) & 1) r |= 1n << i;
        }
        return r;
      },
    });
    checkAll([
      ...integers(
        (t) => `and.${t}`,
        BITS,
        2,
        (_, a = 0n, b = 0n) => a & b,
      ),
      ...integers(
        (t) => `or.${t}`,
        BITS,
        2,
        (_, a = 0n, b = 0n) => a | b,
      ),
      ...integers(
        (t) => `xor.${t}`,
        BITS,
        2,
        (_, a = 0n, b = 0n) => a ^ b,
      ),
      ...integers(
        (t) => `not.${t}`,
        BITS,
        1,
        (_, a = 0n) => ~a,
      ),
      ...integers(
        (t) => `cnot.${t}`,
        BITS,
        1,
        (_, a = 0n) => (a === 0n ? 1n : 0n),
      ),
      ...[0, 0x80, 0x96, 0xe8, 0xca, 0x1b, 0xff].map(table),
    ]);
  });
  it('shift, past the width too', () => {
    const left = (t: string): Instruction => ({
      name: `shl.${t}`,
      to: t,
      from: [t, 'u32'],
      result: (a = 0n, n = 0n) => (n >= BigInt(bitsOf(t)) ? 0n : a << n),
    });
    const right = (t: string): Instruction => ({
      name: `shr.${t}`,
      to: t,
      from: [t, 'u32'],
      result: (a = 0n, n = 0n) => integer(t, a) >> clamp(n, 0n, BigInt(bitsOf(t))),
    });
    const funnel = (direction: string, mode: string): Instruction => ({
      name: `shf.${direction}.${mode}.b32`,
      to: 'b32',
      from: ['b32', 'b32', 'u32'],
      result: (a = 0n, b = 0n, n = 0n) => {
        const by = mode === 'wrap' ? n & 31n : clamp(n, 0n, 32n);
        const both = (b << 32n) | a;
        return direction === 'l' ? (both << by) >> 32n : both >> by;
      },
    });
    checkAll([
      ...BITS.map(left),
      ...INTEGERS.map(right),
      funnel('l', 'wrap'),
      funnel('l', 'clamp'),
      funnel('r', 'wrap'),
      funnel('r', 'clamp'),
    ]);
  });
  it('count and find bits, take fields out and put them in', () => {
    const bits = (t: string): number => bitsOf(t);
    const find = (t: string, amount: boolean): Instruction => ({
      name: `bfind${amount ? '.shiftamt' : ''}.${t}`,
      to: 'u32',
      from: [t],
      result: (x = 0n) => {
        const a = integer(t, x);
        const magnitude = a < 0n ? ~a : a;
        if (magnitude === 0n) return 0xffffffffn;
        const at = BigInt(magnitude.toString(2).length - 1);
        return amount ? BigInt(bits(t) - 1) - at : at;
      },
    });
    const extract = (t: string): Instruction => ({
      name: `bfe.${t}`,
      to: t,
      from: [t, 'u32', 'u32'],
      result: (a = 0n, p = 0n, l = 0n) => {
        const [position, size] = [Number(p & 255n), Number(l & 255n)];
        const msb = bits(t) - 1;
        const sign =
          !signedness(t) || size === 0 ? 0n : (a >> BigInt(Math.min(position + size - 1, msb))) & 1n;
        let r = 0n;
        for (let i = 0; i <= msb; i++) {
          const bit = i < size && position + i <= msb ? (a >> BigInt(position + i)) & 1n : sign;
          r |= bit << BigInt(i);
        }
        return r;
      },
    });
    const insert = (t: string): Instruction => ({
      name: `bfi.${t}`,
      to: t,
      from: [t, t, 'u32', 'u32'],
      result: (a = 0n, b = 0n, p = 0n, l = 0n) => {
        const [position, size] = [Number(p & 255n), Number(l & 255n)];
        let r = b;
        for (let i = 0; i < size && position + i < bits(t); i++) {
          const at = BigInt(position + i);
          r = (r & ~(1n << at)) | (((a >> BigInt(i)) & 1n) << at);
        }
        return r;
      },
    });
    checkAll([
      ...['b32', 'b64'].map(
        (t): Instruction => ({
          name: `popc.${t}`,
          to: 'u32',
          from: [t],
          result: (a = 0n) => BigInt(count(a)),
        }),
      ),
      ...['b32', 'b64'].map(
        (t): Instruction => ({
          name: `clz.${t}`,
          to: 'u32',
          from: [t],
          result: (a = 0n) => BigInt(a === 0n ? bits(t) : bits(t) - a.toString(2).length),
        }),
      ),
      ...['b32', 'b64'].map(
        (t): Instruction => ({
          name: `brev.${t}`,
          to: t,
          from: [t],
          result: (a = 0n) => BigInt(`0b${[...a.toString(2).padStart(bits(t), '0')].reverse().join('')}`),
        }),
      ),
      ...['u32', 's32', 'u64', 's64'].flatMap((t) => [find(t, false), find(t, true), extract(t)]),
      insert('b32'),
      insert('b64'),
    ]);
  });
  it('permute bytes, and multiply them', () => {
    const byte = (x: bigint, i: bigint): bigint => (x >> (i * 8n)) & 255n;
    const signed = (t: string, x: bigint, size: number): bigint => (t === 's32' ? BigInt.asIntN(size, x) : x);
    checkAll([
      {
        name: 'prmt.b32',
        to: 'b32',
        from: ['b32', 'b32', 'b32'],
        result: (a = 0n, b = 0n, c = 0n) => {
          let r = 0n;
          for (let i = 0n; i < 4n; i++) {
            const selector = (c >> (i * 4n)) & 15n;
            const value = byte((b << 32n) | a, selector & 7n);
            r |= ((selector & 8n) === 0n ? value : value >= 128n ? 255n : 0n) << (i * 8n);
          }
          return r;
        },
      },
      ...['u32', 's32'].flatMap((ta) =>
        ['u32', 's32'].flatMap((tb): Instruction[] => [
          {
            name: `dp4a.${ta}.${tb}`,
            to: 'b32',
            from: ['b32', 'b32', 'b32'],
            result: (a = 0n, b = 0n, c = 0n) =>
              [0n, 1n, 2n, 3n].reduce(
                (sum, i) => sum + signed(ta, byte(a, i), 8) * signed(tb, byte(b, i), 8),
                c,
              ),
          },
          ...[0n, 2n].map(
            (high): Instruction => ({
              name: `dp2a.${high === 0n ? 'lo' : 'hi'}.${ta}.${tb}`,
              to: 'b32',
              from: ['b32', 'b32', 'b32'],
              result: (a = 0n, b = 0n, c = 0n) =>
                [0n, 1n].reduce(
                  (sum, i) =>
                    sum + signed(ta, (a >> (i * 16n)) & 0xffffn, 16) * signed(tb, byte(b, i + high), 8),
                  c,
                ),
            }),
          ),
        ]),
      ),
      ...['u32', 's32'].flatMap((t) => {
        const low = (x: bigint): bigint => (t === 's32' ? BigInt.asIntN(24, x) : x & 0xffffffn);
        return [
          ...integers(
            () => `mul24.lo.${t}`,
            [t],
            2,
            (_, a = 0n, b = 0n) => low(a) * low(b),
          ),
          ...integers(
            () => `mul24.hi.${t}`,
            [t],
            2,
            (_, a = 0n, b = 0n) => (low(a) * low(b)) >> 16n,
          ),
          ...integers(
            () => `mad24.lo.${t}`,
            [t],
            3,
            (_, a = 0n, b = 0n, c = 0n) => low(a) * low(b) + c,
          ),
        ];
      }),
    ]);
  });
  it('convert to each other, wrapping or saturating', () => {
    const types = ['u8', 's8', ...INTEGERS];
    checkAll(
      types.flatMap((to) =>
        types.flatMap((from): Instruction[] => [
          { name: `cvt.${to}.${from}`, to, from: [from], result: (a = 0n) => integer(from, a) },
          {
            name: `cvt.sat.${to}.${from}`,
            to,
            from: [from],
            result: (a = 0n) => clamp(integer(from, a), lowest(to), highest(to)),
          },
        ]),
      ),
    );
  });
});

const MODES = ['rn', 'rz', 'rm', 'rp'] as const;
function floats(
  name: string,
  type: string,
  arity: number,
  f: (rounding: fp.Rounding, ...x: fp.Value[]) => fp.Value,
  flush = false,
): Instruction {
  const form = format(type);
  const rounding = MODES.find((mode) => name.split('.').includes(mode)) ?? 'rn';
  return {
    name,
    to: type,
    from: Array.from({ length: arity }, () => type),
    ...(type === 'f64' ? { anyNan: fp.F64 } : {}),
    result: (...x) =>
      fp.encode(form, f(rounding, ...x.map((bits) => fp.decode(form, bits, flush))), rounding, flush),
  };
}
const zero = fp.finite(false, 0n, 0);
const one = fp.finite(false, 1n, 0);

describe('floating-point instructions', () => {
  const plus = (r: fp.Rounding, a: fp.Value = zero, b: fp.Value = zero): fp.Value => fp.add(a, b, r);
  const minus = (r: fp.Rounding, a: fp.Value = zero, b: fp.Value = zero): fp.Value =>
    fp.add(a, fp.negate(b), r);
  const times = (_: fp.Rounding, a: fp.Value = zero, b: fp.Value = zero): fp.Value => fp.multiply(a, b);
  const fused = (r: fp.Rounding, a: fp.Value = zero, b: fp.Value = zero, c: fp.Value = zero): fp.Value =>
    fp.add(fp.multiply(a, b), c, r);

  it('add, multiply and fuse in every rounding mode', () => {
    checkAll(
      (['f32', 'f64'] as const).flatMap((t) =>
        MODES.flatMap((mode) => [
          floats(`add.${mode}.${t}`, t, 2, plus),
          floats(`sub.${mode}.${t}`, t, 2, minus),
          floats(`mul.${mode}.${t}`, t, 2, times),
          floats(`fma.${mode}.${t}`, t, 3, fused),
        ]),
      ),
    );
  });
  it('divide and take roots in every rounding mode', () => {
    checkAll(
      (['f32', 'f64'] as const).flatMap((t) =>
        MODES.flatMap((mode) => [
          floats(`div.${mode}.${t}`, t, 2, (_, a = zero, b = zero) => fp.divide(a, b)),
          floats(`rcp.${mode}.${t}`, t, 1, (_, a = zero) => fp.divide(one, a)),
          floats(`sqrt.${mode}.${t}`, t, 1, (_, a = zero) => fp.squareRoot(a)),
        ]),
      ),
    );
  });
  it('flush subnormals where told', () => {
    checkAll([
      floats('add.ftz.f32', 'f32', 2, plus, true),
      floats('mul.ftz.f32', 'f32', 2, times, true),
      floats('fma.rn.ftz.f32', 'f32', 3, fused, true),
      floats('add.rz.ftz.f32', 'f32', 2, plus, true),
    ]);
  });
  it('compute with 16 bits, rounding once', () => {
    checkAll(
      (['f16', 'bf16'] as const).flatMap((t) => [
        floats(`add.${t === 'f16' ? '' : 'rn.'}${t}`, t, 2, plus),
        floats(`sub.${t === 'f16' ? '' : 'rn.'}${t}`, t, 2, minus),
        floats(`mul.${t === 'f16' ? '' : 'rn.'}${t}`, t, 2, times),
        floats(`fma.rn.${t}`, t, 3, fused),
      ]),
    );
  });
  it('find the lesser and the greater, NaN aside', () => {
    const pick = (t: string, larger: boolean, nan: boolean, flush: boolean): Instruction => {
      const form = format(t);
      const flushed = (bits: bigint): bigint => {
        const top = 1n << BigInt(fp.width(form) - 1);
        return flush && (bits & (top - 1n)) < 1n << BigInt(form.fraction) ? bits & top : bits;
      };
      return {
        name: `${larger ? 'max' : 'min'}${flush ? '.ftz' : ''}${nan ? '.NaN' : ''}.${t}`,
        to: t,
        from: [t, t],
        ...(t === 'f64' ? { anyNan: fp.F64 } : {}),
        result: (x = 0n, y = 0n) => {
          const [a, b] = [flushed(x), flushed(y)];
          const order = fp.compare(fp.decode(form, a), fp.decode(form, b));
          if (order === null) {
            const other = fp.decode(form, a).kind === 'nan' ? b : a;
            return nan || fp.decode(form, other).kind === 'nan' ? fp.encode(form, fp.NAN) : other;
          }
          // of two zeros, -0 is the lesser
          const negative = a >> BigInt(fp.width(form) - 1) === 1n;
          if (order === 0) return negative !== larger ? a : b;
          return order > 0 === larger ? a : b;
        },
      };
    };
    checkAll([
      ...['f16', 'bf16', 'f32', 'f64'].flatMap((t) => [
        pick(t, false, false, false),
        pick(t, true, false, false),
      ]),
      ...['f16', 'bf16', 'f32'].flatMap((t) => [pick(t, false, true, false), pick(t, true, true, false)]),
      pick('f32', false, false, true),
      pick('f32', true, false, true),
    ]);
  });
  it('compare, ordered or not', () => {
    const holds = (c: string, order: number | null): boolean => {
      if (c === 'num') return order !== null;
      if (c === 'nan') return order === null;
      const unordered = c.length === 3;
      if (order === null) return unordered;
      return (
        { eq: order === 0, ne: order !== 0, lt: order < 0, le: order <= 0, gt: order > 0, ge: order >= 0 }[
          c.slice(0, 2)
        ] ?? false
      );
    };
    checkAll(
      ['f16', 'f32', 'f64'].flatMap((t) =>
        ['eq', 'ne', 'lt', 'le', 'gt', 'ge', 'equ', 'neu', 'ltu', 'leu', 'gtu', 'geu', 'num', 'nan'].map(
          (c): Instruction => ({
            name: `setp.${c}.${t}`,
            to: 'pred',
            from: [t, t],
            result: (a = 0n, b = 0n) =>
              holds(c, fp.compare(fp.decode(format(t), a), fp.decode(format(t), b))) ? 1n : 0n,
          }),
        ),
      ),
    );
  });
  it('convert to integers, clamped, with their own answer for NaN', () => {
    const modes = { rni: 'rn', rzi: 'rz', rmi: 'rm', rpi: 'rp' } as const;
    checkAll(
      ['f16', 'f32', 'f64'].flatMap((from) =>
        ['u8', 's8', ...INTEGERS].flatMap((to) =>
          (Object.keys(modes) as (keyof typeof modes)[]).map(
            (mode): Instruction => ({
              name: `cvt.${mode}.${to}.${from}`,
              to,
              from: [from],
              result: (bits = 0n) => {
                const value = fp.decode(format(from), bits);
                const wide = from === 'f64' || bitsOf(to) === 64;
                if (value.kind === 'nan') return wide ? 1n << BigInt(bitsOf(to) - 1) : 0n;
                if (value.kind === 'infinite') return value.negative ? lowest(to) : highest(to);
                return clamp(fp.toInteger(value, modes[mode]), lowest(to), highest(to));
              },
            }),
          ),
        ),
      ),
    );
  });
  it('convert from integers in every rounding mode', () => {
    checkAll(
      ['f16', 'f32', 'f64'].flatMap((to) =>
        ['u8', 's8', ...INTEGERS].flatMap((from) =>
          (to === 'f16' ? (['rn', 'rz'] as const) : MODES).map(
            (mode): Instruction => ({
              name: `cvt.${mode}.${to}.${from}`,
              to,
              from: [from],
              result: (bits = 0n) => {
                const value = integer(from, bits);
                return fp.encode(format(to), fp.finite(value < 0n, abs(value), 0), mode);
              },
            }),
          ),
        ),
      ),
    );
  });
  it('convert between floats, saturating where told', () => {
    const saturated = (value: fp.Value): fp.Value => {
      if (value.kind === 'nan' || value.negative) return zero;
      return fp.compare(value, one) === 1 ? one : value;
    };
    const pairs: readonly (readonly [string, string, readonly fp.Rounding[]])[] = [
      ['f16', 'f32', ['rn', 'rz']],
      ['bf16', 'f32', ['rn', 'rz']],
      ['f16', 'f64', ['rn', 'rz', 'rm', 'rp']],
      ['f32', 'f64', ['rn', 'rz', 'rm', 'rp']],
    ];
    checkAll([
      ...pairs.flatMap(([to, from, modes]) =>
        modes.map(
          (mode): Instruction => ({
            name: `cvt.${mode}.${to}.${from}`,
            to,
            from: [from],
            result: (bits = 0n) => fp.encode(format(to), fp.decode(format(from), bits), mode),
          }),
        ),
      ),
      ...(
        [
          ['f32', 'f16'],
          ['f32', 'bf16'],
          ['f64', 'f16'],
          ['f64', 'f32'],
        ] as const
      ).map(
        ([to, from]): Instruction => ({
          name: `cvt.${to}.${from}`,
          to,
          from: [from],
          ...(to === 'f64' ? { anyNan: fp.F64 } : {}),
          result: (bits = 0n) => fp.encode(format(to), fp.decode(format(from), bits)),
        }),
      ),
      {
        name: 'cvt.sat.f32.f32',
        to: 'f32',
        from: ['f32'],
        result: (bits = 0n) => fp.encode(fp.F32, saturated(fp.decode(fp.F32, bits))),
      },
      {
        name: 'cvt.rn.sat.f32.f64',
        to: 'f32',
        from: ['f64'],
        result: (bits = 0n) => fp.encode(fp.F32, saturated(fp.decode(fp.F64, bits))),
      },
      {
        name: 'cvt.rn.sat.f16.f32',
        to: 'f16',
        from: ['f32'],
        result: (bits = 0n) => fp.encode(fp.F16, saturated(fp.decode(fp.F32, bits))),
      },
      floats('add.sat.f32', 'f32', 2, (r, a, b) => saturated(plus(r, a, b))),
    ]);
  });
  it('round to integral floats', () => {
    const modes = { rni: 'rn', rzi: 'rz', rmi: 'rm', rpi: 'rp' } as const;
    checkAll(
      ['f32', 'f64'].flatMap((t) =>
        (Object.keys(modes) as (keyof typeof modes)[]).map(
          (mode): Instruction => ({
            name: `cvt.${mode}.${t}.${t}`,
            to: t,
            from: [t],
            ...(t === 'f64' ? { anyNan: fp.F64 } : {}),
            result: (bits = 0n) => {
              const value = fp.decode(format(t), bits);
              if (value.kind !== 'finite') return fp.encode(format(t), value);
              const whole = fp.toInteger(value, modes[mode]);
              return fp.encode(format(t), fp.finite(value.negative, abs(whole), 0));
            },
          }),
        ),
      ),
    );
  });
  it('tell what a float is', () => {
    const is = (c: string, bits: bigint, f: fp.Format): boolean => {
      const value = fp.decode(f, bits);
      const least = 1n << BigInt(f.fraction);
      const magnitude = bits & ((1n << BigInt(fp.width(f) - 1)) - 1n);
      switch (c) {
        case 'finite':
          return value.kind === 'finite';
        case 'infinite':
          return value.kind === 'infinite';
        case 'number':
          return value.kind !== 'nan';
        case 'notanumber':
          return value.kind === 'nan';
        case 'normal':
          return value.kind === 'finite' && magnitude >= least;
        default:
          return value.kind === 'finite' && magnitude !== 0n && magnitude < least;
      }
    };
    checkAll(
      ['f32', 'f64'].flatMap((t) =>
        ['finite', 'infinite', 'number', 'notanumber', 'normal', 'subnormal'].map(
          (c): Instruction => ({
            name: `testp.${c}.${t}`,
            to: 'pred',
            from: [t],
            result: (bits = 0n) => (is(c, bits, format(t)) ? 1n : 0n),
          }),
        ),
      ),
    );
  });
  it('approximate within what the ISA allows', () => {
    // the largest relative (or, for sine and cosine, absolute) error for each
    const functions: readonly (readonly [
      string,
      (x: number) => number,
      number,
      number,
      readonly number[],
    ])[] = [
      ['rcp.approx.f32', (x) => 1 / x, 2 ** -23, 0, [0.1, 1, 3, 1e10, 1e-10, -7]],
      ['sqrt.approx.f32', Math.sqrt, 2 ** -23, 0, [0.1, 1, 3, 1e10, 1e-10, 7]],
      ['rsqrt.approx.f32', (x) => 1 / Math.sqrt(x), 2 ** -22.4, 0, [0.1, 1, 3, 1e10, 1e-10, 7]],
      [
        'ex2.approx.f32',
        (x) => 2 ** x,
        2 ** -22,
        0,
        [0, 0.1, -0.7, 10.3, -100.9, 127.5, -126.5, -140, 0.5, 1e-8],
      ],
      ['lg2.approx.f32', Math.log2, 2 ** -22, 2 ** -22, [0.1, 1.001, 3, 1e10, 1e-10, 1]],
      ['sin.approx.f32', Math.sin, 0, 2 ** -20.5, [0.1, 1, 3, -3.1, 2]],
      ['cos.approx.f32', Math.cos, 0, 2 ** -20.5, [0.1, 1, 3, -3.1, 2]],
      ['tanh.approx.f32', Math.tanh, 2 ** -11, 0, [0.1, 1, 3, -3.1, 20]],
    ];
    const text = `.version 8.4\n.target sm_90\n.address_size 64\n${functions
      .map(([name], i) => kernel({ name, to: 'f32', from: ['f32'], result: () => 0n }, i))
      .join('\n')}`;
    const inputs = functions.map(([, , , , x]) => Float32Array.from(x));
    const outcome = runPtx({
      ptx: { text },
      buffers: inputs.flatMap((x) => [Buffer.from(x.buffer), x.byteLength]),
      launches: functions.map((_, i) => ({
        kernel: `k${i}`,
        block: [32],
        args: [`b${2 * i + 1}`, 'u64:0', 'u64:0', 'u64:0', `b${2 * i + 2}`, `u32:${inputs[i]?.length}`],
      })),
    });
    functions.forEach(([name, f, relative, absolute], i) => {
      inputs[i]?.forEach((x, k) => {
        const actual = outcome.buffers[2 * i + 1]?.readFloatLE(4 * k) ?? Number.NaN;
        const exact = f(x);
        const allowed = Math.max(Math.abs(exact) * relative, absolute, 2 ** -149);
        assert.ok(Math.abs(actual - exact) <= allowed, `${name} ${x}: ${actual}, not ${exact}`);
      });
    });
  });

  /** The result of an instruction with one f32 operand for each input, in bits. */
  const bitsAfter = (name: string, inputs: readonly number[]): readonly number[] => {
    const given = Uint32Array.from(inputs);
    const outcome = runPtx({
      ptx: {
        text: `.version 8.4\n.target sm_90\n.address_size 64\n${kernel({ name, to: 'f32', from: ['f32'], result: () => 0n }, 0)}`,
      },
      buffers: [bytes(given), given.byteLength],
      launches: [
        {
          kernel: 'k0',
          grid: [Math.ceil(given.length / 32)],
          block: [32],
          args: ['b1', 'u64:0', 'u64:0', 'u64:0', 'b2', `u32:${given.length}`],
        },
      ],
    });
    return [...u32(outcome.buffers[1] ?? Buffer.alloc(0))];
  };
  const bitsOfFloat = (x: number): number => u32(bytes(Float32Array.of(x)))[0] ?? 0;
  const [NAN, INFINITE, MINUS, LEAST] = [0x7fffffff, 0x7f800000, 0x80000000, 1];

  it('of logarithms are right where there is no logarithm, and for subnormal numbers', () => {
    const inputs = [0, MINUS, INFINITE, INFINITE | MINUS, NAN, MINUS | LEAST, LEAST, 0x7fffff, 0x3f800000];
    const common = [INFINITE | MINUS, INFINITE | MINUS, INFINITE, NAN, NAN].map((bits) => bits >>> 0);
    assert.deepEqual(bitsAfter('lg2.approx.f32', inputs), [
      ...common,
      NAN,
      bitsOfFloat(-149),
      bitsOfFloat(Math.log2(0x7fffff) - 149),
      0,
    ]);
    const flushed = (INFINITE | MINUS) >>> 0;
    assert.deepEqual(bitsAfter('lg2.approx.ftz.f32', inputs), [...common, flushed, flushed, flushed, 0]);
  });

  it('of sine and cosine keep the sign of zero, and end at infinity', () => {
    const inputs = [0, MINUS, INFINITE, NAN, LEAST | MINUS];
    assert.deepEqual(bitsAfter('sin.approx.f32', inputs), [0, MINUS, NAN, NAN, (LEAST | MINUS) >>> 0]);
    assert.deepEqual(bitsAfter('sin.approx.ftz.f32', inputs), [0, MINUS, NAN, NAN, MINUS]);
    assert.deepEqual(bitsAfter('cos.approx.f32', inputs), [0x3f800000, 0x3f800000, NAN, NAN, 0x3f800000]);
  });

  it('of sine and cosine stay right far from zero', () => {
    const values = Float32Array.from({ length: 2000 }, (_, i) => (i % 2 === 0 ? 1 : -1) * 1.0123 ** i * 1e-3);
    for (const [name, f] of [
      ['sin.approx.f32', Math.sin],
      ['cos.approx.f32', Math.cos],
    ] as const) {
      const results = f32(bytes(Uint32Array.from(bitsAfter(name, [...u32(bytes(values))]))));
      values.forEach((x, i) => {
        assert.ok(Math.abs((results[i] ?? Number.NaN) - f(x)) <= 2 ** -24, `${name} ${x}: ${results[i]}`);
      });
    }
  });
});
