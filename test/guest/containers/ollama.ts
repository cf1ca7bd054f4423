// The real Ollama in a container: what is bound into the guest for it, and what it is asked there.

import assert from 'node:assert/strict';
import { mkdtempSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Verdict } from '../../../agent/contracts/verdict.js';
import { ollamaServer } from '../support/consumer.js';
import { type Afterwards, Guest } from '../support/guest.js';
import { until } from '../support/process.js';
import { whyNoLlama } from '../support/real-llama.js';
import { makeModel } from '../support/real-ollama.js';
import { testRoot } from '../support/roots.js';
import { assertVerdict, evidence, tell } from '../support/scenario.js';

const words = ['one', 'two', 'three', 'four', 'five'];
const sqlite = '/usr/lib/x86_64-linux-gnu/libsqlite3.so.0';

/** SRC:DST of every volume that an Ollama in a container needs. */
export const ollamaVolumes = [
  '/run/vgpu-test-ollama:/usr/local:ro',
  '/opt/models:/opt/models:ro',
  `/run/libsqlite3.so.0:${sqlite}:ro`,
];

/** A guest of that root, with Debian 12 as an image at /run/image, and Ollama and a model where there is one here. */
export async function containerGuest(root: string, t: Afterwards): Promise<Guest> {
  const directory = mkdtempSync(join(tmpdir(), 'vgpu-models-'));
  t.after(async () => rmSync(directory, { recursive: true, force: true }));
  const server = ollamaServer();
  makeModel({ name: 'one', words }, directory);
  const readOnlyBinds = [
    `${testRoot('bookworm')}:/run/image`,
    `${directory}:/opt/models`,
    ...(whyNoLlama() === false ? [`${testRoot('llama-sid')}:/run/llama`] : []),
    ...(server === undefined ? [] : [`${realpathSync(sqlite)}:/run/libsqlite3.so.0`]),
  ];
  const guest = await Guest.start({ root: testRoot(root), readOnlyBinds, size: '3g' }, t);
  await guest.hosts.start();
  return guest;
}

const modelfile =
  'FROM /opt/models/one.gguf\\nPARAMETER num_ctx 256\\nPARAMETER num_predict 8\\nPARAMETER temperature 0\\n';

/** Asks the Ollama in `container` something, and holds the verdict against what it and the host say then. */
export async function assertAnswersOnGpu(
  guest: Guest,
  engine: 'podman' | 'docker',
  container: string,
): Promise<Verdict> {
  const inside = (command: string) => guest.must(engine, 'exec', container, 'sh', '-c', command);
  await until('it answers', 60_000, async () =>
    (await guest.run(engine, 'exec', container, 'ollama', 'list')).code === 0 ? true : undefined,
  );
  await inside(`printf '${modelfile}' >/tmp/m && ollama create one -f /tmp/m`);
  assert.equal((await inside("ollama run one 'one two'")).trim(), words.join(' '));
  const verdict = await assertVerdict(guest, await tell(guest, 'verify', '--profile', 'ollama'), {
    mode: 'gpu',
  });
  assert.match(evidence(verdict, 'loaded').join(), /^one:latest: (\S+ \S+) of \1 on the GPU$/);
  assert.match(
    evidence(verdict, 'sessions').join(),
    /llama-server \(process \d+\) .* [1-9]\d* kernels? launched/,
  );
  assert.match(
    evidence(verdict, 'maps').join('\n'),
    /child llama-server has the libcuda of vgpu-agent loaded/,
  );
  const doctor = await tell(guest, 'doctor', '--profile', 'ollama');
  assert.equal(doctor.code, 0, doctor.stdout);
  return verdict;
}
