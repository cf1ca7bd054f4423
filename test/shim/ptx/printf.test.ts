/** The formats of a kernel's printf: widths and precisions as arguments, sizes, what it returns. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { runPtx } from './machine.js';

type Value = { readonly i32: number } | { readonly i64: bigint } | { readonly f64: number };
const i32 = (value: number): Value => ({ i32: value });
const i64 = (value: bigint): Value => ({ i64: value });
const f64 = (value: number): Value => ({ f64: value });

/** The arguments as a compiler lays them out: each at a multiple of its size. */
function layOut(values: readonly Value[]): string {
  let at = 0;
  return values
    .map((value) => {
      const size = 'i32' in value ? 4 : 8;
      at = Math.ceil(at / size) * size;
      const here = `st.local.${size === 4 ? 'u32' : 'u64'} [values+${at}]`;
      at += size;
      if ('i32' in value) return `${here}, ${value.i32 >>> 0};`;
      const bits = Buffer.alloc(8);
      if ('i64' in value) bits.writeBigInt64LE(value.i64);
      else bits.writeDoubleLE(value.f64);
      return `${here}, ${bits.readBigUInt64LE()}U;`;
    })
    .join('\n');
}

function printf(format: string | null, ...values: Value[]): { printed: string; returned: number } {
  const text = [...Buffer.from(`${format ?? ''}\0`)].join(',');
  const { load, launches, printed, buffers } = runPtx({
    ptx: {
      text: `.version 7.0
.target sm_70
.address_size 64
.extern .func (.param .b32 result) vprintf (.param .b64 f, .param .b64 v);
.global .align 1 .b8 text[] = {${text}};
.visible .entry k(.param .u64 out)
{
.local .align 8 .b8 values[512];
.reg .b64 %rd<5>; .reg .b32 %r<3>;
ld.param.u64 %rd1, [out];
${layOut(values)}
mov.u64 %rd2, ${format === null ? '0' : 'text'}; ${format === null ? '' : 'cvta.global.u64 %rd2, %rd2;'}
mov.u64 %rd3, values; cvta.local.u64 %rd3, %rd3;
{ .param .b64 f; st.param.b64 [f], %rd2; .param .b64 v; st.param.b64 [v], %rd3; .param .b32 r;
call.uni (r), vprintf, (f, v); ld.param.b32 %r1, [r]; }
st.global.u32 [%rd1], %r1;
ret;
}
`,
    },
    buffers: [4],
    launches: [{ kernel: 'k', block: [1], args: ['b1'] }],
  });
  assert.match(load, /^ok/);
  assert.match(launches[0] ?? '', /^ok/);
  return { printed, returned: buffers[0]?.readInt32LE(0) ?? 0 };
}

describe("a kernel's printf", () => {
  it('takes a width and a precision from its arguments', () => {
    const { printed } = printf(
      '[%*d|%-*d|%.*f|%*.*f|%*d|%.*f] %d\n',
      ...[i32(6), i32(1), i32(4), i32(2), i32(3), f64(0.7), i32(9), i32(2), f64(1.9)],
      ...[i32(-4), i32(3), i32(-1), f64(0.5), i32(77)],
    );
    assert.equal(printed, '[     1|2   |0.700|     1.90|3   |0.500000] 77\n');
  });

  it('pads as far as the width says', () => {
    assert.equal(
      printf('%120d|%-101s|', i32(7), i64(0n)).printed,
      `${'7'.padStart(120)}|${'(null)'.padEnd(101)}|`,
    );
    assert.equal(printf('%12p|%-8p|', i64(0x1234n), i64(0n)).printed, '      0x1234|0x0     |');
  });

  it('takes as much of an integer as h and hh say', () => {
    const values = [i32(0x1_8001), i32(0x1_8001), i32(0x1ff), i32(0x1ff)];
    assert.equal(printf('%hd %hu %hhd %hhu', ...values).printed, '-32767 32769 -1 255');
    assert.equal(
      printf('%lld %lx %u', i64(-5n), i64(-1n), i32(-1)).printed,
      '-5 ffffffffffffffff 4294967295',
    );
  });

  it('returns the number of arguments, 0 without any, -1 without a format', () => {
    assert.equal(printf('%d and %*d\n', i32(1), i32(2), i32(3)).returned, 3);
    assert.equal(printf('nothing\n').returned, 0);
    assert.deepEqual(printf(null), { printed: '', returned: -1 });
  });

  it('has at most 32 arguments; what follows is printed as it is', () => {
    const values = Array.from({ length: 33 }, (_, i) => i32(i));
    const { printed, returned } = printf('%d '.repeat(33), ...values);
    assert.equal(printed, `${Array.from({ length: 32 }, (_, i) => `${i} `).join('')}%d `);
    assert.equal(returned, 32);
  });
});
