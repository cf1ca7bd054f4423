/** tex, tld4 and txq against the formulas of the CUDA programming guide, computed here. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { bytes, random, runPtx } from '../machine.js';
import { type Fetch, fetch, floats } from './fetch.js';
import { cubeFace, type Image, type Mode, sample } from './reference.js';

const MODES: readonly Mode[] = ['wrap', 'clamp', 'mirror', 'border'];

function near(got: ArrayLike<number>, wanted: readonly number[], what: string, tolerance = 2e-6): void {
  wanted.forEach((value, i) => {
    const difference = Math.abs((got[i] ?? Number.NaN) - value);
    assert.ok(difference <= tolerance * Math.max(1, Math.abs(value)), `${what}: ${got[i]} is not ${value}`);
  });
}

/** Small whole numbers: whatever the order of additions, sums of them are exact. */
function values(count: number, seed: number): Float32Array {
  const next = random(seed);
  return Float32Array.from({ length: count }, () => (next() % 200) - 100);
}

/** Places in and around an image, those included where texels meet. */
function places(sizes: readonly number[], normalized: boolean, seed: number): number[][] {
  const next = random(seed);
  return Array.from({ length: 64 }, () =>
    sizes.map((size) => {
      const texel = (next() % (3 * size * 4)) / 4 - size;
      // A power of two, so that the coordinate times the size is the texel again.
      return normalized ? texel / size : texel + (next() % 256) / 1024;
    }),
  );
}

const GEOMETRIES = [
  { name: '1d', sizes: [16], at: '{%f4}', shape: '16 1 1' },
  { name: '2d', sizes: [8, 4], at: '{%f4, %f5}', shape: '8 4 1' },
  { name: '3d', sizes: [8, 4, 2], at: '{%f4, %f5, %f6, %f6}', shape: '8 4 2' },
] as const;

