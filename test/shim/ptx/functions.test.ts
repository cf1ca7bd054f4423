/**
 * `lg2`, `ex2`, `sin`, `cos` and `tanh` of floats from everywhere among all that there are, against doubles. The limits
 * are those that docs/reference/software-gpu.md states, which are below those of the PTX ISA.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { runPtx } from './machine.js';

const COUNT = 1 << 17;
/** Odd, so that all last bits occur. */
const STEP = 2 ** 32 / COUNT - 1;

function results(instruction: string): { readonly inputs: Float32Array; readonly outputs: Float32Array } {
  const bits = Uint32Array.from({ length: COUNT }, (_, i) => i * STEP);
  const given = Buffer.from(bits.buffer);
  const outcome = runPtx({
    ptx: {
      text: `.version 8.4\n.target sm_90\n.address_size 64
.entry k(.param .u64 in, .param .u64 out)
{
.reg .b64 %rd<4>; .reg .b32 %r<3>; .reg .f32 %x;
ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out];
mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %r1, %r1, 256, %r2;
mul.wide.u32 %rd3, %r1, 4;
add.u64 %rd1, %rd1, %rd3; add.u64 %rd2, %rd2, %rd3;
ld.global.f32 %x, [%rd1];
${instruction} %x, %x;
st.global.f32 [%rd2], %x;
ret;
}
`,
    },
    buffers: [given, given.length],
    launches: [{ kernel: 'k', grid: [COUNT / 256], block: [256], args: ['b1', 'b2'] }],
  });
  assert.deepEqual(outcome.refused, []);
  assert.match(outcome.launches[0] ?? '', /^ok/);
  const out = Uint8Array.from(outcome.buffers[1] ?? []);
  return { inputs: new Float32Array(bits.buffer), outputs: new Float32Array(out.buffer) };
}

interface Limit {
  readonly relative?: number;
  readonly absolute?: number;
}

const between = (x: number, low: number, high: number): boolean => x > low && x < high;

const FUNCTIONS: readonly (readonly [string, (x: number) => number, (x: number) => Limit])[] = [
  [
    'lg2.approx.f32',
    Math.log2,
    (x) => (between(x, 0.5, 2) ? { absolute: 2 ** -23 } : { relative: 2 ** -23 }),
  ],
  ['ex2.approx.f32', (x) => 2 ** x, () => ({ relative: 2 ** -23 })],
  ['sin.approx.f32', Math.sin, () => ({ absolute: 2 ** -23.5 })],
  ['cos.approx.f32', Math.cos, () => ({ absolute: 2 ** -23.5 })],
  ['tanh.approx.f32', Math.tanh, () => ({ relative: 2 ** -21 })],
];

describe('functions of floats', () => {
  for (const [instruction, exact, limit] of FUNCTIONS) {
    it(`${instruction} is as near as the reference says`, () => {
      const { inputs, outputs } = results(instruction);
      const wrong: string[] = [];
      inputs.forEach((x, i) => {
        const found = outputs[i] ?? Number.NaN;
        const value = exact(x);
        const nearest = Math.fround(value);
        const { relative = 0, absolute = 0 } = limit(x);
        const allowed = Math.max(Math.abs(value) * relative, absolute, 2 ** -149);
        // NaN, infinity, and the sign of zero
        const same = Object.is(found, nearest);
        if (!same && !(Math.abs(found - value) <= allowed)) wrong.push(`${x}: ${found}, not ${value}`);
      });
      assert.deepEqual(wrong.slice(0, 5), [], `${wrong.length} are too far away`);
    });
  }
});
