// The doctor on the unit: its sandbox, its variables, where it writes; and on what the loader takes there.
// One guest, broken in turn.

import { join } from 'node:path';
import { type Breakage, breakages } from '../support/doctor.js';
import type { Guest } from '../support/guest.js';
import { repository } from '../support/repository.js';
import { restartConsumer, settings } from '../support/scenario.js';

const edit = /^sudo systemctl edit ollama\.service && sudo systemctl restart ollama\.service$/;
const libraries = '/usr/local/lib/ollama';
const hwcaps = '/usr/lib/x86_64-linux-gnu/glibc-hwcaps/x86-64-v2';
const fake = join(repository, 'build/consumer/fake');

async function again(guest: Guest, ...lines: readonly string[]): Promise<void> {
  await settings(guest, ...lines);
  await restartConsumer(guest);
}

/** Lines of [Service] that break it; taken away again afterwards. */
function setting(lines: readonly string[], rest: Omit<Breakage, 'break' | 'undo' | 'fix'>): Breakage {
  return {
    ...rest,
    break: (guest) => again(guest, ...lines),
    undo: (guest) => again(guest),
    fix: false,
  };
}

/** A backend that needs a function which no driver has, linked against the shim. */
const backend = `cat >/root/backend.c <<'END'
extern int cuNotInventedYet(int);
int (*needed)(int) = cuNotInventedYet;
END
gcc -shared -fPIC -o /root/libggml-cuda.so /root/backend.c -Wl,--no-as-needed /opt/vgpu/current/libcuda.so.1`;

const table: readonly Breakage[] = [
  setting(['SystemCallFilter=~connect', 'SystemCallErrorNumber=EPERM'], {
    name: 'a sandbox in which nothing can connect',
    check: 'sandbox',
    evidence: [/SystemCallFilter= without connect\(\)/],
    command: edit,
  }),
  {
    name: 'a library forced to the CPU by an environment file',
    break: async (guest) => {
      await guest.write('/etc/default/ollama', 'OLLAMA_LLM_LIBRARY=cpu\n');
      await again(guest, 'EnvironmentFile=/etc/default/ollama');
    },
    undo: (guest) => again(guest),
    check: 'overrides',
    evidence: [/^OLLAMA_LLM_LIBRARY=cpu \[\/etc\/default\/ollama\]$/m],
    command: /^sudoedit \/etc\/default\/ollama && sudo systemctl restart ollama\.service$/,
    fix: false,
  },
  {
    name: 'an NVML that fails beside a CUDA that works',
    break: async (guest) => {
      await guest.must('install', '-D', `${fake}/libnvidia-ml-fake.so`, '/opt/driver/libnvidia-ml.so.1');
      await again(
        guest,
        'Environment=LD_PRELOAD=/opt/vgpu/current/libcuda.so.1:/opt/driver/libnvidia-ml.so.1',
        'Environment=FAKE_NVML=9',
      );
    },
    undo: (guest) => again(guest),
    check: 'nvml',
    kind: 'warning',
    evidence: [/the loader chooses \/opt\/driver\/libnvidia-ml\.so\.1, by LD_PRELOAD/],
    command: /ldconfig -p/,
    fix: false,
  },
  {
    name: 'another driver in a directory for this processor, which the loader takes',
    standIn: true,
    break: async (guest) => {
      await guest.must('install', '-D', `${fake}/libcuda-fake.so`, `${hwcaps}/libcuda.so.1`);
      await guest.must('ldconfig', '-X');
      await again(guest, 'UnsetEnvironment=LD_PRELOAD LD_LIBRARY_PATH');
    },
    undo: async (guest) => {
      await guest.must('rm', '-r', hwcaps);
      await guest.must('ldconfig', '-X');
      await again(guest);
    },
    check: 'loader-choice',
    // The loader looks there because nothing leads it to the shim any more.
    first: 'environment',
    cause: /^The loader finds another libcuda\.so\.1 before the shim/,
    evidence: [
      /process \d+ \(ollama\): libcuda\.so\.1: \S+\/x86-64-v2\/libcuda\.so\.1.*, by ld\.so\.cache \(a foreign library\)/,
      // The loader's simulated answer is the file that the runner has loaded.
      /needed by \S+\/cuda_v1[23]\/libggml-cuda\.so: \S+\/x86-64-v2\/libcuda\.so\.1.*\(a foreign library\); it is loaded/,
    ],
    command: /^ls -l \/\S+glibc-hwcaps\/x86-64-v2\/libcuda\.so\.1; dpkg -S /,
    fix: false,
  },
  {
    name: 'a backend that needs what the shim does not have',
    standIn: true,
    break: (guest) =>
      guest.must(
        'sh',
        '-c',
        `${backend} && mkdir /root/backends && cd ${libraries} && cp -a --parents cuda_v1*/libggml-cuda.so /root/backends/ &&
         for directory in cuda_v1*; do cp --remove-destination /root/libggml-cuda.so $directory/; done && systemctl reset-failed ollama && systemctl restart ollama`,
      ),
    undo: (guest) =>
      guest.must(
        'sh',
        '-c',
        `cp -a --remove-destination /root/backends/. ${libraries}/ && systemctl reset-failed ollama && systemctl restart ollama`,
      ),
    check: 'symbols',
    evidence: [/cuda_v12\/libggml-cuda\.so needs cuNotInventedYet/],
    command: /^vgpu-agent version$/,
    fix: false,
  },
];

breakages('the doctor on what the unit sets', table);
