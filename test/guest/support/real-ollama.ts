// A real, unmodified Ollama, where there is one: VGPU_TEST_OLLAMA names its binary, or scripts/test put one together
// in .cache. Nothing of it is in this repository.

import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { realOllama, realOllamaPrefix } from './consumer.js';
import { type Afterwards, Guest } from './guest.js';
import { repository } from './repository.js';

const assembled = join(repository, '.cache/ollama-0.32.9');

/** The directory with its bin/ and lib/ollama/; undefined: there is none. */
export function ollamaServer(): string | undefined {
  if (realOllama() !== undefined) return realOllamaPrefix();
  return existsSync(join(assembled, '.complete')) ? assembled : undefined;
}

/** Why no real Ollama can be run here, or false; for the `skip` option of a test. */
export function whyNoOllama(): string | false {
  return ollamaServer() === undefined
    ? 'there is no real Ollama here: set VGPU_TEST_OLLAMA=/path/to/ollama'
    : false;
}

/** A toy model for the guest's /opt/models: it has learnt this sentence by heart, so its answer is known. */
export interface ToyModel {
  readonly name: string;
  readonly words: readonly string[];
}

/** A guest with the real server installed and started. Its models are made by `directory`'s files. */
export async function ollamaGuest(t: Afterwards, models: string): Promise<Guest> {
  const prefix = ollamaServer();
  if (prefix === undefined) throw new Error('there is no real Ollama here');
  const own = realOllama() === undefined ? [`${prefix}:/run/vgpu-test-ollama`] : [];
  const guest = await Guest.start({ readOnlyBinds: [...own, `${models}:/opt/models`] }, t);
  await guest.hosts.start();
  await guest.must(join(repository, 'scripts/lib/install-consumer'), 'real');
  await answering(guest);
  return guest;
}

/** Writes the model as a file that `ollama create` takes. */
export function makeModel({ name, words }: ToyModel, directory: string): void {
  const program = join(repository, 'dist/test/shim/support/make-gguf.js');
  execFileSync(process.execPath, [program, join(directory, `${name}.gguf`), 'q4_0', ...words]);
}

/** Waits until it answers requests. */
export async function answering(guest: Guest): Promise<void> {
  await guest.must(
    'bash',
    '-c',
    'for i in $(seq 300); do curl -fsS -m 5 http://127.0.0.1:11434/api/version && exit 0; sleep 0.1; done; exit 1',
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
  /** What the model wrote; null: the server answered with an error. */
  readonly text: string | null;
}

/** What the model makes of `prompt`. */
export async function generate(guest: Guest, model: string, prompt: string): Promise<Generated> {
  const body = JSON.stringify({ model, prompt, stream: false });
  const ran = await guest.run(
    ...(['curl', '-sS', '-m', '120', '-w', '\n%{http_code}', '-d', body] as const),
    'http://127.0.0.1:11434/api/generate',
  );
  const lines = ran.stdout.trim().split('\n');
  const answer: unknown = JSON.parse(lines[0] ?? '{}');
  const text = typeof answer === 'object' && answer !== null ? Reflect.get(answer, 'response') : null;
  return { status: Number(lines.at(-1)), text: typeof text === 'string' ? text : null };
}

/** `ollama stop`: the model is unloaded. */
export async function unload(guest: Guest, model: string): Promise<void> {
  await guest.must('env', 'HOME=/root', '/usr/local/bin/ollama', 'stop', model);
}
