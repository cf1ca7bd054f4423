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
const toolkit = '/usr/local/cuda-12.4/targets/x86_64-linux/lib/libcuda.so';

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

const opens = /^ollama 0\.11\.11 opens libcuda by absolute path, which LD_PRELOAD does not change, and /;

breakages(
  'the doctor on what a service opens by path',
  [
    {
      name: 'another driver in the service’s own directory, which it opens before the shim',
      standIn: true,
      break: (guest) => driverAt(guest, own),
      undo: (guest) => gone(guest, own),
      check: 'opens-by-path',
      // This check comes before it, because other programs look there, too.
      first: 'foreign-library',
      cause: new RegExp(`${opens.source}finds another before the shim\\.$`),
      evidence: [
        /^\/usr\/local\/lib\/ollama\/libcuda\.so\.1: neither of vgpu-agent nor of NVIDIA$/m,
        /^\/opt\/vgpu\/current\/libcuda\.so.*: the shim$/m,
      ],
      command: /^sudo mv \/usr\/local\/lib\/ollama\/libcuda\.so\.1 \S+\.away && sudo systemctl restart /,
      fix: false,
    },
    {
      name: 'a CUDA toolkit’s driver, opened first once the unit loses LD_LIBRARY_PATH',
      standIn: true,
      break: (guest) => driverAt(guest, toolkit, 'UnsetEnvironment=LD_LIBRARY_PATH'),
      undo: (guest) => gone(guest, toolkit),
      check: 'opens-by-path',
      first: 'environment',
      cause: new RegExp(`${opens.source}finds another before the shim\\.$`),
      evidence: [
        /^\/usr\/local\/cuda-12\.4\/targets\/x86_64-linux\/lib\/libcuda\.so: neither of vgpu-agent nor of NVIDIA$/m,
        /^\/usr\/lib\/x86_64-linux-gnu\/libcuda\.so.*: the shim$/m,
      ],
      command: /^sudo mv \/usr\/local\/cuda-12\.4\/\S+\/libcuda\.so \S+\.away && sudo systemctl restart /,
      fix: false,
    },
  ],
  { design: 1, env: {} },
);
