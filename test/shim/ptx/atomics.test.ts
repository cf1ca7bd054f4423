/** Atomics of 32 and 64 bits: each operation, type and space, of all lanes and of some, against the same computed here. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { random, runPtx } from './machine.js';

type Change = (old: bigint, b: bigint, c: bigint) => bigint;

/** By operation and kind of type; what is not here is not an instruction. */
function change(operation: string, kind: string, bits: number): Change | undefined {
  const u = (x: bigint): bigint => BigInt.asUintN(bits, x);
  const key = (x: bigint): bigint => (kind === 's' ? BigInt.asIntN(bits, x) : x);
  const view = new DataView(new ArrayBuffer(8));
  const float = (x: bigint): number => {
    if (bits === 32) view.setUint32(0, Number(x));
    else view.setBigUint64(0, x);
    return bits === 32 ? view.getFloat32(0) : view.getFloat64(0);
  };
  const bitsOf = (x: number): bigint => {
    if (bits === 32) view.setFloat32(0, x);
    else view.setFloat64(0, x);
    return bits === 32 ? BigInt(view.getUint32(0)) : view.getBigUint64(0);
  };
  switch (`${operation}.${kind}`) {
    case 'and.b':
      return (old, b) => old & b;
    case 'or.b':
      return (old, b) => old | b;
    case 'xor.b':
      return (old, b) => old ^ b;
    case 'exch.b':
      return (_, b) => b;
    case 'cas.b':
      return (old, b, c) => (old === b ? c : old);
    case 'add.u':
    case 'add.s':
      return (old, b) => u(old + b);
    case 'add.f':
      return (old, b) => bitsOf(float(old) + float(b));
    case 'inc.u':
      return bits === 64 ? undefined : (old, b) => (old >= b ? 0n : old + 1n);
    case 'dec.u':
      return bits === 64 ? undefined : (old, b) => (old === 0n || old > b ? b : old - 1n);
    case 'min.u':
    case 'min.s':
      return (old, b) => (key(old) < key(b) ? old : b);
    case 'max.u':
    case 'max.s':
      return (old, b) => (key(old) > key(b) ? old : b);
    default:
      return undefined;
  }
}

interface Space {
  readonly name: string;
  readonly written: string;
  readonly shared: boolean;
}

