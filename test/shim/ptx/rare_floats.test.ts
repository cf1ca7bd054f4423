/**
 * Instructions and modifiers that compilers seldom write, over operands at their edges (ptx/edges.ts) against an
 * evaluation that shares nothing with the machine (ptx/float.ts, BigInt).
 */
import { describe, it } from 'node:test';
import { BITS, checkAll, format, INTEGERS, type Instruction, integer } from './edges.js';
import * as fp from './float.js';

const M32 = 0xffffffffn;
const zero = fp.finite(false, 0n, 0);
const one = fp.finite(false, 1n, 0);

describe('comparisons', () => {
  const bool = (op: string, a: boolean, b: boolean): boolean =>
    op === 'and' ? a && b : op === 'or' ? a || b : a !== b;
  const compared = (t: string, c: string, x: bigint, y: bigint, flush = false): boolean => {
    if (t.includes('f')) {
      const order = fp.compare(fp.decode(format(t), x, flush), fp.decode(format(t), y, flush));
      if (order === null) return c.length === 3;
      const base = c.slice(0, 2);
      return (
        { eq: order === 0, ne: order !== 0, lt: order < 0, le: order <= 0, gt: order > 0, ge: order >= 0 }[
          base
        ] ?? false
      );
    }
    const [a, b] = [integer(t, x), integer(t, y)];
    return { eq: a === b, ne: a !== b, lt: a < b, le: a <= b, gt: a > b, ge: a >= b }[c] ?? false;
  };

  it('are combined with a predicate, and give their opposite beside it', () => {
    const list: Instruction[] = [];
    for (const op of ['and', 'or', 'xor']) {
      for (const negated of [false, true]) {
        for (const part of ['p', 'q']) {
          for (const [t, c] of [
            ['s32', 'lt'],
            ['u64', 'ge'],
            ['f32', 'le'],
            ['f64', 'neu'],
            ['f16', 'ltu'],
            ['bf16', 'gt'],
            ['s16', 'ne'],
          ] as const) {
            list.push({
              name: `setp.${c}.${op}.${t} ${part} ${negated ? 'negated' : ''}`,
              to: 'pred',
              from: [t, t, 'u32'],
              body: `.reg .pred other;
  setp.gt.u32 %q, x2, 32;
  setp.${c}.${op}.${t} ${part === 'p' ? '%result|other' : 'other|%result'}, x0, x1, ${negated ? '!' : ''}%q;`,
              result: (a = 0n, b = 0n, n = 0n) => {
                const holds = compared(t, c, a, b);
                const q = n > 32n !== negated;
                return bool(op, part === 'p' ? holds : !holds, q) ? 1n : 0n;
              },
            });
          }
        }
      }
    }
    checkAll(list);
  });

  it('flush subnormals with .ftz', () => {
    checkAll(
      ['f16', 'f32'].flatMap((t) =>
        ['eq', 'ne', 'lt', 'le', 'gt', 'ge', 'equ', 'ltu'].flatMap((c): Instruction[] => [
          {
            name: `setp.${c}.ftz.${t}`,
            to: 'pred',
            from: [t, t],
            result: (a = 0n, b = 0n) => (compared(t, c, a, b, true) ? 1n : 0n),
          },
          {
            name: `set.${c}.ftz.u32.${t}`,
            to: 'u32',
            from: [t, t],
            result: (a = 0n, b = 0n) => (compared(t, c, a, b, true) ? M32 : 0n),
          },
        ]),
      ),
    );
  });

  it('write all ones, or 1.0', () => {
    const list: Instruction[] = [];
    const yes: Readonly<Record<string, bigint>> = {
      u32: M32,
      s32: M32,
      f32: 0x3f800000n,
      f16: 0x3c00n,
      bf16: 0x3f80n,
      u16: 0xffffn,
      s16: 0xffffn,
    };
    for (const from of ['u16', 's16', 'u32', 's32', 'u64', 's64', 'f32', 'f64', 'f16', 'bf16']) {
      for (const to of [
        'u32',
        's32',
        'f32',
        ...(from === 'f16' ? ['f16', 'u16', 's16'] : from === 'bf16' ? ['bf16', 'u16', 's16'] : []),
      ]) {
        for (const [c, op] of [
          ['lt', ''],
          ['ge', 'and'],
          ['ne', 'xor'],
          ['eq', 'or'],
        ] as const) {
          list.push({
            name: `set.${c}${op === '' ? '' : `.${op}`}.${to}.${from}`,
            to,
            from: op === '' ? [from, from] : [from, from, 'u32'],
            body: `${op === '' ? '' : 'setp.gt.u32 %q, x2, 32;'}
  set.${c}${op === '' ? '' : `.${op}`}.${to}.${from} y, x0, x1${op === '' ? '' : ', %q'};`,
            result: (a = 0n, b = 0n, n = 0n) => {
              const holds = compared(from, c, a, b);
              return (op === '' ? holds : bool(op, holds, n > 32n)) ? (yes[to] ?? 0n) : 0n;
            },
          });
        }
      }
    }
    checkAll(list);
  });

  it('of pairs are two', () => {
    const list: Instruction[] = [];
    for (const t of ['f16', 'bf16']) {
      const halves = (x: bigint): readonly [bigint, bigint] => [x & 0xffffn, x >> 16n];
      for (const c of ['eq', 'ne', 'lt', 'geu', 'neu']) {
        const both = (a: bigint, b: bigint): readonly boolean[] => {
          const [x, y] = [halves(a), halves(b)];
          return [compared(t, c, x[0], y[0]), compared(t, c, x[1], y[1])];
        };
        for (const part of t === 'f16' ? [0, 1] : []) {
          list.push({
            name: `setp.${c}.ftz.f16x2 of half ${part}`,
            to: 'pred',
            from: [t, t, t, t],
            body: `.reg .b32 a, b; .reg .pred other;
  mov.b32 a, {x0, x1};
  mov.b32 b, {x2, x3};
  setp.${c}.ftz.f16x2 ${part === 0 ? '%result|other' : 'other|%result'}, a, b;`,
            result: (...x: bigint[]) => (compared(t, c, x[part] ?? 0n, x[part + 2] ?? 0n, true) ? 1n : 0n),
          });
        }
        for (const part of [0, 1]) {
          list.push({
            name: `setp.${c}.xor.${t}x2 of half ${part}`,
            to: 'pred',
            from: [t, t, t, t],
            body: `.reg .b32 a, b; .reg .pred other;
  mov.b32 a, {x0, x1};
  mov.b32 b, {x2, x3};
  setp.gt.u32 %q, a, b;
  setp.${c}.xor.${t}x2 ${part === 0 ? '%result|other' : 'other|%result'}, a, b, !%q;`,
            result: (x0 = 0n, x1 = 0n, x2 = 0n, x3 = 0n) => {
              const [a, b] = [(x1 << 16n) | x0, (x3 << 16n) | x2];
              return both(a, b)[part] !== !(a > b) ? 1n : 0n;
            },
          });
        }
        for (const [to, one] of [
          [`${t}x2`, t === 'f16' ? 0x3c00n : 0x3f80n],
          ['u16x2', 0xffffn],
        ] as const) {
          if (to === 'u16x2') continue;
          list.push({
            name: `set.${c}.${to}.${t}x2`,
            to: 'b32',
            from: [t, t, t, t],
            body: `.reg .b32 a, b;
  mov.b32 a, {x0, x1};
  mov.b32 b, {x2, x3};
  set.${c}.${to}.${t}x2 y, a, b;`,
            result: (x0 = 0n, x1 = 0n, x2 = 0n, x3 = 0n) => {
              const [low, high] = both((x1 << 16n) | x0, (x3 << 16n) | x2);
              return (low ? one : 0n) | ((high ? one : 0n) << 16n);
            },
          });
        }
      }
    }
    checkAll(list);
  });

  it('select by sign, whatever the type', () => {
    const list: Instruction[] = [];
    for (const t of [...BITS, ...INTEGERS, 'f32', 'f64']) {
      for (const by of ['s32', 'f32', 'ftz.f32']) {
        list.push({
          name: `slct.${by === 'ftz.f32' ? `ftz.${t}.f32` : `${t}.${by}`}`,
          to: t,
          from: [t, t, by === 's32' ? 's32' : 'f32'],
          result: (a = 0n, b = 0n, c = 0n) => {
            if (by === 's32') return integer('s32', c) >= 0n ? a : b;
            const order = fp.compare(fp.decode(fp.F32, c, by === 'ftz.f32'), zero);
            return order !== null && order >= 0 ? a : b;
          },
        });
      }
      list.push({
        name: `selp.${t}`,
        to: t,
        from: [t, t, 'u32'],
        body: `setp.gt.u32 %q, x2, 32;\n  selp.${t} y, x0, x1, %q;`,
        result: (a = 0n, b = 0n, n = 0n) => (n > 32n ? a : b),
      });
    }
    checkAll(list);
  });
});

