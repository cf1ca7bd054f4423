// A guest with a real Ollama and its toy models, what it answered there on the CPU, and what the cases ask of it.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { long } from '../../support/consumer.js';
import type { Afterwards, Guest } from '../../support/guest.js';
import type { Listing } from '../../support/listing.js';
import {
  answering,
  chat,
  createModel,
  embedding,
  type Generated,
  generate,
  makeModel,
  ollamaGuest,
  type ToyModel,
} from '../../support/real-ollama.js';

const models: readonly ToyModel[] = [
  { name: 'one', words: ['one', 'two', 'three', 'four', 'five'] },
  { name: 'two', words: ['two', 'one', 'four', 'three', 'six'] },
  { name: 'three', words: ['six', 'two', 'one', 'four', 'three'] },
  { name: 'reads' },
  { name: 'halves', type: 'f16' },
  { name: 'embeds', embeds: true },
  ...(long
    ? ([
        { name: 'bytes', type: 'q8_0' },
        { name: 'k', type: 'q4_k' },
      ] as const)
    : []),
];
const letters = 'e t a o i n s h r d l u c m w f g y p b v k';
/** 4 tokens with the one that begins a text, and 26; 202 of them. */
const short = 'e t a';
export const medium = `${letters} ${short}`;
export const far = `${Array(9).fill(letters).join(' ')} ${short}`;
/** Of 4 and 12 tokens, then of 3: with an odd number, ggml turns to cuBLAS. */
export const texts = [short, 'e t a o i n s h r d l'] as const;
export const odd = 'e t';

type Answers = Readonly<Record<string, unknown>>;
type Vectors = readonly (readonly number[] | null)[];

export interface Scene {
  readonly guest: Guest;
  readonly before: Listing;
  readonly onCpu: Answers;
  /** Of the model with f16 weights. */
  readonly halfOnCpu: Generated;
  readonly vectorsOnCpu: Vectors;
  vectors(): Promise<Vectors>;
  /** The model answers with its own words. */
  learnt(name: string): Promise<void>;
  wordsOf(name: string): string;
  /** Every answer is the CPU's. */
  same(): Promise<void>;
  /** Another host, with these lines in its configuration, and a consumer that was started after it. */
  hostWith(...lines: readonly string[]): Promise<void>;
}

export async function makeScene(t: Afterwards): Promise<Scene> {
  const directory = mkdtempSync(join(tmpdir(), 'vgpu-models-'));
  t.after(async () => rmSync(directory, { recursive: true, force: true }));
  for (const model of models) makeModel(model, directory);
  const guest = await ollamaGuest(t, directory);
  for (const { name } of models) await createModel(guest, name);
  const wordsOf = (name: string): string => (models.find((one) => one.name === name)?.words ?? []).join(' ');
  const readers = ['reads', ...(long ? ['bytes', 'k'] : [])];
  /** Everything that is asked of it, by name. Quantised weights alone: f16 has a case of its own. */
  const answers = async (): Promise<Answers> => {
    const all: Record<string, unknown> = {};
    for (const name of readers) {
      all[`${name}, a short prompt`] = await generate(guest, name, medium);
      all[`${name}, a long prompt`] = await generate(guest, name, far);
      all[`${name}, a conversation`] = await chat(guest, name, medium);
    }
    return all;
  };
  const vectors = (): Promise<Vectors> => Promise.all(texts.map((text) => embedding(guest, 'embeds', text)));

  await guest.must('ldconfig', '-X');
  const before = await guest.listing();
  const onCpu = await answers();
  const halfOnCpu = await generate(guest, 'halves', medium);
  const vectorsOnCpu = await vectors();
  return {
    guest,
    before,
    onCpu,
    halfOnCpu,
    vectorsOnCpu,
    vectors,
    wordsOf,
    async learnt(name) {
      const { status, text } = await generate(guest, name, 'one two');
      assert.equal(status, 200, name);
      assert.equal(text?.trim(), wordsOf(name), name);
    },
    async same() {
      assert.deepEqual(await answers(), onCpu);
    },
    async hostWith(...lines) {
      const config = join(directory, 'hostd.conf');
      await writeFile(config, `allow unix uid=0\n${lines.join('\n')}\n`);
      await guest.hosts.start({ args: ['--config', config] });
      await guest.must('systemctl', 'restart', 'ollama');
      await answering(guest);
    },
  };
}