function check(
  operation: string,
  kind: string,
  bits: number,
  space: Space,
  some: boolean,
  next: () => number,
) {
  const apply = change(operation, kind, bits);
  if (apply === undefined) return;
  const bytes = bits / 8;
  const memory = Buffer.alloc(32 * bytes);
  const [b, c, places] = [Buffer.alloc(32 * bytes), Buffer.alloc(32 * bytes), Buffer.alloc(128)];
  const put = (to: Buffer, i: number, x: bigint): void => {
    if (bits === 32) to.writeUInt32LE(Number(x), i * 4);
    else to.writeBigUInt64LE(x, i * 8);
  };
  const get = (from: Buffer, i: number): bigint =>
    bits === 32 ? BigInt(from.readUInt32LE(i * 4)) : from.readBigUInt64LE(i * 8);
  const value = (): bigint => {
    if (kind === 'f') {
      const x = (next() % 4001) / 8 - 250;
      const written = Buffer.alloc(8);
      if (bits === 32) written.writeFloatLE(x);
      else written.writeDoubleLE(x);
      return get(written, 0);
    }
    const low = BigInt(next() >>> 0);
    const small = next() % 3 === 0;
    return small ? low % 5n : BigInt.asUintN(bits, (BigInt(next() >>> 0) << 32n) | low);
  };
  for (let lane = 0; lane < 32; lane++) {
    put(memory, lane, value());
    put(c, lane, value());
    places.writeUInt32LE(lane % 3 === 0 ? next() % 32 : 7, lane * 4);
  }
  for (let lane = 0; lane < 32; lane++)
    put(b, lane, next() % 2 === 0 ? get(memory, places.readUInt32LE(lane * 4)) : value());
  const lanes = Array.from({ length: 32 }, (_, lane) => lane).filter(
    (lane) => !some || (0x5a3c_f019 >>> lane) & 1,
  );
  const register = kind === 'f' ? 'f' : 'b';
  const third = operation === 'cas' ? ', %v2' : '';
  const guard = some ? '@%p1 ' : '';
  const name = `${space.written}.${operation}.${kind}${bits}`;
  const outcome = runPtx({
    ptx: {
      text: `.version 8.4\n.target sm_90\n.address_size 64
.entry k(.param .u64 m, .param .u64 b, .param .u64 c, .param .u64 places, .param .u64 d)
{
.reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .${register}${bits} %v<5>; .reg .pred %p<2>;
.shared .align 8 .b8 kept[256];
ld.param.u64 %rd1, [m]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c]; ld.param.u64 %rd4, [places];
ld.param.u64 %rd5, [d];
mov.u32 %r1, %tid.x; mul.wide.u32 %rd6, %r1, ${bytes};
add.u64 %rd2, %rd2, %rd6; add.u64 %rd3, %rd3, %rd6; add.u64 %rd5, %rd5, %rd6;
mad.wide.u32 %rd4, %r1, 4, %rd4; ld.global.u32 %r2, [%rd4];
ld.global.b${bits} %v1, [%rd2]; ld.global.b${bits} %v2, [%rd3];
mov.u32 %r3, kept; cvt.u64.u32 %rd7, %r3; cvta.shared.u64 %rd7, %rd7; add.u64 %rd7, %rd7, %rd6;
add.u64 %rd8, %rd1, %rd6; ld.global.b${bits} %v3, [%rd8]; st.b${bits} [%rd7], %v3;
bar.sync 0;
mov.u32 %r4, 0x5a3cf019; shr.u32 %r4, %r4, %r1; and.b32 %r4, %r4, 1; setp.eq.u32 %p1, %r4, 1;
cvt.u64.u32 %rd7, %r3; ${space.name === 'generic shared' ? 'cvta.shared.u64 %rd7, %rd7;' : ''}
${space.shared ? 'mov.u64 %rd1, %rd7;' : ''}
mad.wide.u32 %rd1, %r2, ${bytes}, %rd1;
${guard}atom${name} %v4, [%rd1], %v1${third};
${guard}st.global.b${bits} [%rd5], %v4;
${operation === 'cas' || operation === 'exch' ? '' : `${guard}red${name} [%rd1], %v1;`}
bar.sync 0;
${space.shared ? `mov.u32 %r3, kept; cvt.u64.u32 %rd7, %r3; add.u64 %rd7, %rd7, %rd6; ld.shared.b${bits} %v3, [%rd7]; st.global.b${bits} [%rd8], %v3;` : ''}
ret;
}
`,
    },
    buffers: [memory, b, c, places, 32 * bytes],
    launches: [{ kernel: 'k', block: [32], args: ['b1', 'b2', 'b3', 'b4', 'b5'] }],
  });
  assert.deepEqual(outcome.refused, []);
  assert.match(outcome.launches[0] ?? '', /^ok/);
  const found = outcome.buffers[4] ?? Buffer.alloc(0);
  const expected = Buffer.alloc(32 * bytes);
  const there = Buffer.from(memory);
  for (const round of operation === 'cas' || operation === 'exch' ? [0] : [0, 1]) {
    for (const lane of lanes) {
      const at = places.readUInt32LE(lane * 4);
      const old = get(there, at);
      if (round === 0) put(expected, lane, old);
      put(there, at, apply(old, get(b, lane), get(c, lane)));
    }
  }
  assert.deepEqual(found, expected, `${name}: what was there`);
  assert.deepEqual(outcome.buffers[0], there, `${name}: what is there`);
}