describe('floats', () => {
  const top = (t: string): bigint => 1n << BigInt(fp.width(format(t)) - 1);
  const flushed = (t: string, bits: bigint, flush: boolean): bigint =>
    flush && (bits & (top(t) - 1n)) < 1n << BigInt(format(t).fraction) ? bits & top(t) : bits;
  const isNan = (t: string, bits: bigint): boolean => fp.decode(format(t), bits).kind === 'nan';
  const pairwise = (t: string, f: (...x: bigint[]) => bigint, arity: number, name: string): Instruction[] => {
    const names = ['a', 'b', 'c'].slice(0, arity);
    return [
      {
        name: `${name}.${t}`,
        to: t,
        from: Array.from({ length: arity }, () => t),
        ...(t === 'f64' ? { anyNan: fp.F64 } : {}),
        result: f,
      },
      ...(t === 'f16' || t === 'bf16'
        ? [
            {
              name: `${name}.${t}x2`,
              to: 'b32',
              from: Array.from({ length: arity }, () => t),
              body: `.reg .b32 ${names.join(', ')};
${names.map((n, i) => `  mov.b32 ${n}, {x${i}, x${(i + 1) % arity}};`).join('\n')}
  ${name}.${t}x2 y, ${names.join(', ')};`,
              result: (...x: bigint[]) => f(...x) | (f(...x.map((_, i) => x[(i + 1) % arity] ?? 0n)) << 16n),
            },
          ]
        : []),
    ];
  };

  it('have a least and a greatest, with the signs of both', () => {
    checkAll(
      ['f16', 'bf16', 'f32'].flatMap((t) =>
        ['min', 'max'].flatMap((name) =>
          [false, true].flatMap((nan) =>
            [false, true].flatMap((signs) =>
              (t === 'bf16' ? [false] : [false, true]).flatMap((flush) =>
                pairwise(
                  t,
                  (x = 0n, y = 0n) => {
                    const sign = signs ? (x ^ y) & top(t) : 0n;
                    const [a, b] = [x, y].map((v) => flushed(t, v, flush) & (signs ? top(t) - 1n : -1n)) as [
                      bigint,
                      bigint,
                    ];
                    const quiet = top(t) - 1n;
                    if (isNan(t, a) && isNan(t, b)) return quiet;
                    if (isNan(t, a) || isNan(t, b)) return nan ? quiet : (isNan(t, a) ? b : a) | sign;
                    const order = fp.compare(fp.decode(format(t), a), fp.decode(format(t), b)) ?? 0;
                    const first =
                      order === 0
                        ? ((a & top(t)) !== 0n) === (name === 'min')
                        : order < 0 === (name === 'min');
                    return (first ? a : b) | sign;
                  },
                  2,
                  `${name}${flush ? '.ftz' : ''}${nan ? '.NaN' : ''}${signs ? '.xorsign.abs' : ''}`,
                ),
              ),
            ),
          ),
        ),
      ),
    );
  });

  it('lose and change their sign', () => {
    checkAll(
      ['f16', 'bf16', 'f32', 'f64'].flatMap((t) =>
        ['abs', 'neg'].flatMap((name) =>
          (t === 'f16' || t === 'f32' ? [false, true] : [false]).flatMap((flush) =>
            pairwise(
              t,
              (x = 0n) => {
                if (isNan(t, x)) return fp.encode(format(t), fp.NAN);
                const a = flushed(t, x, flush);
                return name === 'abs' ? a & (top(t) - 1n) : a ^ top(t);
              },
              1,
              `${name}${flush ? '.ftz' : ''}`,
            ),
          ),
        ),
      ),
    );
  });

  it('take the sign of another', () => {
    checkAll(
      ['f32', 'f64'].map(
        (t): Instruction => ({
          name: `copysign.${t}`,
          to: t,
          from: [t, t],
          ...(t === 'f64' ? { anyNan: fp.F64 } : {}),
          result: (a = 0n, b = 0n) => (a & top(t)) | (b & (top(t) - 1n)),
        }),
      ),
    );
  });

  it('of 16 bits saturate, flush and clip', () => {
    const limited = (how: string, value: fp.Value): fp.Value => {
      if (how.includes('sat')) {
        if (value.kind === 'nan' || value.negative) return zero;
        return fp.compare(value, one) === 1 ? one : value;
      }
      if (how.includes('relu')) return value.kind !== 'nan' && value.negative ? zero : value;
      return value;
    };
    /** A result that is subnormal once rounded is flushed: the ISA does not say what comes first. */
    const rounded = (t: string, how: string, value: fp.Value): bigint =>
      flushed(t, fp.encode(format(t), limited(how, value)), how.includes('ftz'));
    const list: Instruction[] = [];
    for (const t of ['f16', 'bf16']) {
      for (const how of t === 'f16' ? ['.sat', '.ftz', '.ftz.sat'] : []) {
        const flush = how.includes('ftz');
        for (const [name, f] of [
          ['add', (a: fp.Value, b: fp.Value) => fp.add(a, b)],
          ['sub', (a: fp.Value, b: fp.Value) => fp.add(a, fp.negate(b))],
          ['mul', (a: fp.Value, b: fp.Value) => fp.multiply(a, b)],
        ] as const) {
          list.push(
            ...pairwise(
              t,
              (a = 0n, b = 0n) =>
                rounded(t, how, f(fp.decode(format(t), a, flush), fp.decode(format(t), b, flush))),
              2,
              `${name}.rn${how}`,
            ),
          );
        }
      }
      for (const how of t === 'f16'
        ? ['', '.sat', '.ftz', '.ftz.sat', '.relu', '.ftz.relu']
        : ['', '.relu']) {
        const flush = how.includes('ftz');
        list.push(
          ...pairwise(
            t,
            (a = 0n, b = 0n, c = 0n) => {
              const [x, y, z] = [a, b, c].map((v) => fp.decode(format(t), v, flush)) as [
                fp.Value,
                fp.Value,
                fp.Value,
              ];
              return rounded(t, how, fp.add(fp.multiply(x, y), z));
            },
            3,
            `fma.rn${how}`,
          ),
        );
      }
    }
    checkAll(list);
  });

  it('of 32 and 64 bits flush and saturate in every rounding', () => {
    const list: Instruction[] = [];
    const saturated = (value: fp.Value): fp.Value =>
      value.kind === 'nan' || value.negative ? zero : fp.compare(value, one) === 1 ? one : value;
    for (const mode of ['rn', 'rz', 'rm', 'rp'] as const) {
      for (const how of ['.ftz', '.sat', '.ftz.sat']) {
        const flush = how.includes('ftz');
        for (const [name, arity, f] of [
          ['add', 2, (a: fp.Value, b: fp.Value) => fp.add(a, b, mode)],
          ['sub', 2, (a: fp.Value, b: fp.Value) => fp.add(a, fp.negate(b), mode)],
          ['mul', 2, (a: fp.Value, b: fp.Value) => fp.multiply(a, b)],
          ['fma', 3, (a: fp.Value, b: fp.Value, c: fp.Value) => fp.add(fp.multiply(a, b), c, mode)],
        ] as const) {
          list.push({
            name: `${name}.${mode}${how}.f32`,
            to: 'f32',
            from: Array.from({ length: arity }, () => 'f32'),
            result: (...x) => {
              const [a = zero, b = zero, c = zero] = x.map((v) => fp.decode(fp.F32, v, flush));
              const r = f(a, b, c);
              return fp.encode(fp.F32, how.includes('sat') ? saturated(r) : r, mode, flush);
            },
          });
        }
        if (how !== '.ftz') continue;
        list.push(
          {
            name: `div.${mode}.ftz.f32`,
            to: 'f32',
            from: ['f32', 'f32'],
            result: (a = 0n, b = 0n) =>
              fp.encode(
                fp.F32,
                fp.divide(fp.decode(fp.F32, a, true), fp.decode(fp.F32, b, true)),
                mode,
                true,
              ),
          },
          {
            name: `rcp.${mode}.ftz.f32`,
            to: 'f32',
            from: ['f32'],
            result: (a = 0n) => fp.encode(fp.F32, fp.divide(one, fp.decode(fp.F32, a, true)), mode, true),
          },
          {
            name: `sqrt.${mode}.ftz.f32`,
            to: 'f32',
            from: ['f32'],
            result: (a = 0n) => fp.encode(fp.F32, fp.squareRoot(fp.decode(fp.F32, a, true)), mode, true),
          },
        );
      }
    }
    checkAll(list);
  });
});
