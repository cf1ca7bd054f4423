/** Bulk copies of tiles of tensor maps, against the same done here. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { bytes, f32, random, runPtx, u32, u64 } from './machine.js';
import { at, HEAD, one, REGISTERS, wait } from './one_warp.js';

interface Tensor {
  /** As tensormap.replace numbers types. */
  readonly type: number;
  readonly bytes: number;
  readonly dims: readonly number[];
  readonly box: readonly number[];
  readonly steps?: readonly number[];
  readonly swizzle?: 0 | 1 | 2 | 3;
  readonly fill?: 0 | 1;
  readonly at: readonly number[];
}

/** Bytes from row to row of each dimension, a multiple of 16. */
function strides(t: Tensor): number[] {
  const out: number[] = [];
  let size = Math.ceil((at(t.dims, 0) * t.bytes) / 16) * 16;
  for (let d = 1; d < t.dims.length; d++) {
    out.push(size);
    size *= at(t.dims, d);
  }
  return [...out, size];
}

/** Builds the map in shared memory at [%r0], copies it behind the buffer's data and has its address in %rd9. */
function map(t: Tensor): string {
  const field = (name: string, type: string, value: string): string =>
    `  tensormap.replace.tile.${name}.shared::cta.b1024.${type} [%r0], ${value};`;
  const rank = t.dims.length;
  const each = (values: readonly number[], name: string, type: string): string[] =>
    values.map((value, d) => {
      const register = type === 'b64' ? '%rd8' : '%r8';
      return `  mov.${type} ${register}, ${value};\n${field(name, type, `${d}, ${register}`)}`;
    });
  return [
    ...Array.from({ length: 32 }, (_, i) => `  st.shared.u32 [%r0+${i * 4}], 0;`),
    field('global_address', 'b64', '%rd0'),
    field('rank', 'b32', `${rank - 1}`),
    ...each(t.box, 'box_dim', 'b32'),
    ...each(t.dims, 'global_dim', 'b32'),
    ...each(strides(t).slice(0, -1), 'global_stride', 'b64'),
    ...each(t.steps ?? t.dims.map(() => 1), 'element_stride', 'b32'),
    field('elemtype', 'b32', `${t.type}`),
    field('interleave_layout', 'b32', '0'),
    field('swizzle_mode', 'b32', `${t.swizzle ?? 0}`),
    field('fill_mode', 'b32', `${t.fill ?? 0}`),
    `  add.u64 %rd9, %rd0, ${Math.ceil(at(strides(t), rank - 1) / 128) * 128};`,
    '  tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd9], [%r0], 128;',
    '  fence.proxy.tensormap::generic.acquire.gpu [%rd9], 128;',
    ...t.at.map((x, d) => `  mov.u32 %r${9 + d}, ${x};`),
  ].join('\n');
}
const coordinates = (t: Tensor): string => t.at.map((_, d) => `%r${9 + d}`).join(', ');

/** Every element of the tile: its coordinates, or undefined outside, and its place in shared memory. */
function eachOfTile(t: Tensor, visit: (offset: number | undefined, place: number) => void): number {
  const rank = t.dims.length;
  const counts = t.box.map((b, d) => (d === 0 ? b : Math.ceil(b / (t.steps?.[d] ?? 1))));
  const row = at(t.box, 0) * t.bytes;
  const span = t.swizzle ? 16 << t.swizzle : row;
  const rows = counts.slice(1).reduce((product, n) => product * n, 1);
  for (let i = 0; i < rows; i++) {
    let [rest, offset, within] = [i, 0, true];
    for (let d = 1; d < rank; d++) {
      const x = at(t.at, d) + (rest % at(counts, d)) * (t.steps?.[d] ?? 1);
      rest = Math.floor(rest / at(counts, d));
      within &&= x >= 0 && x < at(t.dims, d);
      offset += x * at(strides(t), d - 1);
    }
    for (let j = 0; j < at(t.box, 0); j++) {
      const x = at(t.at, 0) + j;
      let place = i * span + j * t.bytes;
      // 16-byte pieces change places: within 32, 64 or 128 bytes, by the number of the 128 bytes they are in
      const pieces = 1 << (t.swizzle ?? 0);
      place ^= (Math.floor(place / 128) % pieces) * 16;
      visit(within && x >= 0 && x < at(t.dims, 0) ? offset + x * t.bytes : undefined, place);
    }
  }
  return rows * row;
}

