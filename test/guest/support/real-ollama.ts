// A real, unmodified Ollama in a guest: its models, requests to it, and its verdict compared with /api/ps.

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Verdict } from '../../../agent/contracts/verdict.js';
import type { WeightType } from '../../shim/support/gguf_blocks.js';
import { makeGguf } from '../../shim/support/make-gguf.js';
import { type Afterwards, Guest } from './guest.js';
import { at } from './installed.js';
import { until } from './process.js';
import { assertVerdict, type Expected, tell } from './scenario.js';

/** A toy model for the guest's /opt/models. A model with words always answers with these words; others repeat the prompt. */
export interface ToyModel {
  readonly name: string;
  readonly words?: readonly string[];
  readonly type?: WeightType;
  readonly embeds?: boolean;
}

/** A guest with the real server installed and started. Its models are made by `directory`'s files. */
export async function ollamaGuest(t: Afterwards, models: string): Promise<Guest> {
  const guest = await Guest.start({ readOnlyBinds: [`${models}:/opt/models`] }, t);
  await guest.hosts.start();
  await guest.installConsumer('real');
  return guest;
}

/** Writes the model as a file that `ollama create` takes. */
export function makeModel(
  { name, words = [], type = 'q4_0', embeds = false }: ToyModel,
  directory: string,
): void {
  writeFileSync(
    join(directory, `${name}.gguf`),
    makeGguf({ type, seed: 20_260_101, sentence: words, embeds }),
  );
}

/** Waits until it answers requests. */
export async function answering(guest: Guest): Promise<void> {
  const ask = ['curl', '-fsS', '-m', '5', 'http://127.0.0.1:11434/api/version'] as const;
  await until('Ollama answers', 120_000, async () =>
    (await guest.run(...ask)).code === 0 ? true : undefined,
  );
}

/** `ollama create`, from the guest's /opt/models. */
export async function createModel(guest: Guest, name: string): Promise<void> {
  await guest.write(
    `/var/lib/${name}.modelfile`,
    `FROM /opt/models/${name}.gguf\nPARAMETER num_ctx 256\nPARAMETER num_predict 8\nPARAMETER temperature 0\n`,
  );
  await guest.must(
    'env',
    'HOME=/root',
    '/usr/local/bin/ollama',
    'create',
    name,
    '-f',
    `/var/lib/${name}.modelfile`,
  );
}

export interface Generated {
  readonly status: number;
  /** The model's text; null: the server answered with an error. */
  readonly text: string | null;
}

/** Sends a request. Status 0: no answer in time. */
export async function post(
  guest: Guest,
  path: string,
  body: object,
  seconds = 120,
): Promise<{ readonly status: number; readonly answer: unknown }> {
  const url = `http://127.0.0.1:11434${path}`;
  const command = ['curl', '-sS', '-m', String(seconds), '-w', '\n%{http_code}', '-d', '@-', url] as const;
  const ran = await guest.runWith(
    { stdin: JSON.stringify(body), timeoutMs: (seconds + 10) * 1000 },
    ...command,
  );
  const lines = ran.stdout.trim().split('\n');
  if (ran.code !== 0) return { status: 0, answer: null };
  return { status: Number(lines.at(-1)), answer: JSON.parse(lines[0] ?? '{}') };
}

/** The model's continuation of `prompt`. */
export async function generate(
  guest: Guest,
  model: string,
  prompt: string,
  options: object = {},
): Promise<Generated> {
  const { status, answer } = await post(guest, '/api/generate', { model, prompt, stream: false, options });
  const text = at(answer, 'response');
  return { status, text: typeof text === 'string' ? text : null };
}

/** Time before a model is loaded: the first checks of the GPU take 50 to 70 ms each, the load takes seconds. */
export type LoadMoment = 'looks' | 'loads';

/** Requests a model that is not loaded, and calls `act` during its load. */
export async function whileLoading(
  guest: Guest,
  model: string,
  moment: LoadMoment,
  act: () => Promise<void>,
): Promise<Generated> {
  const { hosts } = guest;
  const before = new Set(hosts.workers);
  const since = new Map<string, number>();
  const answer = generate(guest, model, 'one two');
  await until(`a session of ${model}`, 60_000, () => {
    const now = performance.now();
    const workers = hosts.workers.filter((one) => !before.has(one));
    for (const worker of workers) since.set(worker, since.get(worker) ?? now);
    const old = moment === 'looks' ? 0 : 200;
    return workers.some((worker) => now - (since.get(worker) ?? now) >= old) ? true : undefined;
  });
  await act();
  return answer;
}

/** The model's answer in a conversation. */
export async function chat(guest: Guest, model: string, content: string): Promise<Generated> {
  const body = { model, stream: false, messages: [{ role: 'user', content }] };
  const { status, answer } = await post(guest, '/api/chat', body);
  const text = at(answer, 'message', 'content');
  return { status, text: typeof text === 'string' ? text : null };
}

/** The vector of a text, of length 1; null: the server answered with an error. */
export async function embedding(
  guest: Guest,
  model: string,
  input: string,
): Promise<readonly number[] | null> {
  const { status, answer } = await post(guest, '/api/embed', { model, input });
  const vector = at(answer, 'embeddings', 0);
  return status === 200 && Array.isArray(vector) ? vector.map(Number) : null;
}

/** Checks the present verdict, and that it agrees with /api/ps. */
export async function verdictNow(guest: Guest, expected: Expected): Promise<Verdict> {
  const verdict = await assertVerdict(guest, await tell(guest, 'verify'), expected);
  const listed: unknown = JSON.parse(
    await guest.must('curl', '-fsS', '-m', '30', 'http://127.0.0.1:11434/api/ps'),
  );
  const models: unknown = at(listed, 'models');
  assert.ok(Array.isArray(models));
  const elsewhere = models.filter((model) => Number(at(model, 'size_vram')) < Number(at(model, 'size')));
  const shown = JSON.stringify({ listed, verdict }, null, 1);
  if (verdict.mode === 'gpu') assert.deepEqual(elsewhere, [], shown);
  // A model that is loaded on the CPU is listed so; one that is no longer listed is in the log alone.
  if (verdict.mode === 'cpu' && verdict.reason === 'model-on-cpu')
    assert.notEqual(elsewhere.length, 0, shown);
  if (elsewhere.length > 0) assert.notEqual(verdict.mode, 'gpu', shown);
  return verdict;
}

/** `ollama stop`, and waits until the model is gone: an earlier request would use the loaded model. */
export async function unload(guest: Guest, model: string): Promise<void> {
  await guest.must('env', 'HOME=/root', '/usr/local/bin/ollama', 'stop', model);
  await until(`${model} is unloaded`, 120_000, async () => {
    const listed = await guest.must('curl', '-fsS', '-m', '30', 'http://127.0.0.1:11434/api/ps');
    return listed.includes(`"${model}:`) ? undefined : true;
  });
}
