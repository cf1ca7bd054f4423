import { describe, it } from 'node:test';
import {
  abs,
  BITS,
  bitsOf,
  checkAll,
  clamp,
  count,
  highest,
  INTEGERS,
  type Instruction,
  integer,
  integers,
  lowest,
  signedness,
} from './edges.js';

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