describe('a texture of floats', () => {
  for (const { name, sizes, at, shape } of GEOMETRIES) {
    for (const [number, mode] of MODES.entries()) {
      for (const normalized of [false, true]) {
        for (const linear of [false, true]) {
          it(`in ${name} ${linear ? 'is filtered' : 'is read'} as ${mode} says, by ${normalized ? 'normalized' : 'texel'} coordinates`, () => {
            const [w = 1, h = 1, d = 1] = sizes;
            const data = values(w * h * d * 4, number + 7);
            const image: Image = {
              size: [w, h, d],
              texel: (x, y, z) => [0, 1, 2, 3].map((c) => data[((z * h + y) * w + x) * 4 + c] ?? 0),
              modes: [mode, mode, mode],
              linear,
              normalized,
              border: 5,
            };
            const list = places(sizes, normalized, number + 1);
            const words = [linear ? 'linear-filter' : '', normalized ? 'coords' : ''].join(' ');
            const { words: got, said } = fetch({
              texture: `${shape} f32 4 modes=${number}${number}${number} border=5 ${words}`,
              image: bytes(data),
              instruction: `tex.${name}.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd2, ${at}]`,
              places: list,
            });
            assert.match(said, /^ok /);
            for (const [i, place] of list.entries()) {
              const wanted = sample(image, place.map(Math.fround));
              near(floats(got).subarray(i * 4, i * 4 + 4), wanted, `at ${place.join()}`);
            }
          });
        }
      }
    }
  }

  const data = values(8 * 4, 3);
  const plain = (x: number, y: number): number => data[y * 8 + x] ?? 0;

  it('has texels by whole coordinates, clamped at the edge', () => {
    const list = [
      [0, 0],
      [7, 3],
      [-1, 9],
      [3, 2],
    ];
    const { words } = fetch({
      texture: '8 4 1 f32 1 modes=111',
      image: bytes(data),
      instruction: 'tex.2d.v4.f32.s32 {%f0, %f1, %f2, %f3}, [%rd2, {%r4, %r5}]',
      places: list,
      integers: true,
    });
    const got = list.map((_, i) => floats(words)[i * 4]);
    assert.deepEqual(got, [plain(0, 0), plain(7, 3), plain(0, 3), plain(3, 2)]);
  });

  it('that is plain memory is zero outside', () => {
    const { words } = fetch({
      texture: '32 1 1 f32 1 linear modes=111',
      image: bytes(data),
      instruction: 'tex.1d.v4.f32.s32 {%f0, %f1, %f2, %f3}, [%rd2, %r4]',
      places: [[5], [31], [32], [-1], [2147483647]],
      integers: true,
    });
    const got = [0, 1, 2, 3, 4].map((i) => floats(words)[i * 4]);
    assert.deepEqual(got, [data[5], data[31], 0, 0, 0]);
  });

  it('takes an offset in texels', () => {
    const { words } = fetch({
      texture: '8 4 1 f32 1 modes=111',
      image: bytes(data),
      instruction:
        'mov.b32 %r8, 2; mov.b32 %r9, -1; tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd2, {%f4, %f5}], {%r8, %r9}',
      places: [[3.5, 2.5]],
    });
    assert.equal(floats(words)[0], plain(5, 1));
  });

  it('is there: the predicate of a sparse read is true', () => {
    const { words } = fetch({
      texture: '8 4 1 f32 1 modes=111',
      image: bytes(data),
      instruction:
        'tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}|%p1, [%rd2, {%f4, %f5}]; selp.f32 %f1, 1.0, 0.0, %p1',
      places: [[0.5, 0.5]],
    });
    assert.deepEqual([...floats(words).subarray(0, 2)], [plain(0, 0), 1]);
  });

  it('is gathered around a place, a component of four texels', () => {
    const { words } = fetch({
      texture: '8 4 1 f32 1 modes=111',
      image: bytes(data),
      instruction: 'tld4.r.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd2, {%f4, %f5}]',
      places: [[3.2, 1.7]],
    });
    assert.deepEqual([...floats(words)], [plain(2, 2), plain(3, 2), plain(3, 1), plain(2, 1)]);
  });

  it('is one of layers, which are clamped', () => {
    const layers = values(8 * 4 * 3, 11);
    const list = [
      [0, 1.5, 2.5],
      [2, 7.5, 3.5],
      [9, 0.5, 0.5],
    ];
    const { words } = fetch({
      texture: '8 4 3 f32 1 layered modes=111',
      image: bytes(layers),
      instruction:
        'cvt.rzi.s32.f32 %r8, %f4; tex.a2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd2, {%r8, %f5, %f6, %f6}]',
      places: list,
    });
    const got = list.map((_, i) => floats(words)[i * 4]);
    assert.deepEqual(got, [layers[2 * 8 + 1], layers[2 * 32 + 3 * 8 + 7], layers[2 * 32]]);
  });

  it('may be read with the sampler of another', () => {
    const { words } = fetch({
      texture: '8 4 1 f32 1 modes=333 border=77',
      image: bytes(data),
      before: ['texture 3 8 4 1 f32 1 modes=111'],
      instruction: 'add.u64 %rd4, %rd2, 1; tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd2, %rd4, {%f4, %f5}]',
      places: [[-1, 0.5]],
    });
    assert.equal(floats(words)[0], plain(0, 0));
  });

  it('is named by a reference of the module that is bound to it', () => {
    const { words } = fetch({
      texture: '8 4 1 f32 1 modes=111',
      image: bytes(data),
      declarations: '.global .texref picture;',
      before: ['bind picture t1'],
      instruction: 'tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [picture, {%f4, %f5}]',
      places: [[2.5, 1.5]],
    });
    assert.equal(floats(words)[0], plain(2, 1));
  });
});

describe('a cube', () => {
  const size = 8;
  const data = values(size * size * 6, 5);
  const image: Image = {
    size: [size, size, 1],
    texel: (x, y, z) => [data[(z * size + y) * size + x] ?? 0],
    modes: ['clamp', 'clamp'],
    linear: true,
    normalized: true,
  };
  const next = random(17);
  const directions = Array.from({ length: 96 }, () =>
    [0, 1, 2].map(() => Math.fround((next() % 2001) / 1000 - 1)),
  );

  it('is filtered within the face that a direction meets', () => {
    const { words } = fetch({
      texture: `${size} ${size} 6 f32 1 cube coords modes=111 linear-filter`,
      image: bytes(data),
      instruction: 'tex.cube.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd2, {%f4, %f5, %f6, %f6}]',
      places: directions,
    });
    for (const [i, [x = 0, y = 0, z = 0]] of directions.entries()) {
      const { face, s, t } = cubeFace(x, y, z);
      const [wanted = 0] = sample(image, [Math.fround(s), Math.fround(t)], face);
      // A place on the border between two weights may fall to either of them.
      near([floats(words)[i * 4] ?? 0], [wanted], `towards ${x}, ${y}, ${z}`, 0.9);
    }
  });

  it('continues in the next face where it is seamless', () => {
    const flat = Float32Array.from({ length: size * size * 6 }, (_, i) => Math.floor(i / (size * size)));
    const { words } = fetch({
      texture: `${size} ${size} 6 f32 1 cube coords seamless modes=111 linear-filter`,
      image: bytes(flat),
      instruction: 'tex.cube.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd2, {%f4, %f5, %f6, %f6}]',
      // Just on the +x side of the edge to +z, and on the -y side of that to +x.
      places: [
        [1, 0.05, 0.9999],
        [0.9999, -1, 0.05],
      ],
    });
    near([floats(words)[0] ?? 0, floats(words)[4] ?? 0], [2, 1.5], 'at an edge', 0.02);
  });
});

