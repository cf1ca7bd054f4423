/**
 * A tiny llama model (tiny_weights.ts says which), the same bytes for the same options: something real for
 * llama.cpp to load, small enough to make on the spot. What it writes is always ASCII: a vocabulary with the
 * bytes 0x80-0xFF can end a stream early with half a character.
 *
 * node dist/test/shim/support/make-gguf.js FILE [f16|q4_0|q8_0|q4_k] [WORD...]
 *
 * With WORDs, each another one: a model that has learnt that sentence by heart.
 */
import { writeFileSync } from 'node:fs';
import { argv, exit, stderr } from 'node:process';
import { fileURLToPath } from 'node:url';
import { encodeWeights, FORMATS, type WeightType } from './gguf_blocks.js';
import {
  FREQUENCY_BASE,
  HEADS,
  INNER,
  KEY_HEADS,
  LAYERS,
  tinyWeights,
  VOCABULARY,
  WIDTH,
} from './tiny_weights.js';

export interface ModelOptions {
  readonly type: WeightType;
  readonly seed: number;
  /** Words of a sentence to be known by heart, each another one. It follows the token that begins a text. */
  readonly sentence?: readonly string[];
  /** An embedding model: what it says of a text is the mean of its tokens' states. */
  readonly embeds?: boolean;
}

const CONTEXT = 512;
const ALIGNMENT = 32;
const F32 = 0;
const BEGIN = 1;
const END = 2;

/** Kinds of tokens in a file: 1 normal, 2 unknown, 3 control, 6 byte. */
function vocabulary(words: readonly string[]): {
  readonly tokens: string[];
  readonly kinds: number[];
  readonly scores: number[];
} {
  const tokens = ['<unk>', '<s>', '</s>'];
  const kinds = [2, 3, 3];
  const add = (token: string, kind: number): void => {
    if (tokens.length === VOCABULARY) return;
    tokens.push(token);
    kinds.push(kind);
  };
  for (const byte of [0x09, 0x0a, ...Array.from({ length: 0x5f }, (_, i) => 0x20 + i)])
    add(`<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`, 6);
  for (const word of words) add(`▁${word}`, 1);
  add('▁', 1);
  const letters = 'etaoinshrdlucmwfgypbvk';
  for (const letter of letters) add(letter, 1);
  for (const letter of letters) add(`▁${letter}`, 1);
  for (const first of letters) for (const second of letters) add(first + second, 1);
  return { tokens, kinds, scores: tokens.map((_, i) => -i) };
}

type Value =
  | { readonly u32: number }
  | { readonly f32: number }
  | { readonly text: string }
  | { readonly texts: readonly string[] }
  | { readonly f32s: readonly number[] }
  | { readonly i32s: readonly number[] };

function u32(value: number): Buffer {
  const out = Buffer.alloc(4);
  out.writeUInt32LE(value);
  return out;
}

function u64(value: number): Buffer {
  const out = Buffer.alloc(8);
  out.writeBigUInt64LE(BigInt(value));
  return out;
}

function f32(value: number): Buffer {
  const out = Buffer.alloc(4);
  out.writeFloatLE(value);
  return out;
}

function text(value: string): Buffer {
  const bytes = Buffer.from(value);
  return Buffer.concat([u64(bytes.length), bytes]);
}

function list(type: number, items: readonly Buffer[]): Buffer {
  return Buffer.concat([u32(9), u32(type), u64(items.length), ...items]);
}

function encodeValue(value: Value): Buffer {
  if ('u32' in value) return Buffer.concat([u32(4), u32(value.u32)]);
  if ('f32' in value) return Buffer.concat([u32(6), f32(value.f32)]);
  if ('text' in value) return Buffer.concat([u32(8), text(value.text)]);
  if ('texts' in value) return list(8, value.texts.map(text));
  if ('f32s' in value) return list(6, value.f32s.map(f32));
  return list(
    5,
    value.i32s.map((item) => u32(item >>> 0)),
  );
}

function pad(buffer: Buffer): Buffer {
  const rest = buffer.length % ALIGNMENT;
  return rest === 0 ? buffer : Buffer.concat([buffer, Buffer.alloc(ALIGNMENT - rest)]);
}

interface Tensor {
  readonly name: string;
  readonly shape: readonly number[];
  readonly type: number;
  readonly data: Buffer;
}

