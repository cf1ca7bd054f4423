// The doctor on the service: what it is given, what the loader uses, what an upgrade can lose.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { killedAt } from '../support/checkpoints.js';
import { breakages } from '../support/doctor.js';
import type { Guest } from '../support/guest.js';
import { until } from '../support/process.js';
import { repository } from '../support/repository.js';
import { settings } from '../support/scenario.js';

const dropIn = '/etc/systemd/system/ollama.service.d/50-vgpu.conf';
const own = '/usr/local/lib/ollama';
const fake = join(repository, 'build/consumer/fake/libcuda-fake.so');
const fixIt = /^sudo vgpu-agent doctor --fix --profile ollama$/;
const editIt = /^sudo systemctl edit ollama\.service && sudo systemctl restart ollama\.service$/;

const sh = (guest: Guest, script: string): Promise<string> => guest.must('bash', '-ec', script);
/** So many starts in a row would meet systemd's limit. */
const start = 'systemctl reset-failed ollama; systemctl restart ollama';
const restart = (guest: Guest): Promise<string> => sh(guest, start);

/** Lines in a drop-in of the test's, in force at once. */
const lines = (guest: Guest, ...given: readonly string[]): Promise<unknown> =>
  settings(guest, ...given).then(() => restart(guest));

/** Puts before each backend one that asks for libcuda with RTLD_DEEPBIND, and writes down which file answered. */
const deepBinding = `cat >/root/deep.c <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
__attribute__((constructor)) static void ask(void) {
  Dl_info info = {.dli_fname = "none"};
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_DEEPBIND);
  if (library != NULL) dladdr(dlsym(library, "cuInit"), &info);
  FILE *file = fopen("/tmp/deepbind", "a");
  if (file != NULL) {
    fprintf(file, "%s\\n", info.dli_fname);
    fclose(file);
  }
}
END
for d in ${own}/cuda_v1*; do
  mv $d/libggml-cuda.so $d/libggml-cuda-real.so
  gcc -shared -fPIC /root/deep.c -o $d/libggml-cuda.so -Wl,--no-as-needed -L$d -l:libggml-cuda-real.so -Wl,-rpath,'$ORIGIN'
done
install -m 0755 ${fake} ${own}/libcuda.so.1`;

