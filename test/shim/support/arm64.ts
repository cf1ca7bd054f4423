/** Programs for arm64 (scripts/build-shim --arm64) run under qemu-user on another processor. */

import { existsSync } from 'node:fs';
import path from 'node:path';
import { ROOT } from '../cuda/private_programs.js';

export const ARM64 = path.join(ROOT, 'build/shim-arm64');
/** Debian's libraries for arm64. */
const libraries = path.join(ROOT, '.cache/roots/libraries-arm64');
const emulator = path.join(ROOT, '.cache/roots/qemu-user/usr/bin/qemu-aarch64-static');

/** Why nothing of arm64 is tested, or false; for the `skip` option of a test. */
export function whyNoArm64(): string | false {
  if (process.arch !== 'x64') return 'the emulator is for x86-64';
  for (const group of ['libraries-arm64', 'qemu-user']) {
    if (!existsSync(path.join(ROOT, '.cache/roots', group, '.complete')))
      return `scripts/fetch-packages ${group} was not run`;
  }
  return existsSync(path.join(ARM64, 'vgpu-hostd')) ? false : 'scripts/build-shim --arm64 was not run';
}

/** A command line that runs a program for arm64, to follow with its arguments. */
export function emulated(program: string): readonly [string, ...string[]] {
  return [emulator, '-L', libraries, program];
}

/** The environment in which the workers of vgpu-hostd are emulated, too (programs/qemu_exec.c). */
export function emulatedDaemon(): Readonly<Record<string, string>> {
  return {
    QEMU_SET_ENV: `LD_PRELOAD=${path.join(ARM64, 'programs/qemu_exec.so')}`,
    VGPU_QEMU: emulator,
    VGPU_QEMU_ROOT: libraries,
    VGPU_QEMU_PROGRAM: path.join(ARM64, 'vgpu-hostd'),
  };
}
