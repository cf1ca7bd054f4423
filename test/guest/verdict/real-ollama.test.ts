// A real Ollama in the guest: its answers are those that it gave on the CPU, and the verdict is what it does, also where a
// model is loaded on the CPU although the start found the GPU: because the host was away, or refused the session.
// One guest for all; the cases stand in test/guest/verdict/ollama, in the order in which they need each other.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { whyNoOllama } from '../support/consumer.js';
import { whyNoGuest } from '../support/guest.js';
import { whyNoHostd } from '../support/hosts.js';
import { differences, uninstall } from '../support/installed.js';
import { answering } from '../support/real-ollama.js';
import { answersAlike } from './ollama/answers.js';
import { hostIsLost } from './ollama/host-lost.js';
import { hostRefuses } from './ollama/limits.js';
import { makeScene } from './ollama/scene.js';
import { serviceBringsBack } from './ollama/service.js';
import { twoGpus } from './ollama/two-gpus.js';

const skip = whyNoGuest() || whyNoHostd() || whyNoOllama();

test('the verdict agrees with a real Ollama', { skip }, async (t) => {
  const scene = await makeScene(t);
  await answersAlike(t, scene);
  await twoGpus(t, scene);
  await hostIsLost(t, scene);
  await hostRefuses(t, scene);
  await serviceBringsBack(t, scene);

  const { guest, before, same } = scene;
  await t.test('uninstall leaves it answering on the CPU, and nothing of vgpu-agent', async () => {
    await uninstall(guest);
    await guest.must('rm', '-rf', '/etc/vgpu-agent');
    await answering(guest);
    await same();
    assert.deepEqual(differences(before, await guest.listing()), []);
  });
});
