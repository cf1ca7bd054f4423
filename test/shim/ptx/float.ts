/**
 * Floating point as IEEE 754 and the PTX ISA define it, exact and slow: values are integers times powers of two, and
 * are rounded once. Written from the standard, with nothing of the machine under test.
 */
export interface Format {
  readonly name: 'f16' | 'bf16' | 'f32' | 'f64';
  readonly fraction: number;
  readonly exponent: number;
}
export const F16: Format = { name: 'f16', fraction: 10, exponent: 5 };
export const BF16: Format = { name: 'bf16', fraction: 7, exponent: 8 };
export const F32: Format = { name: 'f32', fraction: 23, exponent: 8 };
export const F64: Format = { name: 'f64', fraction: 52, exponent: 11 };

export type Rounding = 'rn' | 'rz' | 'rm' | 'rp';

export type Value =
  | { readonly kind: 'nan' }
  | { readonly kind: 'infinite'; readonly negative: boolean }
  /** (-1)^negative * magnitude * 2^scale; `sticky`: a little more than that. Zero has a sign. */
  | {
      readonly kind: 'finite';
      readonly negative: boolean;
      readonly magnitude: bigint;
      readonly scale: number;
      readonly sticky?: boolean;
    };

export const NAN: Value = { kind: 'nan' };
export const finite = (negative: boolean, magnitude: bigint, scale: number, sticky = false): Value => ({
  kind: 'finite',
  negative,
  magnitude,
  scale,
  sticky,
});
const infinite = (negative: boolean): Value => ({ kind: 'infinite', negative });

const bias = (f: Format): number => 2 ** (f.exponent - 1) - 1;
export const width = (f: Format): number => 1 + f.exponent + f.fraction;

export function decode(f: Format, bits: bigint, flush = false): Value {
  const fraction = bits & ((1n << BigInt(f.fraction)) - 1n);
  const exponent = Number((bits >> BigInt(f.fraction)) & ((1n << BigInt(f.exponent)) - 1n));
  const negative = bits >> BigInt(f.fraction + f.exponent) === 1n;
  if (exponent === 2 ** f.exponent - 1) return fraction === 0n ? infinite(negative) : NAN;
  if (exponent === 0) return finite(negative, flush ? 0n : fraction, 1 - bias(f) - f.fraction);
  return finite(negative, fraction | (1n << BigInt(f.fraction)), exponent - bias(f) - f.fraction);
}

const length = (value: bigint): number => (value === 0n ? 0 : value.toString(2).length);

/** Below the least normal number once rounded as if exponents had no end: what IEEE calls tiny after rounding. */
function tiny(f: Format, value: Value, rounding: Rounding): boolean {
  const wider: Format = { ...f, exponent: f.exponent + 3 };
  const rounded = decode(wider, encode(wider, value, rounding));
  const least = finite(false, 1n, 1 - bias(f));
  return rounded.kind === 'finite' && compare({ ...rounded, negative: false }, least) === -1;
}

/** Rounded once to the format; NaN comes out as what GPUs make: all ones but the sign. */
export function encode(f: Format, value: Value, rounding: Rounding = 'rn', flush = false): bigint {
  const sign = (negative: boolean): bigint => (negative ? 1n << BigInt(f.fraction + f.exponent) : 0n);
  const infinity = ((1n << BigInt(f.exponent)) - 1n) << BigInt(f.fraction);
  if (value.kind === 'nan') return f === F64 ? 0x7ff8000000000000n : sign(true) - 1n;
  if (value.kind === 'infinite') return sign(value.negative) | infinity;
  const { negative, magnitude, scale } = value;
  if (magnitude === 0n && value.sticky !== true) return sign(negative);
  if (flush && tiny(f, value, rounding)) return sign(negative);
  const least = 1 - bias(f) - f.fraction;
  const unit = Math.max(length(magnitude) - 1 + scale - f.fraction, least);
  const drop = unit - scale;
  let kept: bigint;
  let rest: bigint;
  let half: bigint;
  if (drop <= 0) {
    [kept, rest, half] = [magnitude << BigInt(-drop), 0n, 1n];
  } else {
    kept = magnitude >> BigInt(drop);
    rest = magnitude & ((1n << BigInt(drop)) - 1n);
    half = 1n << BigInt(drop - 1);
  }
  const sticky = value.sticky === true;
  const inexact = rest !== 0n || sticky;
  const up =
    (rounding === 'rn' && (rest > half || (rest === half && (sticky || (kept & 1n) === 1n)))) ||
    (rounding === 'rm' && negative && inexact) ||
    (rounding === 'rp' && !negative && inexact);
  if (up) kept += 1n;
  const exponent = BigInt(unit - least);
  const bits = kept < 1n << BigInt(f.fraction) ? kept : kept + (exponent << BigInt(f.fraction));
  if (bits >= infinity) {
    const toInfinity =
      rounding === 'rn' || (rounding === 'rm' && negative) || (rounding === 'rp' && !negative);
    return sign(negative) | (toInfinity ? infinity : infinity - 1n);
  }
  return sign(negative) | bits;
}

