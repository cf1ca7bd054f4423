// Gemma 3 270M, with its real weights, in Debian's llama-server: on the simulated GPU it says what it says on the CPU.

import assert from 'node:assert/strict';
import { appendFileSync, chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { complete, llamaGuest, unit, whyNoLlama } from '../support/real-llama.js';
import { repository } from '../support/repository.js';
import { assertVerdict, tell } from '../support/scenario.js';

const packages = join(repository, '.cache/roots/gemma-pip/lib');
const skip =
  (process.env['VGPU_TEST_LONG'] !== '1' && '--long only') ||
  whyNoGuest() ||
  whyNoHostd() ||
  whyNoLlama() ||
  (parts().length !== 4 && 'no weights of Gemma 3 270M (scripts/fetch-packages gemma-pip)');

/** The packages carry the file in four pieces. */
function parts(): readonly string[] {
  try {
    return readdirSync(packages, { recursive: true, encoding: 'utf8' })
      .filter((name) => /gemma-3-270m-q4_k_m\.gguf\.part\d\d$/.test(name))
      .map((name) => join(packages, name))
      .sort((one, other) => (one.slice(-2) < other.slice(-2) ? -1 : 1));
  } catch {
    return [];
  }
}

test('Gemma 3 270M says on the simulated GPU what it says on the CPU', { skip }, async (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'vgpu-models-'));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  chmodSync(directory, 0o755); // the service has a user of its own
  for (const part of parts()) appendFileSync(join(directory, 'gemma.gguf'), readFileSync(part));
  // A token takes seconds on the simulated GPU, so nothing is computed before the question.
  const guest = await llamaGuest(t, directory, 'gemma', unit, ['--no-warmup']);
  const say = () => complete(guest, 'The capital of France is', unit, 300);

  const onCpu = await say();
  assert.match(onCpu.text, / the largest city | the capital /, 'a model with real weights speaks English');
  const installed = await tell(guest, 'install', '--yes', '--profile', 'llama-server');
  await assertVerdict(guest, installed, { mode: 'gpu' });
  const onGpu = await say();
  assert.equal(onGpu.text, onCpu.text);
  assert.deepEqual(onGpu.tokens, onCpu.tokens);
  t.diagnostic(`it says: ${onGpu.text}`);
  await assertVerdict(guest, await tell(guest, 'verify', '--profile', 'llama-server'), { mode: 'gpu' });
});