const TENSORS: Record<string, Tensor> = {
  'a line': { type: 7, bytes: 4, dims: [50], box: [16], at: [8] },
  'a line beyond its end': { type: 7, bytes: 4, dims: [50], box: [32], at: [40] },
  'bytes of a plane': { type: 0, bytes: 1, dims: [100, 30], box: [32, 8], at: [16, 5] },
  'halves with a swizzle of 32 bytes': {
    type: 6,
    bytes: 2,
    dims: [64, 40],
    box: [16, 32],
    at: [8, 4],
    swizzle: 1,
  },
  'floats with a swizzle of 64 bytes': {
    type: 7,
    bytes: 4,
    dims: [64, 40],
    box: [16, 20],
    at: [5, 3],
    swizzle: 2,
  },
  'halves with a swizzle of 128 bytes': {
    type: 10,
    bytes: 2,
    dims: [80, 40],
    box: [64, 16],
    at: [7, 9],
    swizzle: 3,
  },
  'rows narrower than the swizzle': {
    type: 6,
    bytes: 2,
    dims: [80, 40],
    box: [16, 16],
    at: [7, 9],
    swizzle: 3,
  },
  'a corner before the beginning': { type: 7, bytes: 4, dims: [32, 32], box: [8, 8], at: [-3, -2] },
  'a corner beyond the end, with NaN': {
    type: 7,
    bytes: 4,
    dims: [30, 30],
    box: [8, 8],
    at: [26, 25],
    fill: 1,
  },
  'halves beyond the end, with NaN': {
    type: 6,
    bytes: 2,
    dims: [30, 30],
    box: [8, 8],
    at: [26, 25],
    fill: 1,
  },
  'integers beyond the end': { type: 2, bytes: 4, dims: [30, 30], box: [8, 8], at: [26, 25] },
  'nothing at all': { type: 2, bytes: 4, dims: [8, 8], box: [4, 4], at: [100, 100] },
  'doubles of a space': { type: 9, bytes: 8, dims: [10, 9, 8], box: [4, 3, 2], at: [2, 1, 6] },
  'four dimensions': { type: 1, bytes: 2, dims: [16, 5, 4, 3], box: [8, 2, 3, 2], at: [3, 4, 2, 1] },
  'five dimensions': { type: 5, bytes: 8, dims: [6, 5, 4, 3, 2], box: [2, 2, 2, 2, 2], at: [1, 1, 1, 1, 1] },
  'every second row, every third plane': {
    type: 7,
    bytes: 4,
    dims: [16, 20, 12],
    box: [8, 7, 8],
    steps: [1, 2, 3],
    at: [4, 3, 2],
  },
};

function noise(size: number, seed: number): Buffer {
  const next = random(seed);
  return Buffer.from(Uint8Array.from({ length: size }, () => next() & 0x3f));
}