describe('a mipmapped texture', () => {
  const sizes = [8, 4, 2, 1];
  const levels = sizes.map((n, level) => Float32Array.from({ length: n * n }, () => 10 * level));
  const data = Buffer.concat(levels.map((level) => bytes(level)));
  const texture = (words: string): Pick<Fetch, 'texture' | 'image'> => ({
    texture: `8 8 1 f32 1 levels=4 coords modes=111 ${words}`,
    image: data,
  });
  const level = 'tex.level.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd2, {%f4, %f5}], %f6';
  const at = (list: readonly number[]): number[][] => list.map((n) => [0.5, 0.5, n]);
  const asked = [-1, 0, 0.25, 0.5, 1, 1.75, 2.5, 3, 9];
  const read = (words: string, instruction = level, list = at(asked)): number[] => {
    const { words: got } = fetch({ ...texture(words), instruction, places: list });
    return list.map((_, i) => floats(got)[i * 4] ?? Number.NaN);
  };

  it('is read at the nearest level', () => {
    assert.deepEqual(read(''), [0, 0, 0, 10, 10, 20, 30, 30, 30]);
  });

  it('is mixed of two levels', () => {
    assert.deepEqual(read('linear-mip linear-filter'), [0, 0, 2.5, 5, 10, 17.5, 25, 30, 30]);
  });

  it('has a bias, and limits', () => {
    assert.deepEqual(read('linear-mip linear-filter bias=1'), [0, 10, 12.5, 15, 20, 27.5, 30, 30, 30]);
    assert.deepEqual(read('linear-mip linear-filter min=0.5 max=2'), [5, 5, 5, 5, 10, 17.5, 20, 20, 20]);
  });

  it('takes its level from derivatives', () => {
    const grad = 'tex.grad.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd2, {%f4, %f5}], {%f6, %f8}, {%f8, %f7}';
    const list = [
      [0.5, 0.5, 1 / 8, 1 / 8],
      [0.5, 0.5, 2 / 8, 1 / 8],
      [0.5, 0.5, 1 / 8, 4 / 8],
      [0.5, 0.5, 0, 0],
    ];
    assert.deepEqual(
      read('linear-mip linear-filter', `mov.f32 %f8, 0f00000000; ${grad}`, list),
      [0, 10, 20, 0],
    );
  });
});

describe('gradients and the base level', () => {
  // A texel is 10 times the number of its level plus 10, in a line of 16, a cube of 16 and a cube map of 16.
  const pyramid = (texels: (n: number) => number): Buffer =>
    Buffer.concat(
      [16, 8, 4, 2, 1].map((n, level) =>
        bytes(Float32Array.from({ length: texels(n) }, () => 10 * level + 10)),
      ),
    );
  const read = (
    instruction: string,
    shape: string,
    texels: (n: number) => number,
    places: number[][],
  ): number[] => {
    const { words } = fetch({
      texture: `${shape} levels=5 coords modes=111 linear-mip linear-filter`,
      image: pyramid(texels),
      instruction: `mov.f32 %f8, 0f00000000; ${instruction}`,
      places,
    });
    return places.map((_, i) => floats(words)[i * 4] ?? Number.NaN);
  };
  const LINE = ['16 1 1 f32 1', (n: number): number => n] as const;
  const SPACE = ['16 16 16 f32 1', (n: number): number => n ** 3] as const;

  it('read level 0 where the instruction says base, or nothing', () => {
    for (const base of ['.base', '']) {
      const plane = `tex${base}.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd2, {%f4, %f5}]`;
      assert.deepEqual(
        read(plane, '16 16 1 f32 1', (n) => n * n, [[0.5, 0.5]]),
        [10],
      );
      assert.deepEqual(
        read(`tex${base}.1d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd2, {%f4}]`, ...LINE, [[0.3]]),
        [10],
      );
    }
  });

  it('take the level from the longer of two derivatives, in texels', () => {
    const line = 'tex.grad.1d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd2, {%f4}], {%f5}, {%f6}';
    const steps = [0, 1, 2, 3, 4];
    const places = steps.flatMap((k) => [
      [0.5, 2 ** k / 16, 0],
      [0.5, 1 / 16, -(2 ** k) / 16],
    ]);
    assert.deepEqual(
      read(line, ...LINE, places),
      steps.flatMap((k) => [10 * k + 10, 10 * k + 10]),
    );
    // a direction in space: 2 texels along each of two axes are 2 times the root of 2, 1.5 levels
    const space =
      'tex.grad.3d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd2, {%f4, %f4, %f4, %f4}], {%f5, %f8, %f6, %f8}, {%f8, %f7, %f8, %f8}';
    assert.deepEqual(
      read(space, ...SPACE, [
        [0.5, 2 / 16, 2 / 16, 0],
        [0.5, 1 / 16, 0, 8 / 16],
        [0.5, 0, 4 / 16, 1 / 16],
      ]),
      [25, 40, 30],
    );
  });
});

