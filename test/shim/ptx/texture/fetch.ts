/** One kernel that reads a texture at places that a buffer lists, and writes what comes. */
import assert from 'node:assert/strict';
import { bytes, type Outcome, runPtx, u32 } from '../machine.js';

export interface Fetch {
  /** Behind `texture BUFFER`: the image and its sampler, see ptx_run.c. */
  readonly texture: string;
  readonly image: Buffer;
  /** `tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd2, {%f4, %f5}]`; coordinates come in %f4 to %f7 and %r4 to %r7. */
  readonly instruction: string;
  readonly places: readonly (readonly number[])[];
  /** Results lie in these. */
  readonly results?: string;
  /** Coordinates are integers. */
  readonly integers?: boolean;
  readonly before?: readonly string[];
  readonly declarations?: string;
}

/** The 32-bit results, four for each place; or what the launch says when it fails. */
export function fetch(what: Fetch): {
  readonly words: Uint32Array;
  readonly said: string;
  readonly image: Buffer;
} {
  const results = what.results ?? '{%f0, %f1, %f2, %f3}';
  const type = results.includes('%f') ? 'f32' : 'b32';
  const text = `.version 8.4
.target sm_90
.address_size 64
${what.declarations ?? ''}
.visible .entry k(.param .u64 places, .param .u64 results, .param .u64 texture)
{
  .reg .b32 %r<16>; .reg .b64 %rd<8>; .reg .f32 %f<16>; .reg .b16 %h<8>; .reg .pred %p<4>;
  ld.param.u64 %rd0, [places];
  ld.param.u64 %rd1, [results];
  ld.param.u64 %rd2, [texture];
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mad.lo.u32 %r0, %r1, %r2, %r0;
  mul.wide.u32 %rd3, %r0, 16;
  add.u64 %rd0, %rd0, %rd3;
  add.u64 %rd1, %rd1, %rd3;
  ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%rd0];
  mov.b32 %f4, %r4; mov.b32 %f5, %r5; mov.b32 %f6, %r6; mov.b32 %f7, %r7;
  mov.b32 %f0, 0; mov.b32 %f1, 0; mov.b32 %f2, 0; mov.b32 %f3, 0;
  mov.b32 %r8, 0; mov.b32 %r9, 0; mov.b32 %r10, 0; mov.b32 %r11, 0;
  ${what.instruction};
  st.global.v4.${type} [%rd1], ${results};
  ret;
}
`;
  const flat = what.places.flatMap((place) => [0, 1, 2, 3].map((i) => place[i] ?? 0));
  const places = what.integers === true ? Int32Array.from(flat) : Float32Array.from(flat);
  const run = (grid: number, block: number): Outcome =>
    runPtx({
      ptx: { text },
      buffers: [bytes(places), flat.length * 4, what.image],
      before: [`texture 3 ${what.texture}`, ...(what.before ?? [])],
      launches: [{ kernel: 'k', grid: [grid], block: [block], args: ['b1', 'b2', 't1'] }],
    });
  const outcome = run(what.places.length, 1);
  assert.match(outcome.load, /^ok /);
  assert.deepEqual(outcome.refused, []);
  // The lanes of a warp sample together; each gets what it gets alone, bit for bit.
  const together = run(1, what.places.length);
  if (/^ok /.test(outcome.launches[0] ?? '')) {
    assert.match(together.launches[0] ?? '', /^ok /);
    assert.deepEqual(together.buffers, outcome.buffers);
  } else {
    assert.doesNotMatch(together.launches[0] ?? '', /^ok /);
  }
  const [, out = Buffer.alloc(0), image = Buffer.alloc(0)] = outcome.buffers;
  return { words: u32(out), said: outcome.launches[0] ?? '', image };
}

export const floats = (words: Uint32Array): Float32Array => new Float32Array(words.buffer);
