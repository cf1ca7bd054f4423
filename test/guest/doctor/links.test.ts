// The doctor on what lies on the disk: links, other drivers, the store. One guest, broken in turn.

import { join } from 'node:path';
import { packageGroup } from '../states/state.js';
import { type Breakage, breakages } from '../support/doctor.js';
import type { Guest } from '../support/guest.js';
import { publicLink } from '../support/service.js';

const right = '/opt/vgpu/current/libcuda.so.1';
const own = '/usr/local/lib/ollama/libcuda.so.1';
const fixIt = /^sudo vgpu-agent doctor --fix --profile ollama$/;
const nvidia = packageGroup('driver-550');

const sh = (guest: Guest, script: string): Promise<string> => guest.must('bash', '-c', script);
const setLink = (guest: Guest): Promise<string> => guest.must('ln', '-sfn', right, publicLink);
const repair = (guest: Guest): Promise<string> => guest.must('vgpu-agent', 'doctor', '--fix', '--yes');

/** A library built on the spot in the place of the public link. */
function builtThere(name: string, flags: string, check: string, evidence: RegExp): Breakage {
  return {
    name,
    break: (guest) =>
      sh(guest, `rm ${publicLink}; gcc -shared -nostdlib ${flags} -x c /dev/null -o ${publicLink}`),
    undo: async (guest) => {
      await guest.must('rm', '-f', publicLink);
      await setLink(guest);
    },
    check,
    evidence: [evidence],
    command: fixIt,
    fix: true,
  };
}

breakages('the doctor on links, other drivers and the store', [
  {
    name: 'a public link that dangles',
    break: (guest) => guest.must('ln', '-sfn', '/nonexistent', publicLink),
    undo: setLink,
    check: 'public-links',
    evidence: [/libcuda\.so\.1: it points to \/nonexistent, and \/nonexistent does not exist/],
    command: fixIt,
    fix: true,
  },
  builtThere(
    'a 32-bit library in the place of the public link',
    '-m32 -Wl,-soname,libcuda.so.1',
    'library-format',
    /libcuda\.so\.1 is for 32-bit i386; this machine loads 64-bit x86_64 \(wrong ELF class\)/,
  ),
  {
    name: 'NVIDIA’s driver, without a GPU, where a public link was',
    skip: nvidia.skip,
    break: (guest) =>
      sh(
        guest,
        `rm ${publicLink}; cp $(find ${join(nvidia.root, 'usr')} -name 'libcuda.so.5*' | head -1) ${publicLink}`,
      ),
    undo: async (guest) => {
      await guest.must('rm', '-f', publicLink);
      await setLink(guest);
    },
    check: 'foreign-library',
    evidence: [/libcuda\.so\.1 is NVIDIA's library, which finds no GPU in this machine/],
    command: fixIt,
    fix: true,
  },
  {
    name: 'a driver in the service’s own directory, which the preload still beats',
    standIn: true,
    kind: 'warning',
    break: (guest) => sh(guest, `gcc -shared -nostdlib -Wl,-soname,libcuda.so.1 -x c /dev/null -o ${own}`),
    undo: (guest) => guest.must('rm', own),
    check: 'foreign-library',
    cause: /own directories are searched first/,
    evidence: [/\/usr\/local\/lib\/ollama\/libcuda\.so\.1 is from neither vgpu-agent nor NVIDIA/],
    command:
      /^sudo mv \/usr\/local\/lib\/ollama\/libcuda\.so\.1 \S+\.away && sudo systemctl restart ollama\.service$/,
    fix: false,
  },
  {
    name: 'a file of the store that was cut short',
    break: (guest) => guest.must('truncate', '-s', '100', right),
    undo: repair,
    check: 'store',
    evidence: [/libcuda\.so\.1 has 100 bytes, \d+ were installed/],
    command: fixIt,
    fix: true,
  },
  {
    name: 'a file of the store with one byte changed',
    break: (guest) =>
      sh(
        guest,
        'printf changed | dd of=/opt/vgpu/current/libnvidia-ml.so.1 bs=1 seek=9000 conv=notrunc status=none',
      ),
    undo: repair,
    check: 'store',
    evidence: [/libnvidia-ml\.so\.1 has other bytes than were installed/],
    command: fixIt,
    fix: true,
  },
]);
