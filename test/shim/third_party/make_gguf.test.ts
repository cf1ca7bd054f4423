import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { encodeWeights, halfBits, halfValue, type WeightType } from '../support/gguf_blocks.js';
import { makeGguf } from '../support/make-gguf.js';

/** Reads blocks back by ggml's formulas, written here once more from the format's side. */
const decoders: Readonly<Record<WeightType, (data: Buffer) => number[]>> = {
  f16: (data) => Array.from({ length: data.length / 2 }, (_, i) => halfValue(data.readUInt16LE(i * 2))),
  q8_0: (data) =>
    Array.from(
      { length: (data.length / 34) * 32 },
      (_, i) => halfValue(data.readUInt16LE((i >> 5) * 34)) * data.readInt8((i >> 5) * 34 + 2 + (i & 31)),
    ),
  q4_0: (data) =>
    Array.from({ length: (data.length / 18) * 32 }, (_, i) => {
      const at = (i >> 5) * 18;
      const byte = data.readUInt8(at + 2 + (i & 15));
      return halfValue(data.readUInt16LE(at)) * (((i & 16) === 0 ? byte & 15 : byte >> 4) - 8);
    }),
  q4_k: (data) =>
    Array.from({ length: (data.length / 144) * 256 }, (_, i) => {
      const at = (i >> 8) * 144;
      const run = (i >> 5) & 7;
      const byte = (n: number): number => data.readUInt8(at + n);
      const scale = run < 4 ? byte(4 + run) & 63 : (byte(8 + run) & 15) | ((byte(run) >> 6) << 4);
      const low = run < 4 ? byte(8 + run) & 63 : (byte(8 + run) >> 4) | ((byte(4 + run) >> 6) << 4);
      const pair = byte(16 + (run >> 1) * 32 + (i & 31));
      const quantum = (run & 1) === 0 ? pair & 15 : pair >> 4;
      return halfValue(data.readUInt16LE(at)) * scale * quantum - halfValue(data.readUInt16LE(at + 2)) * low;
    }),
};

describe('the tiny model', () => {
  it('is the same for the same options, and another for others', () => {
    const options = { type: 'q4_0', seed: 7 } as const;
    assert.deepEqual(makeGguf(options), makeGguf(options));
    assert.notDeepEqual(makeGguf(options), makeGguf({ ...options, seed: 8 }));
  });

  it('has no token with a byte from 0x80 up but the mark for a space', () => {
    const model = makeGguf({ type: 'q4_0', seed: 1 }).toString('latin1');
    assert.doesNotMatch(model, /<0x[89A-F][0-9A-F]>/);
    assert.match(model, /<0x7E>/);
  });

  it('rounds halves to the nearest even', () => {
    for (const [value, bits] of [
      [0, 0],
      [1, 0x3c00],
      [-2, 0xc000],
      [65504, 0x7bff],
      [1 + 1 / 2048, 0x3c00],
      [1 + 3 / 2048, 0x3c02],
      [2 ** -24, 1],
      [2 ** -14, 0x0400],
    ] as const) {
      assert.equal(halfBits(value), bits, String(value));
    }
  });

  for (const [type, error] of [
    ['f16', 0.001],
    ['q8_0', 0.01],
    ['q4_0', 0.165],
    ['q4_k', 0.1],
  ] as const) {
    it(`stores ${type} so that ggml's formulas give the weights back`, () => {
      const values = Float32Array.from(
        { length: 1024 },
        (_, i) => Math.sin(i * 1.7) + 0.3 * Math.cos(i / 11),
      );
      const back = decoders[type](encodeWeights(type, values));
      assert.equal(back.length, values.length);
      const worst = Math.max(...back.map((value, i) => Math.abs(value - (values[i] ?? 0))));
      assert.ok(worst < error, `off by ${worst}`);
    });
  }

  it('refuses rows that are no whole blocks', () => {
    assert.throws(
      () => encodeWeights('q4_k', new Float32Array(128)),
      /128 weights are not a multiple of 256/,
    );
  });
});