breakages('the doctor on the service', [
  {
    name: 'a drop-in that was edited',
    break: (guest) => sh(guest, `cp -p ${dropIn} /root/; sed -i s/LD_PRELOAD/LD_PRELAOD/ ${dropIn}`),
    undo: (guest) => guest.must('mv', '/root/50-vgpu.conf', dropIn),
    check: 'drop-in',
    cause: /was changed/,
    evidence: [/50-vgpu\.conf lacks Environment="LD_PRELOAD=/, /50-vgpu\.conf has Environment="LD_PRELAOD=/],
    command: fixIt,
    fix: true,
  },
  {
    name: 'a drop-in that was removed, and the service started without it',
    break: (guest) => sh(guest, `mv ${dropIn} /root/; systemctl daemon-reload; ${start}`),
    // Only the file comes back: the next two go on from there.
    undo: (guest) => guest.must('mv', '/root/50-vgpu.conf', dropIn),
    check: 'drop-in',
    cause: /is missing/,
    evidence: [/50-vgpu\.conf is not there/],
    command: fixIt,
    fix: true,
  },
  {
    name: 'a drop-in that systemd has not read',
    break: async () => {},
    undo: (guest) => guest.must('systemctl', 'daemon-reload'),
    check: 'drop-in',
    cause: /systemd has not read it/,
    evidence: [/daemon-reload/],
    command: fixIt,
    fix: true,
  },
  {
    name: 'a service that was not started again since',
    break: async () => {},
    undo: restart,
    check: 'restarted',
    evidence: [/process \d+ \(ollama\) was started before LD_(LIBRARY_PATH|PRELOAD) was set for it/],
    command: fixIt,
    fix: true,
  },
  {
    name: 'variables that the unit takes away again',
    break: (guest) => lines(guest, 'UnsetEnvironment=LD_PRELOAD LD_LIBRARY_PATH'),
    undo: (guest) => lines(guest),
    check: 'environment',
    evidence: [/UnsetEnvironment=LD_PRELOAD of the unit overrides the LD_PRELOAD of vgpu-agent/],
    command: editIt,
    fix: false,
  },
  {
    name: 'a preload that the service’s user may not read',
    break: async (guest) => {
      await guest.must('chmod', '0700', '/opt/vgpu');
      await restart(guest);
    },
    undo: async (guest) => {
      await guest.must('chmod', '0755', '/opt/vgpu');
      await restart(guest);
    },
    check: 'preload-readable',
    evidence: [
      /the user "ollama" may not read \/opt\/vgpu\/current\/libcuda\.so\.1: \/opt\/vgpu is closed to it/,
    ],
    command: /^sudo chmod a\+rX \/opt\/vgpu && sudo systemctl restart ollama\.service$/,
    fix: false,
  },
  {
    name: 'a program with file capabilities, whose preload is ignored',
    standIn: true,
    kind: 'warning',
    break: async (guest) => {
      await guest.must('setcap', 'cap_net_bind_service=ep', '/usr/local/bin/ollama');
      await restart(guest);
    },
    undo: async (guest) => {
      await guest.must('setcap', '-r', '/usr/local/bin/ollama');
      await restart(guest);
    },
    check: 'secure-execution',
    evidence: [
      /process \d+ \(ollama\): AT_SECURE=1 in \/proc\/\d+\/auxv/,
      /\/usr\/local\/bin\/ollama has file capabilities: cap_net_bind_service.ep/,
    ],
    command: /^sudo setcap -r \/usr\/local\/bin\/ollama && sudo systemctl restart ollama\.service$/,
    fix: false,
  },
  {
    // The fake driver answers: had RTLD_DEEPBIND led there, the verdict would not be GPU and this would be red.
    name: 'a library that asks with RTLD_DEEPBIND beside another driver, and the preload that still answers',
    standIn: true,
    kind: 'warning',
    break: async (guest) => {
      await sh(guest, deepBinding);
      await restart(guest);
      const asked = await until('the library has asked', 60_000, async () =>
        (await guest.exists('/tmp/deepbind')) ? guest.read('/tmp/deepbind') : undefined,
      );
      assert.match(asked, /^(?:\/opt\/vgpu\/\S+\/libcuda\.so\.1\n)+$/);
    },
    undo: (guest) =>
      sh(
        guest,
        `rm ${own}/libcuda.so.1
         for d in ${own}/cuda_v1*; do mv $d/libggml-cuda-real.so $d/libggml-cuda.so; done
         ${start}`,
      ),
    check: 'foreign-library',
    evidence: [/\/usr\/local\/lib\/ollama\/libcuda\.so\.1 is from neither vgpu-agent nor NVIDIA/],
    command: /^sudo mv \/usr\/local\/lib\/ollama\/libcuda\.so\.1 /,
    fix: false,
  },
  {
    name: 'an upgrade that lost libggml-cuda',
    standIn: true,
    break: (guest) => sh(guest, `mkdir /root/lost; mv /usr/local/lib/ollama/cuda_v1* /root/lost/; ${start}`),
    undo: (guest) => sh(guest, `mv /root/lost/* /usr/local/lib/ollama/; rmdir /root/lost; ${start}`),
    check: 'backend-library',
    evidence: [/libggml-cuda\.so: not in \/usr\/local\/lib\/ollama/],
    command: /install\.sh/,
    fix: false,
  },
  {
    name: 'libraries of the service that name a driver by its path',
    standIn: true,
    break: (guest) =>
      sh(
        guest,
        `mkdir /root/linked; gcc -shared -nostdlib -x c /dev/null -o /root/linked/libcuda.so.535
         for d in cuda_v12 cuda_v13; do
           mv /usr/local/lib/ollama/$d/libggml-cuda.so /root/linked/$d
           gcc -shared -nostdlib -Wl,--no-as-needed -x c /dev/null -x none /root/linked/libcuda.so.535 -o /usr/local/lib/ollama/$d/libggml-cuda.so
         done
         ${start}`,
      ),
    undo: (guest) =>
      sh(
        guest,
        `for d in cuda_v12 cuda_v13; do mv /root/linked/$d /usr/local/lib/ollama/$d/libggml-cuda.so; done
         rm -r /root/linked; ${start}`,
      ),
    check: 'direct-linking',
    evidence: [/libggml-cuda\.so: DT_NEEDED \/root\/linked\/libcuda\.so\.535/],
    command: editIt,
    fix: false,
  },
  {
    name: 'an uninstall that was killed half way',
    break: (guest) => killedAt(guest, 4, 'uninstall', '--yes'),
    undo: (guest) => guest.must('vgpu-agent', 'doctor', '--fix', '--yes'),
    check: 'interrupted',
    evidence: [/transaction\.jsonl exists/],
    command: fixIt,
    fix: true,
  },
]);
