/** suld, sust and sured against the same done here. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { bytes, i32, u32 } from '../machine.js';
import { fetch } from './fetch.js';

const RESULTS = '{%r8, %r9, %r10, %r11}';
const words = (count: number): Uint32Array =>
  Uint32Array.from({ length: count }, (_, i) => i * 0x01010101 + 3);

function run(
  shape: string,
  image: Buffer,
  instruction: string,
  places: readonly (readonly number[])[],
): ReturnType<typeof fetch> {
  return fetch({
    texture: `${shape} surface`,
    image,
    instruction,
    results: RESULTS,
    integers: true,
    places,
  });
}

describe('surfaces', () => {
  const data = words(8 * 4);
  const image = bytes(data);

  it('are read by bytes in one, two and three dimensions', () => {
    const one = run('32 1 1 u32 1', image, 'suld.b.1d.b32.trap %r8, [%rd2, {%r4}]', [[0], [44]]);
    assert.deepEqual([one.words[0], one.words[4]], [data[0], data[11]]);
    const two = run('8 4 1 u32 1', image, 'suld.b.2d.v2.b32.trap {%r8, %r9}, [%rd2, {%r4, %r5}]', [[8, 3]]);
    assert.deepEqual([...two.words.subarray(0, 2)], [data[26], data[27]]);
    const three = run('4 4 2 u32 1', image, 'suld.b.3d.b32.trap %r8, [%rd2, {%r4, %r5, %r6, %r6}]', [
      [4, 2, 1],
    ]);
    assert.equal(three.words[0], data[16 + 9]);
  });

  it('are layers, too', () => {
    const got = run('4 4 2 u32 1 layered', image, 'suld.b.a2d.b32.trap %r8, [%rd2, {%r6, %r4, %r5, %r5}]', [
      [4, 2, 1],
    ]);
    assert.equal(got.words[0], data[16 + 9]);
  });

  it('are written with every width', () => {
    const bytesOf = (instruction: string): Buffer => {
      const { image: out, said } = run('8 4 1 u32 4', Buffer.alloc(512), instruction, [[16, 1]]);
      assert.match(said, /^ok /);
      return out.subarray(128, 192);
    };
    const set = 'mov.b32 %r8, 0x04030201; mov.b32 %r9, 0x08070605; mov.b32 %r10, 3; mov.b32 %r11, 4;';
    const at = '[%rd2, {%r4, %r5}]';
    const expected = (values: Uint8Array): Buffer => {
      const row = Buffer.alloc(64);
      row.set(values, 16);
      return row;
    };
    assert.deepEqual(
      bytesOf(`${set} sust.b.2d.v4.b32.trap ${at}, {%r8, %r9, %r10, %r11}`),
      expected(Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8, 3, 0, 0, 0, 4, 0, 0, 0)),
    );
    assert.deepEqual(
      bytesOf(`${set} mov.b64 %rd4, {%r8, %r9}; sust.b.2d.b64.trap ${at}, {%rd4}`),
      expected(Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8)),
    );
    assert.deepEqual(
      bytesOf(`${set} cvt.u16.u32 %h1, %r8; sust.b.2d.b16.trap ${at}, {%h1}`),
      expected(Uint8Array.of(1, 2)),
    );
    assert.deepEqual(
      bytesOf(`${set} cvt.u16.u32 %h1, %r8; sust.b.2d.v2.b8.trap ${at}, {%h1, %h1}`),
      expected(Uint8Array.of(1, 1)),
    );
  });

  it('are written by elements, converted to their format', () => {
    const { image: out } = run(
      '8 1 1 s8 2',
      Buffer.alloc(64),
      'mov.b32 %r8, 500; mov.b32 %r9, -500; sust.p.1d.v2.b32.trap [%rd2, {%r4}], {%r8, %r9}',
      [[3]],
    );
    assert.deepEqual([...out.subarray(0, 10)], [0, 0, 0, 0, 0, 0, 127, 128, 0, 0]);
  });

  it('are reduced', () => {
    const start = Int32Array.of(5, -7, 0, 0);
    const reduce = (op: string): number[] => {
      const { image: out, said } = run(
        '4 1 1 s32 1',
        bytes(start),
        `mov.b32 %r8, -6; sured.b.1d.${op}.trap [%rd2, {%r4}], %r8`,
        [[0], [4], [4]],
      );
      assert.match(said, /^ok /);
      return [...i32(out)].slice(0, 2);
    };
    assert.deepEqual(reduce('add.s32'), [-1, -19]);
    assert.deepEqual(reduce('min.s32'), [-6, -7]);
    assert.deepEqual(reduce('max.s32'), [5, -6]);
    assert.deepEqual(reduce('and.b32'), [5 & -6, -7 & -6]);
  });

  it('are zero, clamped or a fault outside, as the instruction says', () => {
    const read = (
      how: string,
      place: readonly number[],
    ): { readonly said: string; readonly word: number | undefined } => {
      const got = run('8 4 1 u32 1', image, `mov.b32 %r8, 9; suld.b.2d.b32.${how} %r8, [%rd2, {%r4, %r5}]`, [
        place,
      ]);
      return { said: got.said, word: got.words[0] };
    };
    assert.equal(read('zero', [32, 0]).word, 0);
    assert.equal(read('zero', [0, -1]).word, 0);
    assert.equal(read('clamp', [-4, 9]).word, data[24]);
    assert.equal(read('clamp', [4096, 0]).word, data[7]);
    assert.match(
      read('trap', [32, 0]).said,
      /^error illegal address: .* at x = 32, y = 0, z = 0 is outside of the surface/,
    );
    assert.match(read('trap', [2, 0]).said, /^error misaligned address/);
  });

  it('are left alone by writes outside that are to be zero', () => {
    const { image: out, said } = run('8 4 1 u32 1', image, 'sust.b.2d.b32.zero [%rd2, {%r4, %r5}], %r4', [
      [32, 0],
      [-4, 1],
    ]);
    assert.match(said, /^ok /);
    assert.deepEqual(u32(out), data);
  });

  it('are wider than no access that is clamped into them', () => {
    const { said } = run(
      '1 1 1 u8 1',
      Buffer.alloc(16),
      'suld.b.1d.v4.b32.clamp {%r8, %r9, %r10, %r11}, [%rd2, {%r4}]',
      [[0]],
    );
    assert.match(said, /^error illegal address/);
  });

  it('are no textures', () => {
    const { said } = fetch({
      texture: '8 4 1 u32 1',
      image,
      instruction: 'suld.b.2d.b32.trap %r8, [%rd2, {%r4, %r5}]',
      results: RESULTS,
      integers: true,
      places: [[0, 0]],
    });
    assert.match(said, /0x70001 is no surface object/);
  });
});