export function add(a: Value, b: Value, rounding: Rounding = 'rn'): Value {
  if (a.kind === 'nan' || b.kind === 'nan') return NAN;
  if (a.kind === 'infinite') return b.kind === 'infinite' && a.negative !== b.negative ? NAN : a;
  if (b.kind === 'infinite') return b;
  const scale = Math.min(a.scale, b.scale);
  const signed = (v: typeof a): bigint => (v.magnitude << BigInt(v.scale - scale)) * (v.negative ? -1n : 1n);
  const sum = signed(a) + signed(b);
  if (sum === 0n) {
    const negative = a.negative === b.negative ? a.negative : rounding === 'rm';
    return finite(negative, 0n, scale);
  }
  return finite(sum < 0n, sum < 0n ? -sum : sum, scale);
}

export function negate(a: Value): Value {
  return a.kind === 'nan' ? a : { ...a, negative: !a.negative };
}

export function multiply(a: Value, b: Value): Value {
  if (a.kind === 'nan' || b.kind === 'nan') return NAN;
  const negative = a.negative !== b.negative;
  const zero = (v: Value): boolean => v.kind === 'finite' && v.magnitude === 0n;
  if (a.kind === 'infinite' || b.kind === 'infinite') return zero(a) || zero(b) ? NAN : infinite(negative);
  return finite(negative, a.magnitude * b.magnitude, a.scale + b.scale);
}

export function divide(a: Value, b: Value): Value {
  if (a.kind === 'nan' || b.kind === 'nan') return NAN;
  const negative = a.negative !== b.negative;
  if (a.kind === 'infinite') return b.kind === 'infinite' ? NAN : infinite(negative);
  if (b.kind === 'infinite') return finite(negative, 0n, 0);
  if (b.magnitude === 0n) return a.magnitude === 0n ? NAN : infinite(negative);
  const numerator = a.magnitude << 200n;
  return finite(negative, numerator / b.magnitude, a.scale - b.scale - 200, numerator % b.magnitude !== 0n);
}

export function squareRoot(a: Value): Value {
  if (a.kind === 'nan') return NAN;
  if (a.kind === 'finite' && a.magnitude === 0n) return a;
  if (a.negative) return NAN;
  if (a.kind === 'infinite') return a;
  const even = a.scale % 2 === 0 ? 0 : 1;
  const wide = a.magnitude << BigInt(200 + even);
  let root = 1n << BigInt(Math.ceil(length(wide) / 2) + 1);
  for (;;) {
    const next = (root + wide / root) >> 1n;
    if (next >= root) break;
    root = next;
  }
  return finite(false, root, (a.scale - even - 200) / 2, root * root !== wide);
}

/** -1, 0, 1, or null when one is NaN. */
export function compare(a: Value, b: Value): number | null {
  if (a.kind === 'nan' || b.kind === 'nan') return null;
  const order = (v: Value): number => (v.kind === 'infinite' ? (v.negative ? -1 : 1) : 0);
  if (a.kind === 'infinite' || b.kind === 'infinite') return Math.sign(order(a) - order(b));
  const difference = add(a, negate(b));
  if (difference.kind !== 'finite' || difference.magnitude === 0n) return 0;
  return difference.negative ? -1 : 1;
}

/** To an integer, before it is clamped. */
export function toInteger(a: Value & { kind: 'finite' }, rounding: Rounding): bigint {
  let magnitude: bigint;
  if (a.scale >= 0) {
    magnitude = a.magnitude << BigInt(a.scale);
  } else {
    const shift = BigInt(-a.scale);
    magnitude = a.magnitude >> shift;
    const rest = a.magnitude - (magnitude << shift);
    const half = 1n << (shift - 1n);
    const up =
      (rounding === 'rn' && (rest > half || (rest === half && (magnitude & 1n) === 1n))) ||
      (rounding === 'rm' && a.negative && rest !== 0n) ||
      (rounding === 'rp' && !a.negative && rest !== 0n);
    if (up) magnitude += 1n;
  }
  return a.negative ? -magnitude : magnitude;
}
