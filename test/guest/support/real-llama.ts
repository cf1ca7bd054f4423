// Debian's llama-server with its CUDA backend (llama.cpp-tools, libggml0-backend-cuda), in the root that
// `scripts/test-roots llama-sid` makes. Debian's package has no unit: the guest gets a plain one.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { type Afterwards, Guest } from './guest.js';
import { until } from './process.js';
import { repository } from './repository.js';
import { testRoot, whyNoRoot } from './roots.js';

const name = 'llama-sid';
export const unit = 'llama-server.service';
/** Reads the address from the log, because Debian's package uses a port of its own. */
const address = (of: string): string =>
  `$(journalctl -q -o cat -u ${of} | grep -o 'http://127[^ ]*' | tail -n 1)`;

/** Why there is no llama-server to test with, or false; for the `skip` option of a test. */
export function whyNoLlama(): string | false {
  return whyNoRoot(name);
}

/** A guest with a host beside it and llama-server, started, on the CPU. `models` is its /opt/models, `of` the unit's name. */
export async function llamaGuest(
  t: Afterwards,
  models: string,
  model: string,
  of = unit,
  options: readonly string[] = [],
): Promise<Guest> {
  const guest = await Guest.start({ root: testRoot(name), readOnlyBinds: [`${models}:/opt/models`] }, t);
  await guest.hosts.start();
  await guest.must(
    join(repository, 'scripts/lib/install-consumer'),
    'llama-server',
    `/opt/models/${model}.gguf`,
    ...options,
  );
  if (of !== unit) {
    const units = '/etc/systemd/system';
    await guest.must(
      'sh',
      '-c',
      `systemctl disable --now --quiet ${unit} && mv ${units}/${unit} ${units}/${of} &&
       systemctl daemon-reload && systemctl enable --now --quiet ${of}`,
    );
  }
  await answering(guest, of);
  return guest;
}

/** Waits until it has loaded its model and answers. */
export async function answering(guest: Guest, of = unit): Promise<void> {
  try {
    await until('llama-server answers', 120_000, async () =>
      (await guest.run('bash', '-c', `curl -fsS -m 5 "${address(of)}/health"`)).code === 0 ? true : undefined,
    );
  } catch (error) {
    throw new Error(`${String(error)}\n${await guest.must('journalctl', '-q', '-n', '30', '-u', of)}`);
  }
}

/** Restarts the service and waits until it answers. */
export async function restarted(guest: Guest): Promise<void> {
  await guest.must('sh', '-c', `systemctl reset-failed ${unit}; systemctl restart ${unit}`);
  await answering(guest);
}

export interface Completed {
  /** curl's exit status: 0, or 52 when the server ended, 28 after a time-out. */
  readonly curl: number;
  readonly tokens: readonly number[];
  readonly text: string;
}

/** The tokens that follow `prompt`; at each place the likeliest. */
export async function complete(
  guest: Guest,
  prompt: string | readonly number[],
  of = unit,
  seconds = 60,
): Promise<Completed> {
  const order = { prompt, n_predict: 8, temperature: 0, return_tokens: true, cache_prompt: false };
  const ran = await guest.runWith(
    { stdin: JSON.stringify(order), timeoutMs: (seconds + 10) * 1000 },
    ...(['bash', '-c', `curl -sS -m ${seconds} -d @- "${address(of)}/completion"`] as const),
  );
  if (ran.code !== 0) return { curl: ran.code, tokens: [], text: '' };
  const answer: unknown = JSON.parse(ran.stdout);
  const field = (name: string): unknown =>
    typeof answer === 'object' && answer !== null ? Reflect.get(answer, name) : null;
  const tokens = field('tokens');
  assert.ok(Array.isArray(tokens) && tokens.length > 0, ran.stdout);
  return { curl: 0, tokens: tokens.map(Number), text: String(field('content')) };
}
