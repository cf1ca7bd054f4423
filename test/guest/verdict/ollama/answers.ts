// Questions are answered alike on the CPU and on the GPU, and missing functions of the simulated GPU are named.

import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import { embedding, generate, unload, verdictNow } from '../../support/real-ollama.js';
import { evidence, installedGpu, tell } from '../../support/scenario.js';
import { medium, odd, type Scene, texts } from './scene.js';

export async function answersAlike(t: TestContext, scene: Scene): Promise<void> {
  const { guest, onCpu, halfOnCpu, vectorsOnCpu, vectors, learnt, same } = scene;

  await t.test('on the CPU it goes on with what it has read', () => {
    assert.deepEqual(onCpu['reads, a long prompt'], { status: 200, text: ' o i n s h r d l' });
  });

  await t.test('install gives GPU; every answer is the CPU’s, and what was loaded is named', async () => {
    await installedGpu(guest);
    await verdictNow(guest, { mode: 'gpu' });
    await same();
    await learnt('one');
    const verdict = await verdictNow(guest, { mode: 'gpu' });
    assert.match(evidence(verdict, 'loaded').join(), /one:latest: (\S+ \S+) of \1 on the GPU/);
    assert.match(
      evidence(verdict, 'sessions').join(),
      /^llama-server \(process \d+\) .* [1-9]\d* kernels? launched/,
    );
  });

  await t.test('vectors of texts are the CPU’s', async () => {
    for (const [i, vector] of (await vectors()).entries()) {
      const cosine = vectorsOnCpu[i]?.reduce((sum, value, k) => sum + value * (vector?.[k] ?? 0), 0) ?? 0;
      // Quantised, both round what they compute with to 8 bits, and not alike.
      assert.ok(cosine > 0.999 && cosine < 1.001, `${texts[i]}: ${cosine}`);
    }
    await verdictNow(guest, { mode: 'gpu' });
  });

  await t.test('several models and requests at once', async () => {
    for (const name of ['embeds', 'reads']) await unload(guest, name);
    const names = ['one', 'two', 'three'];
    await Promise.all([...names, ...names, 'one'].map(learnt));
    const verdict = await verdictNow(guest, { mode: 'gpu' });
    assert.equal(evidence(verdict, 'loaded').length, 3);
    for (const name of names) await unload(guest, name);
  });

  await t.test(
    'what needs cuBLAS fails, the doctor names the kernel, and 16 tokens at a time need none',
    async () => {
      assert.equal(halfOnCpu.status, 200);
      assert.equal((await generate(guest, 'halves', medium)).status, 500);
      // Its process has ended with that error: nothing is on the CPU, though the model is listed.
      await verdictNow(guest, { mode: 'gpu' });
      const kernel = async (): Promise<string> => {
        const doctor = await tell(guest, 'doctor');
        const found = doctor.document.checks.find(({ id }) => id === 'refused-kernels')?.finding;
        assert.ok(found?.kind === 'warning', doctor.stdout);
        return found.evidence.join();
      };
      assert.match(await kernel(), /for llama-server: _ZN7cutlass\S*tensorop\S*gemm/);
      assert.deepEqual(await generate(guest, 'halves', medium, { num_batch: 16 }), halfOnCpu);
      assert.equal(await embedding(guest, 'embeds', odd), null);
      assert.match(await kernel(), /for llama-server: _ZN\S*gemv/);
      for (const name of ['halves', 'embeds']) await unload(guest, name);
    },
  );
}
