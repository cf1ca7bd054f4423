/** `ex2` and `tanh` of every 16-bit float, against the exact values rounded to floats and then to 16 bits. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import * as fp from './float.js';
import { runPtx } from './machine.js';

function number(format: fp.Format, bits: number): number {
  const value = fp.decode(format, BigInt(bits));
  if (value.kind === 'nan') return Number.NaN;
  const size =
    value.kind === 'infinite' ? Number.POSITIVE_INFINITY : Number(value.magnitude) * 2 ** value.scale;
  return value.negative ? -size : size;
}

const wide = new DataView(new ArrayBuffer(8));
function rounded(format: fp.Format, x: number): number {
  if (Number.isNaN(x)) return 0x7fff;
  wide.setFloat64(0, Math.fround(x));
  return Number(fp.encode(format, fp.decode(fp.F64, wide.getBigUint64(0))));
}

function results(instruction: string, width: 16 | 32): Buffer {
  const inputs = Buffer.alloc(131_072);
  for (let bits = 0; bits < 65_536; bits++) inputs.writeUInt16LE(bits, bits * 2);
  const bytes = width / 8;
  const outcome = runPtx({
    ptx: {
      text: `.version 8.4\n.target sm_90\n.address_size 64
.entry k(.param .u64 in, .param .u64 out)
{
.reg .b64 %rd<4>; .reg .b32 %r<4>; .reg .b${width} %x;
ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out];
mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %r1, %r1, 256, %r2;
mul.wide.u32 %rd3, %r1, ${bytes};
add.u64 %rd1, %rd1, %rd3; add.u64 %rd2, %rd2, %rd3;
ld.global.b${width} %x, [%rd1];
${instruction} %x, %x;
st.global.b${width} [%rd2], %x;
ret;
}
`,
    },
    buffers: [inputs, inputs.length],
    launches: [{ kernel: 'k', grid: [inputs.length / bytes / 256], block: [256], args: ['b1', 'b2'] }],
  });
  assert.deepEqual(outcome.refused, []);
  assert.match(outcome.launches[0] ?? '', /^ok/);
  return outcome.buffers[1] ?? Buffer.alloc(0);
}

const FLUSHED = 2 ** -14;

describe('functions of 16-bit floats', () => {
  for (const [name, exact] of [
    ['ex2', (x: number) => 2 ** x],
    ['tanh', Math.tanh],
  ] as const) {
    for (const [types, format] of [
      [['f16', 'f16x2'], fp.F16],
      [['bf16', 'bf16x2'], fp.BF16],
    ] as const) {
      for (const type of types) {
        // of bfloats there is only the form that flushes subnormal results
        const flushes = name === 'ex2' && format === fp.BF16;
        const instruction = `${name}.approx.${flushes ? 'ftz.' : ''}${type}`;
        it(`${instruction} is the nearest there is`, () => {
          const out = results(instruction, type.endsWith('x2') ? 32 : 16);
          const wrong: string[] = [];
          for (let bits = 0; bits < 65_536; bits++) {
            const value = exact(number(format, bits));
            const expected = flushes && value < 2 ** -126 ? 0 : rounded(format, value);
            const found = out.readUInt16LE(bits * 2);
            if (found !== expected)
              wrong.push(`${bits.toString(16)}: ${found.toString(16)}, not ${expected.toString(16)}`);
          }
          assert.deepEqual(wrong.slice(0, 5), [], `${wrong.length} differ`);
        });
      }
    }
  }

  it('ex2.approx.ftz.f16 flushes what it takes and what it gives', () => {
    const out = results('ex2.approx.ftz.f16', 16);
    for (let bits = 0; bits < 65_536; bits++) {
      const x = number(fp.F16, bits);
      const exact = 2 ** (Math.abs(x) < FLUSHED ? 0 : x);
      const expected = rounded(fp.F16, exact);
      const flushed = (expected & 0x7c00) === 0 ? 0 : expected;
      assert.equal(out.readUInt16LE(bits * 2), flushed, bits.toString(16));
    }
  });
});
