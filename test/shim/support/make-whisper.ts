/**
 * A tiny Whisper model with random weights in whisper.cpp's own format. The bytes are the same each time, and the server
 * transcribes any sound to nonsense. No matrix product has more than 16 columns, because for larger ones ggml's CUDA
 * backend calls cuBLAS, whose kernels are machine code.
 */

const WIDTH = 16;
const HEADS = 1;
const LAYERS = 1;
const MELS = 80;
/** An answer has at most half as many tokens, less 4. */
const TEXT_CONTEXT = 32;
const SOUND_CONTEXT = 8;
/** The special tokens of an English model have fixed numbers. */
const VOCABULARY = 51_864;
const FFT_BINS = 201;
const F32 = 0;

function int32(...values: readonly number[]): Buffer {
  return Buffer.from(Int32Array.from(values).buffer);
}

/** A word of three letters for each number that is not special, and the space, which whisper.cpp looks up. */
function words(): readonly string[] {
  const letters = [...'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ'];
  const all = letters.flatMap((one) =>
    letters.flatMap((two) => letters.map((three) => ` ${one}${two}${three}`)),
  );
  return [' ', ...all.slice(0, 50_255)];
}

/** The name and dimensions of each tensor; the fastest dimension comes first. */
function tensors(): ReadonlyMap<string, readonly number[]> {
  const all = new Map<string, readonly number[]>();
  const linear = (name: string, from: number, to: number, biased = true): void => {
    all.set(`${name}.weight`, [from, to]);
    if (biased) all.set(`${name}.bias`, [to]);
  };
  const norm = (name: string): void => {
    for (const part of ['weight', 'bias']) all.set(`${name}.${part}`, [WIDTH]);
  };
  const attention = (name: string): void => {
    norm(`${name}_ln`);
    for (const part of ['query', 'key', 'value', 'out'])
      linear(`${name}.${part}`, WIDTH, WIDTH, part !== 'key');
  };
  const block = (name: string, attentions: readonly string[]): void => {
    for (const part of attentions) attention(`${name}.${part}`);
    norm(`${name}.mlp_ln`);
    linear(`${name}.mlp.0`, WIDTH, 4 * WIDTH);
    linear(`${name}.mlp.2`, 4 * WIDTH, WIDTH);
  };
  all.set('encoder.positional_embedding', [WIDTH, SOUND_CONTEXT]);
  for (const [name, from] of [['conv1', MELS] as const, ['conv2', WIDTH] as const]) {
    all.set(`encoder.${name}.weight`, [3, from, WIDTH]);
    all.set(`encoder.${name}.bias`, [1, WIDTH]);
  }
  norm('encoder.ln_post');
  all.set('decoder.positional_embedding', [WIDTH, TEXT_CONTEXT]);
  all.set('decoder.token_embedding.weight', [WIDTH, VOCABULARY]);
  norm('decoder.ln');
  for (let layer = 0; layer < LAYERS; layer++) {
    block(`encoder.blocks.${layer}`, ['attn']);
    block(`decoder.blocks.${layer}`, ['attn', 'cross_attn']);
  }
  return all;
}

export function makeWhisper(): Buffer {
  let state = 20_260_101;
  /** Between -1 and 1 (Numerical Recipes' generator). */
  const random = (): number => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 31 - 1;
  };
  const numbers = (count: number): Buffer => Buffer.from(Float32Array.from({ length: count }, random).buffer);

  const sound = [SOUND_CONTEXT, WIDTH, HEADS, LAYERS];
  const text = [TEXT_CONTEXT, WIDTH, HEADS, LAYERS];
  const parts = [int32(0x67676d6c, VOCABULARY, ...sound, ...text, MELS, F32)];
  parts.push(int32(MELS, FFT_BINS), numbers(MELS * FFT_BINS));
  const vocabulary = words();
  parts.push(int32(vocabulary.length));
  for (const word of vocabulary) parts.push(int32(word.length), Buffer.from(word));
  for (const [name, sizes] of tensors()) {
    parts.push(int32(sizes.length, name.length, F32, ...sizes), Buffer.from(name));
    parts.push(numbers(sizes.reduce((product, size) => product * size, 1)));
  }
  return Buffer.concat(parts);
}

/** A WAV file with one second of a 440 Hz tone: 16 bit, 16 kHz. */
export function makeTone(): Buffer {
  const samples = Int16Array.from({ length: 16_000 }, (_, i) =>
    Math.round(8_000 * Math.sin((2 * Math.PI * 440 * i) / 16_000)),
  );
  const header = Buffer.alloc(44);
  header.write('RIFF', 0);
  header.writeUInt32LE(36 + samples.byteLength, 4);
  header.write('WAVEfmt ', 8);
  header.writeUInt32LE(16, 16); // bytes of this chunk
  header.writeUInt16LE(1, 20); // PCM
  header.writeUInt16LE(1, 22); // mono
  header.writeUInt32LE(16_000, 24);
  header.writeUInt32LE(32_000, 28); // bytes a second
  header.writeUInt16LE(2, 32);
  header.writeUInt16LE(16, 34);
  header.write('data', 36);
  header.writeUInt32LE(samples.byteLength, 40);
  return Buffer.concat([header, Buffer.from(samples.buffer)]);
}
