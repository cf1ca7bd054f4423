/**
 * Single floating-point instructions over operands at their edges (ptx/edges.ts) against an evaluation that shares nothing with the
 * machine (ptx/float.ts, BigInt).
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  abs,
  bitsOf,
  checkAll,
  clamp,
  format,
  highest,
  INTEGERS,
  type Instruction,
  integer,
  kernel,
  lowest,
} from './edges.js';
import * as fp from './float.js';
import { bytes, f32, runPtx, u32 } from './machine.js';

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