describe('every form that PTX has', () => {
  const at: Record<string, string> = {
    '1d': '{%f1}',
    '2d': '{%f1, %f2}',
    '3d': '{%f1, %f2, %f3, %f4}',
    a1d: '{%r9, %f1}',
    a2d: '{%r9, %f1, %f2, %f3}',
    cube: '{%f1, %f2, %f3, %f4}',
    acube: '{%r9, %f1, %f2, %f3}',
  };
  const slope: Record<string, string> = {
    '1d': '{%f1}',
    '2d': '{%f1, %f2}',
    a1d: '{%f1}',
    a2d: '{%f1, %f2}',
  };
  const offset: Record<string, string> = {
    '1d': '{%r1}',
    '2d': '{%r1, %r2}',
    '3d': '{%r1, %r2, %r3, %r4}',
    a1d: '{%r1}',
    a2d: '{%r1, %r2}',
  };
  const texture = Object.entries(at).flatMap(([shape, place]) => {
    const derivative = slope[shape] ?? '{%f1, %f2, %f3, %f4}';
    const more: [string, string][] = [
      ['base', ''],
      ['level', ', %f9'],
      ['grad', `, ${derivative}, ${derivative}`],
    ];
    return more.flatMap(([mode, operands]) =>
      ['f32', 's32', 'u32'].flatMap((type) => {
        const to = type === 'f32' ? '{%f5, %f6, %f7, %f8}' : '{%r5, %r6, %r7, %r8}';
        const whole = `tex.${mode}.${shape}.v4.${type}.f32 ${to}, [%rd1, ${place}]${operands}`;
        const moved = offset[shape];
        return moved === undefined ? [whole] : [whole, `${whole}, ${moved}`];
      }),
    );
  });
  const asked = (mnemonic: string, names: string): string[] =>
    names.split(' ').map((name) => `${mnemonic}.${name}.b32 %r1, [%rd1]`);
  const questions = [
    ...asked('txq', 'width height depth channel_data_type channel_order normalized_coords array_size'),
    ...asked('txq', 'num_mipmap_levels num_samples filter_mode addr_mode_0 addr_mode_1 addr_mode_2'),
    ...asked('suq', 'width height depth channel_data_type channel_order array_size memory_layout'),
    ...['width', 'height', 'depth'].map((name) => `txq.level.${name}.b32 %r1, [%rd1], %r2`),
    'istypep.texref %p1, %rd1',
    'istypep.surfref %p1, %rd1',
  ];

  it('is decoded', () => {
    const lines = [...texture, ...questions];
    assert.equal(lines.length, 7 * 9 + 5 * 9 + 25);
    const text = `.version 8.6
.target sm_90
.address_size 64
.entry k(.param .u64 p)
{
.reg .b32 %r<10>; .reg .b64 %rd<3>; .reg .pred %p<2>; .reg .f32 %f<10>;
ld.param.u64 %rd1, [p];
${lines.join(';\n')};
}
`;
    const { load, refused } = runPtx({ ptx: { text } });
    assert.match(load, /^ok /);
    assert.deepEqual(refused, []);
  });
});

