/**
 * Single instructions over operands at their edges: a kernel for each, and what comes out compared with what a test
 * expects. Every pair, and random triples, of: zeros, ones, the least and greatest of each kind, subnormals,
 * infinities, NaN, shifts past the width.
 */
import assert from 'node:assert/strict';
import * as fp from './float.js';
import { random, runPtx } from './machine.js';

export interface Instruction {
  /** With modifiers: `add.rn.f32`. */
  readonly name: string;
  /** Types of the result and of the operands. */
  readonly to: string;
  readonly from: readonly string[];
  readonly result: (...operands: bigint[]) => bigint;
  /** NaN results of doubles keep a payload that the ISA does not fix. */
  readonly anyNan?: fp.Format;
  /** An operand that is written in the text. */
  readonly immediate?: string;
  /** The kernel's text instead of `name result, operands`: operands x0, x1, ..., results y or %result. */
  readonly body?: string;
}

const widths: Readonly<Record<string, number>> = { f16x2: 32, bf16x2: 32, bf16: 16, pred: 32 };
export const bitsOf = (type: string): number => widths[type] ?? Number(type.slice(1));
export const signedness = (type: string): boolean => type.startsWith('s');
export const integer = (type: string, bits: bigint): bigint =>
  signedness(type) ? BigInt.asIntN(bitsOf(type), bits) : bits;
const wrap = (type: string, value: bigint): bigint => BigInt.asUintN(bitsOf(type), value);
export const FORMATS: Readonly<Record<string, fp.Format>> = {
  f16: fp.F16,
  bf16: fp.BF16,
  f32: fp.F32,
  f64: fp.F64,
};
export function format(type: string): fp.Format {
  const f = FORMATS[type];
  assert.ok(f);
  return f;
}

function edges(type: string): bigint[] {
  const bits = bitsOf(type);
  const f = FORMATS[type];
  if (f !== undefined) {
    const top = 1n << BigInt(bits - 1);
    const infinity = ((1n << BigInt(f.exponent)) - 1n) << BigInt(f.fraction);
    const one = ((1n << BigInt(f.exponent - 1)) - 1n) << BigInt(f.fraction);
    const least = 1n << BigInt(f.fraction);
    const positive = [
      0n,
      1n,
      least - 1n,
      least,
      least + 1n,
      one - 1n,
      one,
      one + 1n,
      one + least / 2n,
      infinity - 1n,
      infinity,
      infinity | (least >> 1n),
      one + 5n * least,
      (infinity - 1n) / 3n,
      one - 12n * (least / 3n),
    ];
    return [...positive, ...positive.map((x) => x | top)].map((x) => BigInt.asUintN(bits, x));
  }
  const all = (1n << BigInt(bits)) - 1n;
  const top = 1n << BigInt(bits - 1);
  return [
    0n,
    1n,
    2n,
    3n,
    7n,
    31n,
    32n,
    33n,
    63n,
    64n,
    65n,
    255n,
    256n,
    top - 1n,
    top,
    top + 1n,
    all,
    all - 1n,
    all / 3n,
    0x12345678n & all,
    all - 31n,
  ].map((x) => BigInt.asUintN(bits, x));
}

/** Pairs of all edges, or so many triples by chance. */
function operands(instruction: Instruction, seed: number): bigint[][] {
  const lists = instruction.from.map(edges);
  const [first = [], second = [0n]] = lists;
  if (lists.length <= 2) return first.flatMap((a) => second.map((b) => (lists.length === 1 ? [a] : [a, b])));
  const next = random(seed);
  return Array.from({ length: 1500 }, () =>
    instruction.from.map((type, i) => {
      const list = lists[i] ?? [];
      if (next() % 4 !== 0) return list[next() % list.length] ?? 0n;
      return BigInt.asUintN(bitsOf(type), (BigInt(next()) << 32n) | BigInt(next()));
    }),
  );
}

const register: Readonly<Record<number, string>> = { 8: 'b16', 16: 'b16', 32: 'b32', 64: 'b64' };

/** Most floats of each kernel flush subnormals, so an instruction that must not has to say so. */
const flushing =
  '  mov.b32 %least, 1;\n  add.ftz.f32 %least, %least, %least;\n  add.ftz.f32 %least, %least, %least;';

