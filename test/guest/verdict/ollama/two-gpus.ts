// A host with two simulated GPUs, over which Ollama spreads each model.

import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import { answering, verdictNow } from '../../support/real-ollama.js';
import { evidence } from '../../support/scenario.js';
import type { Scene } from './scene.js';

const dropIn = '/etc/systemd/system/ollama.service.d/99-spread.conf';

export async function twoGpus(t: TestContext, scene: Scene): Promise<void> {
  const { guest, learnt, same } = scene;

  await t.test('a model that is spread over two GPUs answers as on the CPU', async () => {
    await guest.hosts.start({ args: ['--profile', 'h100-80gb', '--profile', 'l40s'] });
    await guest.write(dropIn, '[Service]\nEnvironment=OLLAMA_SCHED_SPREAD=1\n');
    await guest.must('systemctl', 'daemon-reload');
    await guest.must('systemctl', 'restart', 'ollama');
    await answering(guest);
    await learnt('one');
    const verdict = await verdictNow(guest, { mode: 'gpu' });
    assert.match(evidence(verdict, 'loaded').join(), /one:latest: (\S+ \S+) of \1 on the GPU/);
    const log = (await guest.journal('ollama.service')).map(({ message }) => message).join('\n');
    for (const device of ['CUDA0', 'CUDA1'])
      assert.match(log, new RegExp(`${device} model buffer size`), device);
    await same();
    await guest.must('rm', dropIn);
    await guest.must('systemctl', 'daemon-reload');
    await guest.hosts.start();
    await guest.must('systemctl', 'restart', 'ollama');
    await answering(guest);
  });
}
