/**
 * cvt between every pair of types that have it, with each rounding and modifier, over operands at their edges
 * (ptx/edges.ts) against an evaluation that shares nothing with the machine (ptx/float.ts, BigInt).
 */
import { describe, it } from 'node:test';
import {
  abs,
  bitsOf,
  checkAll,
  clamp,
  FORMATS,
  format,
  highest,
  INTEGERS,
  type Instruction,
  integer,
  lowest,
} from './edges.js';
import * as fp from './float.js';

const MODES = ['rn', 'rz', 'rm', 'rp'] as const;
const zero = fp.finite(false, 0n, 0);
const one = fp.finite(false, 1n, 0);

/** Subnormal operands of f32 as .ftz takes them. */
const taken = (type: string, bits: bigint, flush: boolean): fp.Value =>
  fp.decode(format(type), bits, flush && type === 'f32');

const saturated = (value: fp.Value): fp.Value => {
  if (value.kind === 'nan' || value.negative) return zero;
  return fp.compare(value, one) === 1 ? one : value;
};
const clipped = (value: fp.Value): fp.Value => (value.kind !== 'nan' && value.negative ? zero : value);
/** The largest number of the format instead of more and of infinity. */
const finite = (type: string, bits: bigint): bigint => {
  const f = format(type);
  const top = 1n << BigInt(fp.width(f) - 1);
  const infinity = ((1n << BigInt(f.exponent)) - 1n) << BigInt(f.fraction);
  return (bits & (top - 1n)) === infinity ? bits - 1n : bits;
};

const nan = (type: string): { anyNan?: fp.Format } => (type === 'f64' ? { anyNan: fp.F64 } : {});

