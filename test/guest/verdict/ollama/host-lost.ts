// The host is frozen or killed under a loaded model, while one is loaded, and while it answers. No service runs.

import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import type { Reason } from '../../../../agent/contracts/verdict.js';
import { long } from '../../support/consumer.js';
import { type Generated, generate, unload, verdictNow, whileLoading } from '../../support/real-ollama.js';
import { assertVerdict, tell } from '../../support/scenario.js';
import { far, medium, type Scene } from './scene.js';

export async function hostIsLost(t: TestContext, scene: Scene): Promise<void> {
  const { guest, onCpu, learnt, wordsOf } = scene;

  await t.test(
    'the host is frozen under a loaded model: said so, and the same answers when it goes on',
    async () => {
      await learnt('one');
      await guest.hosts.freeze();
      await verdictNow(guest, { mode: 'degraded', reason: 'host-slow' });
      await guest.hosts.thaw();
      await learnt('one');
      await verdictNow(guest, { mode: 'gpu' });
    },
  );

  await t.test('a freeze of the host while it answers costs time, and nothing else', async () => {
    const answer = generate(guest, 'reads', far);
    await guest.hosts.freeze();
    await setTimeout(1_000);
    await guest.hosts.thaw();
    assert.deepEqual(await answer, onCpu['reads, a long prompt']);
    await unload(guest, 'reads');
  });

  const { hosts } = guest;
  /** Ollama takes the CPU without a word where the GPU goes away while it loads; or the load fails. */
  const loadedElsewhere = async ({ status, text }: Generated): Promise<void> => {
    assert.ok(status === 200 || status === 500, `${status}`);
    if (status === 200) assert.equal(text?.trim(), wordsOf('two'));
    else await learnt('two');
    const verdict = await verdictNow(guest, {
      mode: status === 200 ? 'cpu' : 'gpu',
      ...(status === 200 ? { reason: 'model-on-cpu' } : {}),
    });
    const doctor = await tell(guest, 'doctor');
    assert.equal(doctor.document.first, status === 200 ? 'loaded-models' : null, doctor.stdout);
    if (status === 200)
      assert.match(verdict.summary, /two:latest: loaded, and the host has no session of its/);
    await unload(guest, 'two');
    await learnt('two');
    await verdictNow(guest, { mode: 'gpu' });
    await unload(guest, 'two');
  };
  await t.test('a model that is unloaded is not judged', async () => {
    await unload(guest, 'one');
    await verdictNow(guest, { mode: 'gpu' });
  });
  /** Whatever became of the load: the model is not on the GPU now, and the host is the reason. */
  const hostIsWhy = async (reason: Reason, back: () => Promise<void>): Promise<void> => {
    const verified = await tell(guest, 'verify');
    const doctor = await tell(guest, 'doctor');
    await back();
    const { mode } = verified.document.verdict ?? {};
    await assertVerdict(guest, verified, { mode: mode === 'degraded' ? mode : 'cpu', reason });
    assert.equal(doctor.document.first, 'host', doctor.stdout);
  };
  for (const moment of ['looks', 'loads'] as const) {
    await t.test(
      `the host is killed while a model is loaded (${moment}): said so, and how it ends`,
      async () => {
        const got = await whileLoading(guest, 'two', moment, () => hosts.stop('SIGKILL'));
        await hostIsWhy('host-unreachable', () => hosts.start());
        await loadedElsewhere(got);
      },
    );
  }

  for (const moment of ['looks', 'loads'] as const) {
    await t.test(
      `the host is frozen while a model is loaded (${moment})`,
      { skip: !long && 'takes a minute: --long' },
      async () => {
        const got = await whileLoading(guest, 'two', moment, () => hosts.freeze());
        await hostIsWhy('host-slow', () => hosts.thaw());
        await loadedElsewhere(got);
      },
    );
  }

  await t.test(
    'the host is killed under a loaded model and comes back: on the CPU, and said so',
    async () => {
      await learnt('one');
      await guest.hosts.stop('SIGKILL');
      assert.equal((await generate(guest, 'one', 'one two')).status, 500);
      await learnt('one');
      await guest.hosts.start();
      await learnt('one');
      const verdict = await verdictNow(guest, { mode: 'cpu', reason: 'model-on-cpu' });
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
    await verdictNow(guest, { mode: 'degraded', reason: 'model-on-cpu' });
    await learnt('one');
    await verdictNow(guest, { mode: 'gpu' });
  });

  await t.test(
    'the host is killed while it answers: that request fails, the next is on the GPU',
    async () => {
      await learnt('one');
      assert.deepEqual(await generate(guest, 'reads', far), onCpu['reads, a long prompt']);
      const answer = generate(guest, 'reads', medium, { num_predict: 180 });
      await setTimeout(700);
      await guest.hosts.stop('SIGKILL');
      assert.equal((await answer).status, 500, 'it was under way');
      await guest.hosts.start();
      await unload(guest, 'one');
      assert.deepEqual(await generate(guest, 'reads', far), onCpu['reads, a long prompt']);
      await verdictNow(guest, { mode: 'gpu' });
      await unload(guest, 'reads');
    },
  );
}
