// The doctor on a consumer that opens libcuda by absolute path (design 1), where a preload does not count.
// One guest, broken in turn.

import { join } from 'node:path';
import { breakages } from '../support/doctor.js';
import type { Guest } from '../support/guest.js';
import { until } from '../support/process.js';
import { repository } from '../support/repository.js';
import { assertServes, restartConsumer, settings } from '../support/scenario.js';

const fake = join(repository, 'build/consumer/fake/libcuda-fake.so');
const own = '/usr/local/lib/ollama/libcuda.so.1';

/** It answers only when it is done looking for GPUs. */
async function again(guest: Guest, ...lines: readonly string[]): Promise<void> {
  await settings(guest, ...lines);
  await restartConsumer(guest);
  await until('the consumer answers', 60_000, () =>
    assertServes(guest).then(
      () => true,
      () => undefined,
    ),
  );
}

async function driverAt(guest: Guest, path: string, ...lines: readonly string[]): Promise<void> {
  await guest.must('install', '-D', '-m', '0755', fake, path);
  await again(guest, ...lines);
}

async function gone(guest: Guest, path: string): Promise<void> {
  await guest.must('rm', path);
  await again(guest);
}

breakages(
  'the doctor on what a service opens by path',
  [
    {
      name: 'another driver in the service’s own directory, which it opens before the shim',
      standIn: true,
      break: (guest) => driverAt(guest, own),
      undo: (guest) => gone(guest, own),
      check: 'foreign-library',
      cause: /own directories are searched first/,
      evidence: [/^\/usr\/local\/lib\/ollama\/libcuda\.so\.1 is from neither vgpu-agent nor NVIDIA$/m],
      command: /^sudo mv \/usr\/local\/lib\/ollama\/libcuda\.so\.1 \S+\.away && sudo systemctl restart /,
      fix: false,
    },
  ],
  { design: 1, env: {} },
);
