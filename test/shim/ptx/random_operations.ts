/** The results of integer instructions and comparisons, written from the PTX ISA. */
import type { Rounding } from './float.js';

export const M32 = 0xffffffffn;
export const M64 = 0xffffffffffffffffn;
export const s32 = (x: bigint): bigint => BigInt.asIntN(32, x);
export const s64 = (x: bigint): bigint => BigInt.asIntN(64, x);
const bits = (x: bigint): bigint[] => Array.from({ length: 32 }, (_, i) => (x >> BigInt(i)) & 1n);
const count = (x: bigint): bigint => bits(x).reduce((sum, bit) => sum + bit, 0n);
const leading = (x: bigint): bigint => BigInt(x === 0n ? 32 : 32 - x.toString(2).length);
const reversed = (x: bigint): bigint => bits(x).reduce((value, bit) => (value << 1n) | bit, 0n);
const abs = (x: bigint): bigint => (x < 0n ? -x : x);
export const lesser = (x: bigint, y: bigint): bigint => (x < y ? x : y);
export const greater = (x: bigint, y: bigint): bigint => (x > y ? x : y);
const bytesOf = (x: bigint): bigint[] => [0n, 8n, 16n, 24n].map((shift) => (x >> shift) & 255n);
const field = (x: bigint, from: bigint, length: bigint): bigint =>
  (x >> lesser(from & 255n, 32n)) & ((1n << lesser(length & 255n, 32n)) - 1n);
export const lop3 = (x: bigint, y: bigint, z: bigint, table: bigint): bigint =>
  bits(x).reduce((value, bit, i) => {
    const index = (bit << 2n) | (((y >> BigInt(i)) & 1n) << 1n) | ((z >> BigInt(i)) & 1n);
    return value | (((table >> index) & 1n) << BigInt(i));
  }, 0n);
const funnel = (low: bigint, high: bigint): bigint => (high << 32n) | low;

type Three = (x: bigint, y: bigint, z: bigint) => bigint;
/** Of three 32-bit operands; results are cut to 32 bits. */
export const INTEGER: readonly (readonly [name: string, operands: 1 | 2 | 3, apply: Three])[] = [
  ['add.u32', 2, (x, y) => x + y],
  ['sub.s32', 2, (x, y) => x - y],
  ['mul.lo.u32', 2, (x, y) => x * y],
  ['mul.hi.u32', 2, (x, y) => (x * y) >> 32n],
  ['mul.hi.s32', 2, (x, y) => (s32(x) * s32(y)) >> 32n],
  ['mad.lo.s32', 3, (x, y, z) => x * y + z],
  ['mad.hi.u32', 3, (x, y, z) => ((x * y) >> 32n) + z],
  ['and.b32', 2, (x, y) => x & y],
  ['or.b32', 2, (x, y) => x | y],
  ['xor.b32', 2, (x, y) => x ^ y],
  ['not.b32', 1, (x) => ~x],
  ['cnot.b32', 1, (x) => (x === 0n ? 1n : 0n)],
  ['neg.s32', 1, (x) => -x],
  ['abs.s32', 1, (x) => abs(s32(x))],
  ['min.u32', 2, lesser],
  ['max.u32', 2, greater],
  ['min.s32', 2, (x, y) => lesser(s32(x), s32(y))],
  ['max.s32', 2, (x, y) => greater(s32(x), s32(y))],
  ['shl.b32', 2, (x, y) => (y > 31n ? 0n : x << y)],
  ['shr.u32', 2, (x, y) => (y > 31n ? 0n : x >> y)],
  ['shr.s32', 2, (x, y) => s32(x) >> lesser(y, 31n)],
  ['shf.l.wrap.b32', 3, (x, y, z) => (funnel(x, y) << (z & 31n)) >> 32n],
  ['shf.l.clamp.b32', 3, (x, y, z) => (funnel(x, y) << lesser(z, 32n)) >> 32n],
  ['shf.r.wrap.b32', 3, (x, y, z) => funnel(x, y) >> (z & 31n)],
  ['shf.r.clamp.b32', 3, (x, y, z) => funnel(x, y) >> lesser(z, 32n)],
  ['popc.b32', 1, count],
  ['clz.b32', 1, leading],
  ['brev.b32', 1, reversed],
  ['bfe.u32', 3, field],
  ['sad.u32', 3, (x, y, z) => abs(x - y) + z],
  ['sad.s32', 3, (x, y, z) => abs(s32(x) - s32(y)) + z],
  ['mul24.lo.u32', 2, (x, y) => (x & 0xffffffn) * (y & 0xffffffn)],
  [
    'dp4a.u32.u32',
    3,
    (x, y, z) => bytesOf(x).reduce((sum, byte, i) => sum + byte * (bytesOf(y)[i] ?? 0n), z),
  ],
  [
    'dp4a.s32.u32',
    3,
    (x, y, z) => bytesOf(x).reduce((sum, byte, i) => sum + BigInt.asIntN(8, byte) * (bytesOf(y)[i] ?? 0n), z),
  ],
  [
    'dp4a.s32.s32',
    3,
    (x, y, z) =>
      bytesOf(x).reduce(
        (sum, byte, i) => sum + BigInt.asIntN(8, byte) * BigInt.asIntN(8, bytesOf(y)[i] ?? 0n),
        z,
      ),
  ],
];
export const WIDE: readonly (readonly [name: string, apply: (x: bigint, y: bigint) => bigint])[] = [
  ['add.u64', (x, y) => x + y],
  ['sub.s64', (x, y) => x - y],
  ['mul.lo.u64', (x, y) => x * y],
  ['mul.hi.u64', (x, y) => (x * y) >> 64n],
  ['mul.hi.s64', (x, y) => (s64(x) * s64(y)) >> 64n],
  ['and.b64', (x, y) => x & y],
  ['xor.b64', (x, y) => x ^ y],
  ['min.s64', (x, y) => lesser(s64(x), s64(y))],
  ['max.u64', greater],
];
export const COMPARISONS: readonly (readonly [name: string, apply: (x: bigint, y: bigint) => boolean])[] = [
  ['eq.u32', (x, y) => x === y],
  ['ne.s32', (x, y) => x !== y],
  ['lt.u32', (x, y) => x < y],
  ['lt.s32', (x, y) => s32(x) < s32(y)],
  ['ge.s32', (x, y) => s32(x) >= s32(y)],
  ['hi.u32', (x, y) => x > y],
  ['ls.u32', (x, y) => x <= y],
];
export const ROUNDINGS: readonly Rounding[] = ['rn', 'rz', 'rm', 'rp'];
export const at = <T>(list: readonly T[], index: number): T => {
  const value = list[index];
  if (value === undefined) throw new Error(`nothing at ${index} of ${list.length}`);
  return value;
};