describe('tensor maps', () => {
  const DUMP = 16384;
  for (const [what, t] of Object.entries(TENSORS)) {
    const rank = t.dims.length;
    const size = at(strides(t), rank - 1);
    const room = Math.ceil(size / 128) * 128 + 128;

    it(`load ${what}`, () => {
      const data = Buffer.concat([noise(size, 1), Buffer.alloc(room - size)]);
      const expected = Buffer.alloc(DUMP, 0xee);
      const total = eachOfTile(t, (offset, place) => {
        if (offset !== undefined) data.copy(expected, place, offset, offset + t.bytes);
        else if (t.fill === 1)
          Buffer.from(t.bytes === 2 ? [0xff, 0x7f] : [0xff, 0xff, 0xff, 0x7f]).copy(expected, place);
        else expected.fill(0, place, place + t.bytes);
      });
      const out = one(
        `${map(t)}
  mbarrier.init.shared::cta.b64 [%r0], 1;
  add.u32 %r2, %r0, 1024;
  mov.u32 %r3, 0;
fill:
  add.u32 %r4, %r2, %r3;
  st.shared.u32 [%r4], 0xeeeeeeee;
  add.u32 %r3, %r3, 4;
  setp.lt.u32 %p2, %r3, ${DUMP};
  @%p2 bra fill;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r0], ${total};
  cp.async.bulk.tensor.${rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2], [%rd9, {${coordinates(t)}}], [%r0];
${wait(0, 'go')}
  cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r2], ${DUMP};`,
        [data, DUMP],
        1024 + DUMP,
      );
      assert.ok(at(out, 1).equals(expected));
    });

    it(`store ${what}, and no more`, () => {
      const tile = noise(DUMP, 2);
      const data = Buffer.concat([noise(size, 3), Buffer.alloc(room - size)]);
      const expected = Buffer.from(data.subarray(0, size));
      eachOfTile(t, (offset, place) => {
        if (offset !== undefined) tile.copy(expected, offset, place, place + t.bytes);
      });
      const out = one(
        `${map(t)}
  mbarrier.init.shared::cta.b64 [%r0], 1;
  add.u32 %r2, %r0, 1024;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r0], ${DUMP};
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd1], ${DUMP}, [%r0];
${wait(0, 'go')}
  cp.async.bulk.tensor.${rank}d.global.shared::cta.tile.bulk_group [%rd9, {${coordinates(t)}}], [%r2];
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group 0;`,
        [data, tile],
        1024 + DUMP,
      );
      assert.ok(at(out, 0).subarray(0, size).equals(expected));
    });
  }

  for (const swizzle of [1, 2, 3] as const) {
    it(`load a tile to the end of the shared memory, at no multiple of 1024, swizzle ${swizzle}`, () => {
      const [place, row] = [384, 16 << swizzle];
      const t: Tensor = { type: 6, bytes: 2, dims: [80, 40], box: [row / 2, 11], swizzle, at: [8, 9] };
      const size = at(strides(t), 1);
      const data = Buffer.concat([noise(size, 4), Buffer.alloc(256)]);
      const expected = Buffer.alloc(11 * row);
      for (let i = 0; i < 11; i++) {
        for (let j = 0; j < row; j += 16) {
          const to = place + i * row + j;
          const moved = to ^ ((Math.floor(to / 128) % 2 ** swizzle) << 4);
          data.copy(expected, moved - place, (9 + i) * 160 + 16 + j, (9 + i) * 160 + 32 + j);
        }
      }
      const out = one(
        `${map(t)}
  mbarrier.init.shared::cta.b64 [%r0], 1;
  add.u32 %r2, %r0, ${place};
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r0], ${expected.length};
  cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2], [%rd9, {${coordinates(t)}}], [%r0];
${wait(0, 'go')}
  cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r2], ${expected.length};`,
        [data, expected.length],
        place + expected.length,
      );
      assert.ok(at(out, 1).equals(expected));
    });
  }

  describe('of compute capability 10', () => {
    // 40 columns of 12 rows; the copies are of 16 columns, which begin at the column -3, 12 or 30
    const ROWS = [7, 2, -1, 11];
    for (const [swizzle, column, fill] of [
      [0, 12, 0],
      [0, 30, 1],
      [0, -3, 0],
      [2, 12, 0],
      [3, 30, 1],
    ] as const) {
      const t: Tensor = { type: 7, bytes: 4, dims: [40, 12], box: [16, 1], swizzle, fill, at: [column] };
      const size = at(strides(t), 1);
      const room = Math.ceil(size / 128) * 128 + 128;
      const names = `{%r9, ${ROWS.map((_, i) => `%r${10 + i}`).join(', ')}}`;
      const rows = ROWS.map((row, i) => `  mov.u32 %r${10 + i}, ${row};`).join('\n');
      const eachElement = (visit: (offset: number | undefined, place: number) => void): void => {
        ROWS.forEach((row, i) => {
          for (let j = 0; j < 16; j++) {
            const x = column + j;
            const inside = x >= 0 && x < 40 && row >= 0 && row < 12;
            const place = i * (swizzle === 3 ? 128 : 64) + j * 4;
            // pieces of 16 bytes: bits 4 and 5 (6, too, with 128 bytes) change with those three above them
            const piece = (place >> 7) & ((1 << swizzle) - 1);
            visit(inside ? row * 160 + x * 4 : undefined, place ^ (piece * 16));
          }
        });
      };

      it(`gather four rows from column ${column}, swizzle ${swizzle}, fill ${fill}`, () => {
        const data = Buffer.concat([noise(size, 4), Buffer.alloc(room - size)]);
        const expected = Buffer.alloc(512);
        eachElement((offset, place) => {
          if (offset !== undefined) data.copy(expected, place, offset, offset + 4);
          else if (fill === 1) Buffer.from([0xff, 0xff, 0xff, 0x7f]).copy(expected, place);
        });
        const out = one(
          `${map(t)}
${rows}
  mbarrier.init.shared::cta.b64 [%r0], 1;
  add.u32 %r2, %r0, 1024;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r0], 256;
  cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes [%r2], [%rd9, ${names}], [%r0];
${wait(0, 'go')}
  cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r2], 512;`,
          [data, 512],
          2048,
          100,
        );
        assert.ok(at(out, 1).equals(expected));
      });

      it(`scatter four rows to column ${column}, swizzle ${swizzle}, fill ${fill}`, () => {
        const tile = noise(512, 5);
        const data = Buffer.concat([noise(size, 6), Buffer.alloc(room - size)]);
        const expected = Buffer.from(data.subarray(0, size));
        eachElement((offset, place) => {
          if (offset !== undefined) tile.copy(expected, offset, place, place + 4);
        });
        const out = one(
          `${map(t)}
${rows}
  mbarrier.init.shared::cta.b64 [%r0], 1;
  add.u32 %r2, %r0, 1024;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r0], 512;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd1], 512, [%r0];
${wait(0, 'go')}
  cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group [%rd9, ${names}], [%r2];
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group 0;`,
          [data, tile],
          2048,
          100,
        );
        assert.ok(at(out, 0).subarray(0, size).equals(expected));
      });
    }

    it('need a box of one row to gather', () => {
      const t: Tensor = { type: 7, bytes: 4, dims: [40, 12], box: [16, 2], at: [0] };
      const body = `${map(t)}
  add.u32 %r2, %r0, 1024;
  cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes [%r2], [%rd9, {0, 0, 0, 0, 0}], [%r0];`;
      assert.throws(() => one(body, [4096, 16], 2048, 100), /trap: .*box has not one row/);
    });

    for (const [what, instruction] of [
      [
        'gather to global memory',
        'cp.async.bulk.tensor.2d.global.shared::cta.tile::gather4.bulk_group [%rd0, {0, 0, 0, 0, 0}], [%r0]',
      ],
      [
        'scatter and reduce',
        'cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile::scatter4.bulk_group [%rd0, {0, 0, 0, 0, 0}], [%r0]',
      ],
      [
        'gather by one row',
        'cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes [%r0], [%rd0, {0, 0}], [%r0]',
      ],
      [
        'load as im2col without offsets',
        'cp.async.bulk.tensor.3d.shared::cta.global.im2col_no_offs.mbarrier::complete_tx::bytes [%r0], [%rd0, {0, 0, 0}], [%r0]',
      ],
      [
        'load two dimensions as im2col',
        'cp.async.bulk.tensor.2d.shared::cta.global.im2col.mbarrier::complete_tx::bytes [%r0], [%rd0, {0, 0}], [%r0], {0}',
      ],
      [
        'load with an offset too few',
        'cp.async.bulk.tensor.4d.shared::cta.global.im2col.mbarrier::complete_tx::bytes [%r0], [%rd0, {0, 0, 0, 0}], [%r0], {0}',
      ],
    ] as const) {
      it(`do not ${what}`, () => {
        const name = at(instruction.split(' '), 0);
        assert.throws(
          () => one(`  ${instruction};`, [16, 16], 2048, 100),
          (error: Error) => error.message.includes(`${name} is not supported`),
        );
      });
    }
  });

  it('reduce by their type', () => {
    const t: Tensor = { type: 7, bytes: 4, dims: [6, 3], box: [4, 4], at: [4, 1] };
    const room = 256;
    const data = Buffer.concat([
      bytes(Float32Array.from({ length: 24 }, (_, i) => i)),
      Buffer.alloc(room - 96),
    ]);
    const out = one(
      `${map(t)}
  add.u32 %r2, %r0, 1024;
  mov.b32 %r3, 0x3f000000;
${Array.from({ length: 16 }, (_, i) => `  st.shared.b32 [%r2+${i * 4}], %r3;`).join('\n')}
  cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%rd9, {%r9, %r10}], [%r2];`,
      [data, 16],
    );
    const expected = Float32Array.from({ length: 24 }, (_, i) =>
      i % 8 >= 4 && i % 8 < 6 && i >= 8 ? i + 0.5 : i,
    );
    assert.deepEqual([...f32(at(out, 0)).subarray(0, 24)], [...expected]);
  });

  for (const [what, change, said] of [
    ['another number of dimensions', { at: [0, 0, 0] }, /trap: .*number of dimensions/],
    ['a box of nothing', { box: [4, 0] }, /trap: .*box or element strides/],
    ['a type that there is not', { type: 99 }, /trap: .*type, swizzle or fill/],
    [
      'rows longer than the swizzle',
      { box: [32, 2], swizzle: 1 as const },
      /trap: .*longer than its swizzle/,
    ],
    ['rows that are no multiple of 16 bytes', { box: [3, 2] }, /trap: .*multiple of 16/],
  ] as const) {
    it(`fault with ${what}`, () => {
      const t: Tensor = { type: 7, bytes: 4, dims: [64, 8], box: [4, 4], at: [0, 0], ...change };
      const body = `${map(t)}
  add.u32 %r2, %r0, 1024;
  mbarrier.init.shared::cta.b64 [%r0], 1;
  cp.async.bulk.tensor.${t.at.length}d.shared::cta.global.mbarrier::complete_tx::bytes [%r2], [%rd9, {${coordinates(t)}}], [%r0];`;
      assert.throws(() => one(body, [4096, 16]), said);
    });
  }

  it('fault with an address or a stride whose elements would not be aligned', () => {
    const t: Tensor = { type: 7, bytes: 4, dims: [64, 8], box: [4, 4], at: [0, 0] };
    for (const field of [
      'global_address.global.b1024.b64 [%rd9]',
      'global_stride.global.b1024.b64 [%rd9], 0',
    ]) {
      const body = `${map(t)}
  add.u64 %rd8, %rd0, 2;
  tensormap.replace.tile.${field}, %rd8;
  add.u32 %r2, %r0, 1024;
  cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%rd9, {${coordinates(t)}}], [%r2];`;
      assert.throws(() => one(body, [4096, 16]), /trap: .*address or strides are not multiples of 16 bytes/);
    }
  });

  it('are read out of parameters, too', () => {
    // The map's bytes are this device's own: a kernel makes them, another one has them as its parameter.
    const t: Tensor = { type: 2, bytes: 4, dims: [8], box: [4], at: [2] };
    const data = Buffer.concat([bytes(Uint32Array.from({ length: 8 }, (_, i) => i + 1)), Buffer.alloc(224)]);
    const made = at(one(map(t), [data, 16]), 0).subarray(128, 256);
    const text = `${HEAD}
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 out)
{
  ${REGISTERS}
  ld.param.u64 %rd1, [out];
  mov.b64 %rd9, map;
  cvta.param.u64 %rd9, %rd9;
  mov.u32 %r0, memory;
  mov.u32 %r9, 2;
  mbarrier.init.shared::cta.b64 [%r0], 1;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r0], 16;
  cp.async.bulk.tensor.1d.shared::cta.global.mbarrier::complete_tx::bytes [%r0+128], [%rd9, {%r9}], [%r0];
${wait(0, 'go')}
  ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [%r0+128];
  st.global.v4.u32 [%rd1], {%r1, %r2, %r3, %r4};
  ret;
}
`;
    assert.equal(u64(made)[0], 0x200100000000n, 'the address of b1');
    const outcome = runPtx({
      ptx: { text },
      buffers: [data, 16],
      launches: [{ kernel: 'k', block: [1], shared: 1024, args: [`x:${made.toString('hex')}`, 'b2'] }],
    });
    assert.match(at(outcome.launches, 0), /^ok /);
    assert.deepEqual([...u32(at(outcome.buffers, 1))], [3, 4, 5, 6]);
  });
});
