/**
 * Loads of some lanes of a warp, alone and in vectors. The places beside theirs may be outside of the memory, which is as
 * large as what is read: built with AddressSanitizer, a lane that is read for nothing there is an error.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { bytes, runPtx, u32 } from './machine.js';

const ELEMENTS = 40;
const UNTOUCHED = 0xdeadbeef;

interface Case {
  readonly name: string;
  readonly mask: number;
  /** The element that a lane of the mask reads. */
  readonly index: (lane: number) => number;
}

const CASES: readonly Case[] = [
  { name: 'steps from the first element on, lanes 5 to 12', mask: 0x1fe0, index: (lane) => lane - 5 },
  { name: 'steps to the last element, lanes 5 to 12', mask: 0x1fe0, index: (lane) => lane + ELEMENTS - 13 },
  { name: 'steps of the second half alone', mask: 0xfff00000, index: (lane) => lane - 20 },
  { name: 'steps of the second half to the end', mask: 0x00ff0000, index: (lane) => lane + ELEMENTS - 24 },
  { name: 'steps in the middle', mask: 0x0ff00ff0, index: (lane) => lane + 3 },
  {
    name: 'steps of two halves apart',
    mask: 0x7ffe7ffe,
    index: (lane) => (lane < 16 ? lane + 20 : lane - 15),
  },
  { name: 'the same element', mask: 0x55555555, index: () => ELEMENTS - 1 },
  { name: 'one element for each half', mask: 0x10fff001, index: (lane) => (lane < 16 ? 7 : 39) },
  { name: 'backwards', mask: 0x33333333, index: (lane) => 31 - lane },
  { name: 'steps but for one lane', mask: 0xffff7fff, index: (lane) => (lane === 9 ? 0 : lane) },
  { name: 'one lane', mask: 0x00100000, index: () => 0 },
  { name: 'all lanes but the last', mask: 0x7fffffff, index: (lane) => lane + 8 },
  { name: 'all lanes', mask: 0xffffffff, index: (lane) => lane + 8 },
];

/** A block for each case; `load` reads the element at %rd4 into %v. */
function found(size: number, load: string): readonly (readonly number[])[] {
  const text = `.version 8.4
.target sm_90
.address_size 64
.visible .entry k(.param .u64 data, .param .u64 places, .param .u64 out)
{
  .reg .b64 %rd<5>; .reg .b32 %r<5>, %v, %w<3>; .reg .b16 %h; .reg .b64 %d; .reg .pred %p;
  ld.param.u64 %rd1, [data];
  ld.param.u64 %rd2, [places];
  ld.param.u64 %rd3, [out];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %tid.x;
  mad.lo.u32 %r1, %r1, 32, %r2;
  mad.wide.u32 %rd2, %r1, 4, %rd2;
  mad.wide.u32 %rd3, %r1, 4, %rd3;
  ld.global.s32 %r3, [%rd2];
  setp.ge.s32 %p, %r3, 0;
  mad.wide.s32 %rd4, %r3, ${size}, %rd1;
  mov.u32 %v, ${UNTOUCHED};
${load}
  st.global.u32 [%rd3], %v;
  ret;
}
`;
  const places = new Int32Array(
    CASES.flatMap(({ mask, index }) =>
      Array.from({ length: 32 }, (_, lane) => ((mask >>> lane) & 1 ? index(lane) : -1)),
    ),
  );
  const data = Buffer.from(Array.from({ length: ELEMENTS * size }, (_, i) => (i * 37 + (i >> 3)) & 0xff));
  const outcome = runPtx({
    ptx: { text },
    buffers: [data, bytes(places), places.byteLength],
    launches: [{ kernel: 'k', grid: [CASES.length], block: [32], args: ['b1', 'b2', 'b3'] }],
  });
  assert.match(outcome.load, /^ok /);
  assert.match(outcome.launches[0] ?? '', /^ok /);
  const out = u32(outcome.buffers[2] ?? Buffer.alloc(0));
  return CASES.map((_, i) => [...out.slice(i * 32, i * 32 + 32)]);
}

function expected(size: number, take: (at: number, data: Buffer) => number): readonly (readonly number[])[] {
  const data = Buffer.from(Array.from({ length: ELEMENTS * size }, (_, i) => (i * 37 + (i >> 3)) & 0xff));
  return CASES.map(({ mask, index }) =>
    Array.from({ length: 32 }, (_, lane) =>
      (mask >>> lane) & 1 ? take(index(lane) * size, data) >>> 0 : UNTOUCHED,
    ),
  );
}

const LOADS: readonly {
  readonly name: string;
  readonly size: number;
  readonly load: string;
  readonly take: (at: number, data: Buffer) => number;
}[] = [
  {
    name: 'ld.u8',
    size: 1,
    load: '  @%p ld.global.u8 %v, [%rd4];',
    take: (at, data) => data.readUInt8(at),
  },
  {
    name: 'ld.s16',
    size: 2,
    load: '  @%p ld.global.s16 %v, [%rd4];',
    take: (at, data) => data.readInt16LE(at),
  },
  {
    name: 'ld.u32',
    size: 4,
    load: '  @%p ld.global.u32 %v, [%rd4];',
    take: (at, data) => data.readUInt32LE(at),
  },
  {
    name: 'ld.b64',
    size: 8,
    load: '  @%p ld.global.b64 %d, [%rd4];\n  @%p cvt.u32.u64 %v, %d;',
    take: (at, data) => data.readUInt32LE(at),
  },
  {
    name: 'ld.v2.b32',
    size: 8,
    load: '  @%p ld.global.v2.b32 {%w0, %v}, [%rd4];',
    take: (at, data) => data.readUInt32LE(at + 4),
  },
  {
    name: 'ld.v4.b32',
    size: 16,
    load: '  @%p ld.global.v4.b32 {%w0, %w1, %v, %w2}, [%rd4];',
    take: (at, data) => data.readUInt32LE(at + 8),
  },
];

describe('loads of some lanes', () => {
  for (const { name, size, load, take } of LOADS) {
    it(`${name} gives each its element and touches no other register`, () => {
      const is = found(size, load);
      const want = expected(size, take);
      for (const [i, one] of CASES.entries()) assert.deepEqual(is[i], want[i], one.name);
    });
  }
});