/** One kernel: thread i takes operands number i. */
export function kernel(instruction: Instruction, number: number): string {
  const { to, from } = instruction;
  const load = from.map((type, i) => {
    const bits = bitsOf(type);
    return [
      `  .reg .${register[bits]} x${i};`,
      `  mad.wide.u32 %address, %index, ${bits / 8}, %in${i};`,
      `  ld.global.${bits === 8 ? 'u8' : `b${bits}`} x${i}, [%address];`,
    ].join('\n');
  });
  const list = [
    ...from.map((_, i) => `x${i}`),
    ...(instruction.immediate === undefined ? [] : [instruction.immediate]),
  ];
  const predicate = to === 'pred';
  return `
.visible .entry k${number}(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 p3, .param .u64 po, .param .u32 n)
{
  .reg .b64 %in<4>;
  .reg .b64 %out, %address;
  .reg .b32 %index, %count, %block, %size;
  .reg .pred %done, %result, %q;
  .reg .f32 %least;
  .reg .${register[bitsOf(to)]} y;
  mov.u32 %block, %ctaid.x;
  mov.u32 %size, %ntid.x;
  mov.u32 %index, %tid.x;
  mad.lo.u32 %index, %block, %size, %index;
  ld.param.u32 %count, [n];
  setp.ge.u32 %done, %index, %count;
  @%done bra end;
  ld.param.u64 %in0, [p0];
  ld.param.u64 %in1, [p1];
  ld.param.u64 %in2, [p2];
  ld.param.u64 %in3, [p3];
  ld.param.u64 %out, [po];
${load.join('\n')}
${flushing}
  ${instruction.body ?? `${instruction.name} ${predicate ? '%result' : 'y'}, ${list.join(', ')};`}
${predicate ? '  selp.b32 y, 1, 0, %result;' : ''}
  mad.wide.u32 %address, %index, ${bitsOf(to) / 8}, %out;
  st.global.${bitsOf(to) === 8 ? 'u8' : `b${bitsOf(to)}`} [%address], y;
end:
  ret;
}`;
}

function write(buffer: Buffer, index: number, bits: number, value: bigint): void {
  const at = (index * bits) / 8;
  if (bits === 64) buffer.writeBigUInt64LE(value, at);
  else buffer.writeUIntLE(Number(value), at, bits / 8);
}
function read(buffer: Buffer, index: number, bits: number): bigint {
  const at = (index * bits) / 8;
  return bits === 64 ? buffer.readBigUInt64LE(at) : BigInt(buffer.readUIntLE(at, bits / 8));
}

/** One line for each instruction that is wrong, with the first operands for which it is. */
function check(instructions: readonly Instruction[]): string[] {
  const wrong: string[] = [];
  const text = `.version 8.4\n.target sm_90\n.address_size 64\n${instructions.map(kernel).join('\n')}`;
  const cases = instructions.map((instruction, i) => operands(instruction, 77 + i));
  const buffers: (Buffer | number)[] = [];
  const launches = instructions.map((instruction, i) => {
    const list = cases[i] ?? [];
    const first = buffers.length + 1;
    for (let k = 0; k < 4; k++) {
      const type = instruction.from[k];
      if (type === undefined) continue;
      const buffer = Buffer.alloc((list.length * bitsOf(type)) / 8);
      list.forEach((operand, n) => {
        write(buffer, n, bitsOf(type), operand[k] ?? 0n);
      });
      buffers.push(buffer);
    }
    buffers.push((list.length * bitsOf(instruction.to)) / 8);
    const address = (k: number): string => (k < instruction.from.length ? `b${first + k}` : 'u64:0');
    return {
      kernel: `k${i}`,
      grid: [Math.ceil(list.length / 96)],
      block: [96],
      args: [address(0), address(1), address(2), address(3), `b${buffers.length}`, `u32:${list.length}`],
    };
  });
  const outcome = runPtx({ ptx: { text }, buffers, launches });
  assert.match(outcome.load, /^ok /);
  let at = 0;
  instructions.forEach((instruction, i) => {
    assert.match(outcome.launches[i] ?? '', /^ok /, instruction.name);
    at += instruction.from.length;
    const out = outcome.buffers[at++];
    assert.ok(out);
    for (const [n, operand] of (cases[i] ?? []).entries()) {
      const actual = read(out, n, bitsOf(instruction.to));
      const expected = wrap(instruction.to, instruction.result(...operand));
      if (actual === expected) continue;
      const nan = instruction.anyNan;
      if (nan && fp.decode(nan, actual).kind === 'nan' && fp.decode(nan, expected).kind === 'nan') continue;
      const hex = (x: bigint): string => `0x${x.toString(16)}`;
      wrong.push(`${instruction.name} ${operand.map(hex).join(', ')}: ${hex(actual)}, not ${hex(expected)}`);
      break;
    }
  });
  return wrong;
}

/** At most so many buffers fit one run. */
export function checkAll(instructions: readonly Instruction[]): void {
  const wrong: string[] = [];
  for (let i = 0; i < instructions.length; i += 12) wrong.push(...check(instructions.slice(i, i + 12)));
  assert.equal(wrong.join('\n'), '');
}

export const INTEGERS = ['u16', 's16', 'u32', 's32', 'u64', 's64'] as const;
export const BITS = ['b16', 'b32', 'b64'] as const;

export function integers(
  name: (type: string) => string,
  types: readonly string[],
  count: number,
  f: (type: string, ...x: bigint[]) => bigint,
): Instruction[] {
  return types.map((type) => ({
    name: name(type),
    to: type,
    from: Array.from({ length: count }, () => type),
    result: (...x) => f(type, ...x.map((value) => integer(type, value))),
  }));
}

export const clamp = (x: bigint, low: bigint, high: bigint): bigint => (x < low ? low : x > high ? high : x);
export const lowest = (type: string): bigint => (signedness(type) ? -(1n << BigInt(bitsOf(type) - 1)) : 0n);
export const highest = (type: string): bigint =>
  (1n << BigInt(bitsOf(type) - (signedness(type) ? 1 : 0))) - 1n;
export const abs = (x: bigint): bigint => (x < 0n ? -x : x);
export const count = (x: bigint): number => x.toString(2).replaceAll('0', '').length;
