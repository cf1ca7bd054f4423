// The host refuses sessions and memory.

import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import { long } from '../../support/consumer.js';
import { generate, unload, verdictNow } from '../../support/real-ollama.js';
import { evidence, tell } from '../../support/scenario.js';
import type { Scene } from './scene.js';

export async function hostRefuses(t: TestContext, scene: Scene): Promise<void> {
  const { guest, learnt, hostWith } = scene;

  await t.test('the third model gets no session: degraded, with the reason of the host', async () => {
    await hostWith('allow unix sessions=2');
    for (const name of ['one', 'two']) await learnt(name);
    // Before a load Ollama looks at the GPU by a process of its own. On a busy machine that one may have the second
    // place still when the model's own process asks for it.
    for (let attempt = 0; attempt < 5 && guest.hosts.workers.length < 2; attempt += 1) {
      await unload(guest, 'two');
      await learnt('two');
    }
    const full = await verdictNow(guest, { mode: 'gpu' });
    assert.equal(evidence(full, 'loaded').length, 2, 'a host that is full serves those that it has');
    await learnt('three');
    const verdict = await verdictNow(guest, { mode: 'degraded', reason: 'host-refused' });
    assert.match(verdict.summary, /it has reached its limit of sessions/);
    const doctor = await tell(guest, 'doctor');
    const first = doctor.document.checks.find(({ id }) => id === doctor.document.first)?.finding;
    assert.ok(first?.kind === 'broken');
    assert.match(first.cause, /has reached its limit of sessions/);
    assert.match(first.remedy.text, /sessions=/);
  });

  await t.test(
    'a limit of device memory: what fits is on the GPU, and the doctor names the limit',
    async () => {
      // llama.cpp leaves 1 GiB free. Of this model all three layers take 3 MiB and a little, and none of them 2.
      const limited = async (memory: string): Promise<void> => {
        await hostWith(`allow unix memory=${memory}`);
        await learnt('one');
      };
      const cause = async (): Promise<string> => {
        const { document } = await tell(guest, 'doctor');
        const found = document.checks.find(({ id }) => id === 'device-memory')?.finding;
        assert.equal(document.first, 'device-memory');
        assert.ok(found?.kind === 'broken', JSON.stringify(found));
        assert.match(found.remedy.text, /raise memory= in hostd\.conf of the host \(line 2,/);
        return found.evidence.join('\n');
      };
      await limited('1027M');
      const partly = await verdictNow(guest, { mode: 'degraded', reason: 'layers-not-offloaded' });
      assert.match(
        partly.summary,
        /not all layers of the model are on it \(one:latest: \S+ MiB of \S+ MiB on the GPU\)/,
      );
      assert.equal(partly.next, 'sudo vgpu-agent doctor --profile ollama');
      assert.match(evidence(partly, 'sessions').join(), /[1-9]\d* kernels? launched/);
      assert.match(
        await cause(),
        /cannot meet free memory target of 1024 MiB[\s\S]* may hold 1\.0 GiB of device memory together \(memory= in line 2 of hostd\.conf/,
      );
      if (long) {
        await limited('64M');
        await verdictNow(guest, { mode: 'cpu', reason: 'model-on-cpu' });
        assert.match(await cause(), / may hold 64\.0 MiB of device memory together/);
        await limited('2G');
        await verdictNow(guest, { mode: 'gpu' });
      }
      await hostWith('allow unix memory=4M');
      assert.equal((await generate(guest, 'one', 'one two', { num_gpu: 99 })).status, 500, 'out of memory');
      await verdictNow(guest, { mode: 'gpu' });
      const { document } = await tell(guest, 'doctor');
      const told = document.checks.find(({ id }) => id === 'device-memory')?.finding;
      assert.ok(told?.kind === 'warning', JSON.stringify(told));
      assert.match(
        told.evidence.join(),
        /refused llama-server .* may hold 4\.0 MiB of device memory together/,
      );
    },
  );
}
