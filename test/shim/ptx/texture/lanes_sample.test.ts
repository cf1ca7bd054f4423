/** Lanes that sample together: fetch() runs each kernel with a lane to a warp, too, and compares every bit. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { random } from '../machine.js';
import { fetch } from './fetch.js';

describe('lanes that sample together get what each gets alone', () => {
  const next = random(23);
  const strange = [
    0, -0, 1e-30, -1e-30, 0.498046875, 0.49804684519767761, 0.5, 1, -1, 1e9, -1e9, 3e38, -3e38,
  ];
  const odd = [...strange, Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  const coordinate = (): number =>
    next() % 4 === 0
      ? (odd[next() % odd.length] ?? 0)
      : ((next() % 4096) - 1024) / (next() % 2 === 0 ? 64 : 2048);
  const scattered = Array.from({ length: 96 }, () => [coordinate(), coordinate(), coordinate(), next() % 5]);
  const image = Buffer.from(Uint8Array.from({ length: 16384 }, () => next() & 0x7e));
  const where = (shape: string): string =>
    ({ '1d': '{%f4}', '2d': '{%f4, %f5}', '3d': '{%f4, %f5, %f6, %f6}', a2d: '{%r9, %f4, %f5, %f5}' })[
      shape
    ] ?? '';
  const FORMATS = ['f32 1', 'f32 2', 'f32 4', 'u8 1 normalized', 'u8 2 normalized', 'u8 4 normalized'];
  const MORE = ['u8 4 normalized srgb', 'f16 2', 's16 1 normalized', 'u32 1', 's32 1', 'u8 4', 'u8 1'];

  const PLANE = ['2d', '8 5 1'] as const;
  const SHAPES = [PLANE, ['1d', '13 1 1'], ['3d', '8 4 3'], ['a2d', '8 4 3']] as const;

  for (const format of [...FORMATS, ...MORE]) {
    it(`of ${format}`, () => {
      for (const [shape, size] of FORMATS.includes(format) ? SHAPES : [PLANE]) {
        for (const [number, words] of ['', 'linear-filter', 'coords', 'coords linear-filter'].entries()) {
          const integers = /^[us](?:32|8 .)/.test(format) && !format.includes('normalized');
          const type = integers ? 'u32' : 'f32';
          const results = integers ? '{%r8, %r9, %r10, %r11}' : '{%f0, %f1, %f2, %f3}';
          const mode = [1, 3, 0, number % 2 === 0 ? 3 : 0][number];
          const { words: got, said } = fetch({
            texture: `${size} ${format} ${words} modes=${mode}${(number + 1) % 2}1 border=3 ${shape === 'a2d' ? 'layered' : ''}`,
            image,
            instruction: `cvt.rzi.s32.f32 %r9, %f7; tex.${shape}.v4.${type}.f32 ${results}, [%rd2, ${where(shape)}]`,
            results,
            places: scattered,
          });
          assert.match(said, /^ok /);
          assert.ok(new Set(got).size > 3, 'texels of several kinds');
        }
      }
    });
  }

  it('with coordinates that are mirrored', () => {
    for (const [shape, size] of SHAPES) {
      for (const format of ['f32 1', 'u8 4 normalized', 'f16 2']) {
        for (const words of ['coords', 'coords linear-filter', 'linear-filter']) {
          for (const modes of ['222', '021', '230']) {
            const { words: got, said } = fetch({
              texture: `${size} ${format} ${words} modes=${modes} border=3 ${shape === 'a2d' ? 'layered' : ''}`,
              image,
              instruction: `cvt.rzi.s32.f32 %r9, %f7; tex.${shape}.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd2, ${where(shape)}]`,
              places: scattered,
            });
            assert.match(said, /^ok /);
            assert.ok(new Set(got).size > 3, 'texels of several kinds');
          }
        }
      }
    }
  });

  it('on levels of their own, one or two mixed', () => {
    const levels = (list: readonly number[]): number[][] =>
      scattered.map(([x = 0, y = 0, z = 0], i) => [x, y, z, list[i % list.length] ?? 0]);
    // few levels in a warp, each with many lanes; more; too many for lanes together; and odd ones
    const lists = [[1], [0, 0.5], [0.25, 0.25, 2, 2.75], [0, 1, 2, 3], [Number.NaN, 1e9, -1e9, -0.2]];
    for (const list of lists) {
      for (const words of [
        '',
        'linear-filter',
        'linear-mip',
        'linear-filter linear-mip bias=0.3 min=0.5 max=2.5',
      ]) {
        for (const [shape, size] of [PLANE, ['3d', '8 8 4']] as const) {
          const { words: got, said } = fetch({
            texture: `${size} u8 4 normalized coords ${words} levels=4 modes=021`,
            image,
            instruction: `tex.level.${shape}.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd2, ${where(shape)}], %f7`,
            places: levels(list),
          });
          assert.match(said, /^ok /);
          assert.ok(new Set(got).size > 3, 'texels of several kinds');
        }
      }
    }
  });

  it('on the levels that gradients lead to', () => {
    const { words: got, said } = fetch({
      texture: '16 16 1 f32 1 coords linear-filter linear-mip levels=5 modes=111',
      image,
      instruction:
        'mul.f32 %f8, %f7, 0f3D000000; tex.grad.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd2, {%f4, %f5}], {%f8, %f8}, {%f8, 0f00000000}',
      places: scattered.map(([x = 0, y = 0], i) => [x, y, 0, i % 32 < 16 ? 3 : 5]),
    });
    assert.match(said, /^ok /);
    assert.ok(new Set(got).size > 3, 'texels of several kinds');
  });

  it('by whole coordinates, with offsets of their own', () => {
    for (const shape of ['32 1 1 f32 1 linear', '16 1 1 u8 4', '16 1 1 f32 4 modes=311 border=2']) {
      const type = shape.includes('u8') ? 'u32' : 'f32';
      const results = type === 'u32' ? '{%r8, %r9, %r10, %r11}' : '{%f0, %f1, %f2, %f3}';
      const { said } = fetch({
        texture: shape,
        image,
        instruction: `tex.1d.v4.${type}.s32 ${results}, [%rd2, {%r4}], {%r5}`,
        results,
        places: Array.from({ length: 64 }, (_, i) =>
          i % 8 === 0
            ? [2147483647, 7]
            : i % 8 === 1
              ? [-2147483648, -8]
              : [(next() % 40) - 4, (next() % 16) - 8],
        ),
        integers: true,
      });
      assert.match(said, /^ok /);
    }
  });

  it('where some lanes have another texture', () => {
    const { said, words } = fetch({
      texture: '8 4 1 f32 1 modes=111',
      image,
      before: ['texture 3 16 4 1 f32 1 modes=111'],
      instruction:
        'and.b32 %r9, %r0, 1; cvt.u64.u32 %rd4, %r9; add.u64 %rd4, %rd2, %rd4; tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd4, {%f4, %f5}]',
      places: Array.from({ length: 32 }, (_, i) => [(i >> 1) % 8, 3]),
    });
    assert.match(said, /^ok /);
    assert.notEqual(words[0], words[4]);
  });
});