function makeTensors({ type, seed, sentence = [] }: ModelOptions): Tensor[] {
  const { tokens } = vocabulary(sentence);
  const known = sentence.map((word) => tokens.indexOf(`▁${word}`));
  const memory = known.length === 0 ? [] : [BEGIN, ...known, END];
  if (new Set(memory).size !== memory.length || known.includes(-1))
    throw new RangeError(`not a sentence of different words, few enough: ${sentence.join(' ')}`);
  const ones = (name: string): Tensor => ({
    name,
    shape: [WIDTH],
    type: F32,
    data: Buffer.concat(Array.from({ length: WIDTH }, () => f32(1))),
  });
  return [
    ...tinyWeights(seed, memory).map(({ name, rows, columns, values }) => ({
      name,
      shape: [columns, rows],
      type: FORMATS[type].tensor,
      data: encodeWeights(type, values),
    })),
    ...Array.from({ length: LAYERS }, (_, layer) => [
      ones(`blk.${layer}.attn_norm.weight`),
      ones(`blk.${layer}.ffn_norm.weight`),
    ]).flat(),
    ones('output_norm.weight'),
  ];
}

function makeFacts({ type, sentence = [], embeds = false }: ModelOptions): [string, Value][] {
  const { tokens, kinds, scores } = vocabulary(sentence);
  const mean: [string, Value][] = embeds ? [['llama.pooling_type', { u32: 1 }]] : [];
  return [
    ['general.architecture', { text: 'llama' }],
    ['general.name', { text: `vgpu toy ${type}` }],
    ['general.alignment', { u32: ALIGNMENT }],
    ['general.file_type', { u32: FORMATS[type].file }],
    ['llama.context_length', { u32: CONTEXT }],
    ['llama.embedding_length', { u32: WIDTH }],
    ['llama.block_count', { u32: LAYERS }],
    ['llama.feed_forward_length', { u32: INNER }],
    ['llama.attention.head_count', { u32: HEADS }],
    ['llama.attention.head_count_kv', { u32: KEY_HEADS }],
    ['llama.attention.layer_norm_rms_epsilon', { f32: 1e-5 }],
    ['llama.rope.freq_base', { f32: FREQUENCY_BASE }],
    ['llama.rope.dimension_count', { u32: WIDTH / HEADS }],
    ['llama.vocab_size', { u32: VOCABULARY }],
    ...mean,
    ['tokenizer.ggml.model', { text: 'llama' }],
    ['tokenizer.ggml.tokens', { texts: tokens }],
    ['tokenizer.ggml.scores', { f32s: scores }],
    ['tokenizer.ggml.token_type', { i32s: kinds }],
    ['tokenizer.ggml.unknown_token_id', { u32: 0 }],
    ['tokenizer.ggml.bos_token_id', { u32: BEGIN }],
    ['tokenizer.ggml.eos_token_id', { u32: END }],
  ];
}

/** The file's bytes (GGUF version 3). */
export function makeGguf(options: ModelOptions): Buffer {
  const tensors = makeTensors(options);
  const facts = makeFacts(options);
  let offset = 0;
  const table = tensors.map(({ name, shape, type, data }) => {
    const entry = Buffer.concat([text(name), u32(shape.length), ...shape.map(u64), u32(type), u64(offset)]);
    offset += pad(data).length;
    return entry;
  });
  const head = Buffer.concat([
    Buffer.from('GGUF'),
    u32(3),
    u64(tensors.length),
    u64(facts.length),
    ...facts.flatMap(([key, value]) => [text(key), encodeValue(value)]),
    ...table,
  ]);
  return Buffer.concat([pad(head), ...tensors.map(({ data }) => pad(data))]);
}

export function isWeightType(word: string): word is WeightType {
  return Object.hasOwn(FORMATS, word);
}

function main(words: readonly string[]): number {
  const [file, type = 'f16', ...sentence] = words;
  if (file === undefined || !isWeightType(type)) {
    stderr.write('usage: make-gguf.js FILE [f16|q4_0|q8_0|q4_k] [WORD...]\n');
    return 2;
  }
  writeFileSync(file, makeGguf({ type, seed: 20_260_101, sentence }));
  return 0;
}

if (argv[1] === fileURLToPath(import.meta.url)) exit(main(argv.slice(2)));
