/**
 * Weights as ggml stores them. Layouts are facts of ggml's format: f16, q8_0 and q4_0 in blocks of 32, q4_k
 * in blocks of 256.
 */

export type WeightType = 'f16' | 'q4_0' | 'q8_0' | 'q4_k';

/** An IEEE binary16, rounded to nearest even. */
export function halfBits(value: number): number {
  const view = new DataView(new ArrayBuffer(4));
  view.setFloat32(0, value);
  const bits = view.getUint32(0);
  const sign = (bits >>> 16) & 0x8000;
  const exponent = ((bits >>> 23) & 0xff) - 112;
  const mantissa = bits & 0x7fffff;
  if (exponent >= 31) return sign | 0x7c00;
  if (exponent <= 0) {
    if (exponent < -10) return sign;
    return sign | roundShift(mantissa | 0x800000, 14 - exponent);
  }
  return sign + ((exponent << 10) + roundShift(mantissa, 13));
}

function roundShift(value: number, shift: number): number {
  const kept = value >>> shift;
  const rest = value & ((1 << shift) - 1);
  const half = 1 << (shift - 1);
  return rest > half || (rest === half && (kept & 1) === 1) ? kept + 1 : kept;
}

/** The value of a half (no infinities or NaN here). */
export function halfValue(bits: number): number {
  const exponent = (bits >>> 10) & 0x1f;
  const fraction = (bits & 0x3ff) / 1024;
  const magnitude = exponent === 0 ? fraction * 2 ** -14 : (1 + fraction) * 2 ** (exponent - 15);
  return (bits & 0x8000) !== 0 ? -magnitude : magnitude;
}

function clamp(value: number, low: number, high: number): number {
  return Math.max(low, Math.min(high, Math.round(value)));
}

function largest(values: Float32Array): number {
  let found = 0;
  for (const value of values) if (Math.abs(value) > Math.abs(found)) found = value;
  return found;
}

function q8Block(values: Float32Array): Buffer {
  const out = Buffer.alloc(34);
  const bits = halfBits(Math.abs(largest(values)) / 127);
  const scale = halfValue(bits);
  out.writeUInt16LE(bits, 0);
  values.forEach((value, i) => {
    out.writeInt8(scale === 0 ? 0 : clamp(value / scale, -127, 127), 2 + i);
  });
  return out;
}

function q4Block(values: Float32Array): Buffer {
  const out = Buffer.alloc(18);
  const bits = halfBits(largest(values) / -8);
  const scale = halfValue(bits);
  const quantum = (value: number): number => (scale === 0 ? 8 : clamp(value / scale + 8, 0, 15));
  out.writeUInt16LE(bits, 0);
  for (let i = 0; i < 16; i++) out[2 + i] = quantum(values[i] ?? 0) | (quantum(values[i + 16] ?? 0) << 4);
  return out;
}

/** 256 weights: eight runs of 32, each with a scale and a minimum of six bits. */
function q4kBlock(values: Float32Array): Buffer {
  const runs = Array.from({ length: 8 }, (_, i) => values.subarray(i * 32, i * 32 + 32));
  const lows = runs.map((run) => Math.min(0, ...run));
  const scales = runs.map((run, i) => (Math.max(...run) - (lows[i] ?? 0)) / 15);
  const out = Buffer.alloc(144);
  const scaleBits = halfBits(Math.max(...scales) / 63);
  const lowBits = halfBits(-Math.min(...lows) / 63);
  out.writeUInt16LE(scaleBits, 0);
  out.writeUInt16LE(lowBits, 2);
  const unit = halfValue(scaleBits) || 1;
  const lowUnit = halfValue(lowBits) || 1;
  runs.forEach((run, i) => {
    const scale = clamp((scales[i] ?? 0) / unit, 0, 63);
    const low = clamp(-(lows[i] ?? 0) / lowUnit, 0, 63);
    const put = (at: number, bits: number): void => {
      out[4 + at] = (out[4 + at] ?? 0) | bits;
    };
    if (i < 4) {
      put(i, scale);
      put(i + 4, low);
    } else {
      put(i + 4, (scale & 0xf) | ((low & 0xf) << 4));
      put(i - 4, (scale >> 4) << 6);
      put(i, (low >> 4) << 6);
    }
    run.forEach((value, j) => {
      const quantum = scale === 0 ? 0 : clamp((value + low * lowUnit) / (scale * unit), 0, 15);
      const at = 16 + (i >> 1) * 32 + j;
      out[at] = (out[at] ?? 0) | (quantum << ((i & 1) * 4));
    });
  });
  return out;
}

function halfBlock(values: Float32Array): Buffer {
  const out = Buffer.alloc(values.length * 2);
  values.forEach((value, i) => {
    out.writeUInt16LE(halfBits(value), i * 2);
  });
  return out;
}

interface Format {
  /** Number of the type in a file's tensor table (ggml_type). */
  readonly tensor: number;
  /** `general.file_type`. */
  readonly file: number;
  readonly block: number;
  encode(values: Float32Array): Buffer;
}

export const FORMATS: Readonly<Record<WeightType, Format>> = {
  f16: { tensor: 1, file: 1, block: 32, encode: halfBlock },
  q4_0: { tensor: 2, file: 2, block: 32, encode: q4Block },
  q8_0: { tensor: 8, file: 7, block: 32, encode: q8Block },
  q4_k: { tensor: 12, file: 14, block: 256, encode: q4kBlock },
};

/** Encodes rows whose length is a multiple of the type's block; throws RangeError if it is not. */
export function encodeWeights(type: WeightType, values: Float32Array): Buffer {
  const { block, encode } = FORMATS[type];
  if (values.length % block !== 0)
    throw new RangeError(`${values.length} weights are not a multiple of ${block} (${type})`);
  const blocks: Buffer[] = [];
  for (let at = 0; at < values.length; at += block) blocks.push(encode(values.subarray(at, at + block)));
  return Buffer.concat(blocks);
}