describe('formats', () => {
  const one = (texel: string, channels: number, image: Buffer, words = ''): Uint32Array =>
    fetch({
      texture: `1 1 1 ${texel} ${channels} modes=111 ${words}`,
      image: Buffer.concat([image, Buffer.alloc(16)]),
      instruction: 'tex.2d.v4.u32.f32 {%r8, %r9, %r10, %r11}, [%rd2, {%f4, %f5}]',
      results: '{%r8, %r9, %r10, %r11}',
      places: [[0.5, 0.5]],
    }).words;

  it('of integers are returned unchanged, with 0, 0 and 1 for missing channels', () => {
    assert.deepEqual([...one('u8', 2, Buffer.from([250, 7]))], [250, 7, 0, 1]);
    assert.deepEqual([...Int32Array.from(one('s8', 4, Buffer.from([255, 128, 0, 127])))], [-1, -128, 0, 127]);
    assert.deepEqual([...Int32Array.from(one('s16', 1, bytes(Int16Array.of(-300))))], [-300, 0, 0, 1]);
    assert.deepEqual([...one('u32', 1, bytes(Uint32Array.of(0xdeadbeef)))], [0xdeadbeef, 0, 0, 1]);
  });

  it('of 8 and 16 bits are read as floats from 0 or -1 to 1', () => {
    const read = (texel: string, image: Buffer, words = 'normalized'): number[] => [
      ...floats(one(texel, 4, image, words)),
    ];
    near(read('u8', Buffer.from([0, 51, 128, 255])), [0, 0.2, 128 / 255, 1], 'u8');
    near(read('s8', Buffer.from([0x80, 0x81, 0, 127])), [-1, -1, 0, 1], 's8');
    near(read('u16', bytes(Uint16Array.of(0, 1, 65534, 65535))), [0, 1 / 65535, 65534 / 65535, 1], 'u16');
    near(read('s16', bytes(Int16Array.of(-32768, -32767, 1, 32767))), [-1, -1, 1 / 32767, 1], 's16');
    // IEC 61966-2-1: the last channel is not a colour.
    const srgb = [0, 10, 128, 128].map((v, i) => {
      const s = v / 255;
      if (i === 3) return s;
      return s <= 0.04045 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4;
    });
    near(read('u8', Buffer.from([0, 10, 128, 128]), 'normalized srgb'), srgb, 'srgb');
  });

  it('of halves are read as floats, and floats are written as halves', () => {
    const halves = bytes(Uint16Array.of(0x3c00, 0xc000, 0x3555, 0x7c00));
    near([...floats(one('f16', 4, halves))].slice(0, 3), [1, -2, 0.333251953125], 'f16');
    const { words } = fetch({
      texture: '1 1 1 f32 4 modes=111',
      image: bytes(Float32Array.of(1, -2, 0.333251953125, 65504)),
      instruction: 'tex.2d.v2.f16x2.f32 {%r8, %r9}, [%rd2, {%f4, %f5}]',
      results: '{%r8, %r9, %r10, %r11}',
      places: [[0.5, 0.5]],
    });
    assert.deepEqual([...words], [0xc0003c00, 0x7bff3555, 0, 0]);
  });
});

describe('questions', () => {
  const ask = (question: string, texture: string): number | undefined =>
    fetch({
      texture,
      image: Buffer.alloc(4096),
      instruction: `${question} %r8, [%rd2]`,
      results: '{%r8, %r9, %r10, %r11}',
      places: [[0]],
    }).words[0];

  it('about textures are answered', () => {
    const layered = '8 4 3 f32 1 layered coords';
    assert.equal(ask('txq.width.b32', layered), 8);
    assert.equal(ask('txq.height.b32', layered), 4);
    assert.equal(ask('txq.array_size.b32', layered), 3);
    assert.equal(ask('txq.depth.b32', '8 4 2 f32 1'), 2);
    assert.equal(ask('txq.num_mipmap_levels.b32', '8 8 1 f32 1 levels=4'), 4);
    assert.equal(ask('txq.normalized_coords.b32', layered), 1);
    assert.equal(ask('txq.channel_data_type.b32', layered), 0x10de);
    assert.equal(ask('txq.channel_order.b32', '8 4 1 u8 4'), 0x10b5);
  });

  it('about surfaces, too', () => {
    assert.equal(ask('suq.width.b32', '8 4 1 f32 1 surface'), 8);
    assert.equal(ask('suq.height.b32', '8 4 1 f32 1 surface'), 4);
  });
});

describe('operands that are not textures', () => {
  const read = (change: string): string =>
    fetch({
      texture: '8 4 1 f32 1 modes=111',
      image: Buffer.alloc(128),
      before: ['texture 3 8 4 1 f32 1 surface'],
      instruction: `${change}; tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd2, {%f4, %f5}]`,
      places: [[0, 0]],
    }).said;

  it('is an illegal address, told by its number', () => {
    assert.match(read('mov.b64 %rd2, 4660'), /^error illegal address: .* 0x1234 is no texture object$/);
    assert.match(read('mov.b64 %rd2, 0'), /0x0 is no texture object$/);
    assert.match(read('add.u64 %rd2, %rd2, 1'), /0x70002 is no texture object$/);
  });
});