const SPACES: readonly Space[] = [
  { name: 'global', written: '.global', shared: false },
  { name: 'shared', written: '.shared', shared: true },
  { name: 'generic', written: '', shared: false },
  { name: 'generic shared', written: '', shared: true },
];

describe('atomics', () => {
  for (const operation of ['and', 'or', 'xor', 'cas', 'exch', 'add', 'inc', 'dec', 'min', 'max']) {
    it(`${operation} is done by one lane after the other`, () => {
      const next = random(operation.length);
      for (const kind of ['b', 'u', 's', 'f'])
        for (const bits of kind === 's' && operation === 'add' ? [32] : [32, 64])
          for (const space of SPACES)
            for (const some of [false, true]) check(operation, kind, bits, space, some, next);
    });
  }

  it('of blocks that run at the same time lose nothing', () => {
    const outcome = runPtx({
      ptx: {
        text: `.version 8.4\n.target sm_90\n.address_size 64
.entry k(.param .u64 m)
{
.reg .b64 %rd<3>; .reg .b32 %r<4>; .reg .f64 %d; .reg .pred %p;
ld.param.u64 %rd1, [m]; mov.u32 %r1, 0; mov.f64 %d, 0d3FF0000000000000;
again:
red.global.add.u32 [%rd1], 3; red.global.inc.u32 [%rd1+4], 0xffffffff; red.global.add.f64 [%rd1+8], %d;
red.global.max.s32 [%rd1+16], %r1; atom.global.add.u64 %rd2, [%rd1+24], 5;
add.u32 %r1, %r1, 1; setp.lt.u32 %p, %r1, 100; @%p bra again;
ret;
}
`,
      },
      before: ['helpers 3'],
      buffers: [32],
      launches: [{ kernel: 'k', grid: [40], block: [64], args: ['b1'] }],
    });
    assert.match(outcome.launches[0] ?? '', /^ok/);
    const out = outcome.buffers[0] ?? Buffer.alloc(32);
    const turns = 40 * 64 * 100;
    assert.deepEqual(
      [
        out.readUInt32LE(0),
        out.readUInt32LE(4),
        out.readDoubleLE(8),
        out.readInt32LE(16),
        out.readBigUInt64LE(24),
      ],
      [3 * turns, turns, turns, 99, 5n * BigInt(turns)],
    );
  });

  it('of many lanes at one address each get another number, also when that replaces the operand', () => {
    const outcome = runPtx({
      ptx: {
        text: `.version 8.4\n.target sm_90\n.address_size 64
.entry k(.param .u64 m, .param .u64 seen)
{
.reg .b64 %rd<5>; .reg .b32 %r<6>; .reg .pred %p;
ld.param.u64 %rd1, [m]; ld.param.u64 %rd2, [seen]; mov.u32 %r1, 0;
again:
mov.u32 %r2, 1; atom.global.add.u32 %r2, [%rd1], %r2;
mul.wide.u32 %rd3, %r2, 4; add.u64 %rd3, %rd2, %rd3; red.global.add.u32 [%rd3], 1;
mov.u64 %rd4, 1; atom.global.add.u64 %rd4, [%rd1+8], %rd4;
add.u32 %r1, %r1, 1; setp.lt.u32 %p, %r1, 50; @%p bra again;
ret;
}
`,
      },
      before: ['helpers 3'],
      buffers: [16, 40 * 64 * 50 * 4],
      launches: [{ kernel: 'k', grid: [40], block: [64], args: ['b1', 'b2'] }],
    });
    assert.match(outcome.launches[0] ?? '', /^ok/);
    const turns = 40 * 64 * 50;
    const [sums, seen] = outcome.buffers;
    assert.equal(sums?.readUInt32LE(0), turns);
    assert.equal(sums?.readBigUInt64LE(8), BigInt(turns));
    for (let i = 0; i < turns; i++) assert.equal(seen?.readUInt32LE(i * 4), 1, `number ${i}`);
  });
});
