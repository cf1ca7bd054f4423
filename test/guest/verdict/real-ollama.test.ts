// A real Ollama in the guest: the verdict is what it does, in states in which it once was not. A model is loaded on the
// CPU although the start found the GPU: because the host was away, or because it refused the session.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import {
  answering,
  createModel,
  generate,
  makeModel,
  ollamaGuest,
  type ToyModel,
  unload,
  whyNoOllama,
} from '../support/real-ollama.js';
import { assertVerdict, evidence, installedGpu, tell } from '../support/scenario.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoOllama();
const models: readonly ToyModel[] = [
  { name: 'one', words: ['one', 'two', 'three', 'four', 'five'] },
  { name: 'two', words: ['two', 'one', 'four', 'three', 'six'] },
  { name: 'three', words: ['six', 'two', 'one', 'four', 'three'] },
];

test('a real Ollama: the verdict is what it does', { skip }, async (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'vgpu-models-'));
  t.after(async () => rmSync(directory, { recursive: true, force: true }));
  for (const model of models) makeModel(model, directory);
  const guest = await ollamaGuest(t, directory);
  const learnt = async (name: string): Promise<void> => {
    const words = models.find((one) => one.name === name)?.words ?? [];
    const { status, text } = await generate(guest, name, 'one two');
    assert.equal(status, 200, name);
    assert.equal(text?.trim(), words.join(' '), name);
  };

  await t.test(
    'install gives GPU, with the model loaded or not; its answer is what it has learnt',
    async () => {
      await installedGpu(guest);
      for (const { name } of models) await createModel(guest, name);
      await learnt('one');
      const verdict = await assertVerdict(guest, await tell(guest, 'verify'), { mode: 'gpu' });
      assert.match(evidence(verdict, 'loaded').join(), /^one:latest: (\S+ \S+) of \1 on the GPU$/);
      assert.match(
        evidence(verdict, 'sessions').join(),
        /^llama-server \(process \d+\) .* [1-9]\d* kernels launched$/,
      );
    },
  );

  await t.test(
    'the host is killed under a loaded model and comes back: on the CPU, and said so',
    async () => {
      await guest.hosts.stop('SIGKILL');
      assert.equal((await generate(guest, 'one', 'one two')).status, 500);
      await learnt('one');
      await guest.hosts.start();
      await learnt('one');
      const verdict = await assertVerdict(guest, await tell(guest, 'verify'), {
        mode: 'cpu',
        reason: 'model-on-cpu',
      });
      assert.match(verdict.summary, /one:latest: loaded, and the host has no session of its processes/);
      const explained = await guest.run(
        'bash',
        '-c',
        'journalctl -q -o cat _SYSTEMD_INVOCATION_ID=$(systemctl show --value -p InvocationID ollama) | vgpu-agent explain-log --json -',
      );
      assert.match(explained.stdout, /"mode": "degraded"[\s\S]*"reason": "model-on-cpu"/);
      const doctor = await tell(guest, 'doctor');
      assert.equal(doctor.document.first, 'loaded-models');
    },
  );

  await t.test('unloaded and loaded again it is on the GPU, and the verdict with it', async () => {
    await unload(guest, 'one');
    await assertVerdict(guest, await tell(guest, 'verify'), { mode: 'degraded', reason: 'model-on-cpu' });
    await learnt('one');
    await assertVerdict(guest, await tell(guest, 'verify'), { mode: 'gpu' });
  });

  await t.test('the third model gets no session: degraded, with the reason of the host', async () => {
    const config = join(directory, 'hostd.conf');
    await writeFile(config, 'allow unix uid=0\nallow unix sessions=2\n');
    await guest.hosts.start({ args: ['--config', config] });
    await guest.must('systemctl', 'restart', 'ollama');
    await answering(guest);
    for (const name of ['one', 'two']) await learnt(name);
    const full = await assertVerdict(guest, await tell(guest, 'verify'), { mode: 'gpu' });
    assert.equal(evidence(full, 'loaded').length, 2, 'a host that is full serves those that it has');
    await learnt('three');
    const verdict = await assertVerdict(guest, await tell(guest, 'verify'), {
      mode: 'degraded',
      reason: 'host-refused',
    });
    assert.match(verdict.summary, /it has as many sessions as it allows/);
    const doctor = await tell(guest, 'doctor');
    const first = doctor.document.checks.find(({ id }) => id === doctor.document.first)?.finding;
    assert.ok(first?.kind === 'broken');
    assert.match(first.cause, /as many sessions as it may/);
    assert.match(first.remedy.text, /sessions=/);
  });
});