describe('cvt', () => {
  it('makes integers of floats, with and without .ftz', () => {
    const modes = { rni: 'rn', rzi: 'rz', rmi: 'rm', rpi: 'rp' } as const;
    checkAll(
      ['f16', 'bf16', 'f32'].flatMap((from) =>
        ['u8', 's8', ...INTEGERS].flatMap((to) =>
          (Object.keys(modes) as (keyof typeof modes)[]).flatMap((mode) =>
            (from === 'f32' ? [true] : [false]).map(
              (flush): Instruction => ({
                name: `cvt.${mode}${flush ? '.ftz' : ''}.${to}.${from}`,
                to,
                from: [from],
                result: (bits = 0n) => {
                  const value = taken(from, bits, flush);
                  if (value.kind === 'nan') return bitsOf(to) === 64 ? 1n << 63n : 0n;
                  if (value.kind === 'infinite') return value.negative ? lowest(to) : highest(to);
                  return clamp(fp.toInteger(value, modes[mode]), lowest(to), highest(to));
                },
              }),
            ),
          ),
        ),
      ),
    );
  });

  it('makes floats of integers, in every rounding', () => {
    checkAll(
      ['f16', 'bf16', 'f32', 'f64'].flatMap((to) =>
        ['u8', 's8', ...INTEGERS].flatMap((from) =>
          MODES.flatMap((mode) =>
            [false, true].flatMap((saturate): Instruction[] => [
              {
                name: `cvt.${mode}${saturate ? '.sat' : ''}.${to}.${from}`,
                to,
                from: [from],
                result: (bits = 0n) => {
                  const value = integer(from, bits);
                  const exact = fp.finite(value < 0n, abs(value), 0);
                  return fp.encode(format(to), saturate ? saturated(exact) : exact, mode);
                },
              },
            ]),
          ),
        ),
      ),
    );
  });

  it('makes floats of floats, in every rounding, with .ftz and .sat', () => {
    const types = Object.keys(FORMATS);
    checkAll(
      types.flatMap((from) =>
        types
          .filter((to) => to !== from)
          .flatMap((to) =>
            MODES.flatMap((mode) =>
              [false, true].flatMap((saturate) =>
                (from === 'f32' || to === 'f32' ? [false, true] : [false]).map(
                  (flush): Instruction => ({
                    name: `cvt.${mode}${flush ? '.ftz' : ''}${saturate ? '.sat' : ''}.${to}.${from}`,
                    to,
                    from: [from],
                    ...nan(to),
                    result: (bits = 0n) => {
                      const value = taken(from, bits, flush);
                      return fp.encode(
                        format(to),
                        saturate ? saturated(value) : value,
                        mode,
                        flush && to === 'f32',
                      );
                    },
                  }),
                ),
              ),
            ),
          ),
      ),
    );
  });

  it('rounds floats to integral ones', () => {
    const modes = { rni: 'rn', rzi: 'rz', rmi: 'rm', rpi: 'rp' } as const;
    checkAll(
      Object.keys(FORMATS).flatMap((t) =>
        (Object.keys(modes) as (keyof typeof modes)[]).flatMap((mode) =>
          [false, true].flatMap((saturate) =>
            (t === 'f32' ? [false, true] : [false]).map(
              (flush): Instruction => ({
                name: `cvt.${mode}${flush ? '.ftz' : ''}${saturate ? '.sat' : ''}.${t}.${t}`,
                to: t,
                from: [t],
                ...nan(t),
                result: (bits = 0n) => {
                  const value = taken(t, bits, flush);
                  const whole: fp.Value =
                    value.kind === 'finite'
                      ? fp.finite(value.negative, abs(fp.toInteger(value, modes[mode])), 0)
                      : value;
                  return fp.encode(format(t), saturate ? saturated(whole) : whole);
                },
              }),
            ),
          ),
        ),
      ),
    );
  });

  it('makes 16-bit floats that are not negative or not infinite', () => {
    checkAll(
      ['f16', 'bf16'].flatMap((to) =>
        (['rn', 'rz'] as const).flatMap((mode) =>
          ['', '.relu', '.satfinite', '.relu.satfinite'].flatMap((how): Instruction[] => {
            const value = (bits: bigint): bigint => {
              const x = fp.decode(fp.F32, bits);
              const r = fp.encode(format(to), how.includes('relu') ? clipped(x) : x, mode);
              return how.includes('satfinite') ? finite(to, r) : r;
            };
            return [
              { name: `cvt.${mode}${how}.${to}.f32`, to, from: ['f32'], result: (a = 0n) => value(a) },
              {
                name: `cvt.${mode}${how}.${to}x2.f32`,
                to: 'b32',
                from: ['f32', 'f32'],
                result: (a = 0n, b = 0n) => (value(a) << 16n) | value(b),
              },
            ];
          }),
        ),
      ),
    );
  });

  it('makes tf32', () => {
    checkAll(
      (['rna', 'rn', 'rz'] as const).flatMap((mode) =>
        ['', '.relu', '.satfinite', '.relu.satfinite']
          .filter((how) => mode !== 'rna' || !how.includes('relu'))
          .map(
            (how): Instruction => ({
              name: `cvt.${mode}${how}.tf32.f32`,
              to: 'b32',
              from: ['f32'],
              result: (bits = 0n) => {
                const sign = bits & 0x80000000n;
                const rest = bits & 0x7fffffffn;
                if (rest > 0x7f800000n) return 0x7fffffffn;
                const lost = rest & 0x1fffn;
                const even = (rest & 0x2000n) === 0n;
                const up =
                  (mode === 'rna' && lost >= 0x1000n) ||
                  (mode === 'rn' && (lost > 0x1000n || (lost === 0x1000n && !even)));
                let r = rest === 0x7f800000n ? rest : (rest & ~0x1fffn) + (up ? 0x2000n : 0n);
                if (how.includes('relu') && sign !== 0n) return 0n;
                if (how.includes('satfinite') && r === 0x7f800000n) r = 0x7f7fe000n;
                return sign | r;
              },
            }),
          ),
      ),
    );
  });

  it('makes pairs of 8-bit floats of f32 and of pairs of f16, and the other way round', () => {
    const formats = [
      { name: 'e4m3', exponent: 4, fraction: 3, bias: 7, most: 0x7en },
      { name: 'e5m2', exponent: 5, fraction: 2, bias: 15, most: 0x7bn },
    ] as const;
    type Eight = (typeof formats)[number];
    /** The number that these bits are. */
    const number = (f: Eight, bits: bigint): fp.Value => {
      const magnitude = bits & 0x7fn;
      if (magnitude > (f.name === 'e4m3' ? 0x7en : 0x7cn)) return fp.NAN;
      if (f.name === 'e5m2' && magnitude === 0x7cn) return { kind: 'infinite', negative: bits >= 128n };
      const exponent = Number(magnitude >> BigInt(f.fraction));
      const fraction = magnitude & ((1n << BigInt(f.fraction)) - 1n);
      const scale = Math.max(exponent, 1) - f.bias - f.fraction;
      return fp.finite(
        bits >= 128n,
        exponent === 0 ? fraction : fraction | (1n << BigInt(f.fraction)),
        scale,
      );
    };
    /** The nearest of all numbers of the format, the even one of two; never beyond the largest. */
    const nearest = (f: Eight, value: fp.Value, relu: boolean): bigint => {
      if (value.kind === 'nan') return 0x7fn;
      if (relu && value.negative) return 0n;
      const sign = value.negative ? 0x80n : 0n;
      if (value.kind === 'infinite') return sign | f.most;
      const positive: fp.Value = { ...value, negative: false };
      let best: bigint = f.most;
      for (let i = 0n; i < f.most; i++) {
        const low = number(f, i);
        const high = number(f, i + 1n);
        const twice = fp.add(positive, positive);
        const order = fp.compare(twice, fp.add(low, high));
        if (order === -1 || (order === 0 && (i & 1n) === 0n)) {
          best = i;
          break;
        }
      }
      return sign | best;
    };
    checkAll(
      formats.flatMap((f) =>
        [false, true].flatMap((relu): Instruction[] => [
          {
            name: `cvt.rn.satfinite${relu ? '.relu' : ''}.${f.name}x2.f32`,
            to: 'b16',
            from: ['f32', 'f32'],
            result: (a = 0n, b = 0n) =>
              (nearest(f, fp.decode(fp.F32, a), relu) << 8n) | nearest(f, fp.decode(fp.F32, b), relu),
          },
          {
            name: `cvt.rn.satfinite${relu ? '.relu' : ''}.${f.name}x2.f16x2`,
            to: 'b16',
            from: ['f16', 'f16'],
            body: `.reg .b32 both;
  mov.b32 both, {x0, x1};
  cvt.rn.satfinite${relu ? '.relu' : ''}.${f.name}x2.f16x2 y, both;`,
            result: (a = 0n, b = 0n) =>
              nearest(f, fp.decode(fp.F16, a), relu) | (nearest(f, fp.decode(fp.F16, b), relu) << 8n),
          },
          {
            name: `cvt.rn${relu ? '.relu' : ''}.f16x2.${f.name}x2`,
            to: 'b32',
            from: ['u8', 'u8'],
            body: `.reg .b16 both;
  shl.b16 both, x1, 8;
  or.b16 both, both, x0;
  cvt.rn${relu ? '.relu' : ''}.f16x2.${f.name}x2 y, both;`,
            result: (a = 0n, b = 0n) => {
              const half = (x: bigint): bigint => {
                const value = number(f, x);
                return fp.encode(fp.F16, relu ? clipped(value) : value);
              };
              return half(a) | (half(b) << 16n);
            },
          },
        ]),
      ),
    );
  });
});
