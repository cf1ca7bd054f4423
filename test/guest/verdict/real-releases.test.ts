// A real Ollama in guests of the Debian releases: the GPU, and the CPU's words. Asked by its own command: these roots have
// no curl. Its library for SQLite comes from this machine, where the root has none.

import assert from 'node:assert/strict';
import { mkdtempSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { whyNoOllama } from '../support/consumer.js';
import { Guest, whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { uninstall } from '../support/installed.js';
import { createModel, makeModel } from '../support/real-ollama.js';
import { releases, testRoot, whyNoRoot } from '../support/roots.js';
import { assertVerdict, evidence, installedGpu, tell } from '../support/scenario.js';

const words = ['one', 'two', 'three', 'four', 'five'];
const sqlite = '/usr/lib/x86_64-linux-gnu/libsqlite3.so.0';

for (const release of releases) {
  const skip = whyNoGuest() || whyNoHostd() || whyNoOllama() || whyNoRoot(release);
  test(`a real Ollama in a guest of Debian's ${release}`, { skip }, async (t) => {
    const directory = mkdtempSync(join(tmpdir(), 'vgpu-models-'));
    t.after(async () => rmSync(directory, { recursive: true, force: true }));
    makeModel({ name: 'one', words }, directory);
    const readOnlyBinds = [`${directory}:/opt/models`, `${realpathSync(sqlite)}:${sqlite}`];
    const guest = await Guest.start({ root: testRoot(release), readOnlyBinds }, t);
    await guest.hosts.start();
    await guest.installConsumer('real');
    await createModel(guest, 'one');
    const says = async (): Promise<string> => {
      const said = await guest.must('env', 'HOME=/root', 'ollama', 'run', 'one', 'one two');
      return said.trim();
    };
    assert.equal(await says(), words.join(' '));
    await installedGpu(guest);
    assert.equal(await says(), words.join(' '));
    const verdict = await assertVerdict(guest, await tell(guest, 'verify'), { mode: 'gpu' });
    assert.match(evidence(verdict, 'loaded').join(), /one:latest: (\S+ \S+) of \1 on the GPU/);
    assert.match(evidence(verdict, 'sessions').join(), /[1-9]\d* kernels? launched/);
    await uninstall(guest);
  });
}
