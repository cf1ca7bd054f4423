/** A guest and a host of different processors: arm64 under qemu-user on one side, this machine's build on the other. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { chmodSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, it } from 'node:test';
import { promisify } from 'node:util';
import { ROOT } from '../cuda/private_programs.js';
import { builtFile, type Host, SHIM, scratchDirectory, startHost, VARIANT } from '../shim_host.js';
import { ARM64, emulated, emulatedDaemon, whyNoArm64 } from '../support/arm64.js';
import { aboveFloor, floors } from '../support/glibc_floor.js';

const run = promisify(execFile);
const skip = whyNoArm64() || (VARIANT === 'shim' ? false : 'a build with sanitizers is for this processor');

/** The output of programs/ptx_guest when every number is right. */
const computed = [
  'begin 0',
  'load 0',
  'vector_add 0 wrong 0',
  'variables 0 0 bytes 4 counter 5 out 101',
  `allocates 0 last ${(3 * 63 * 64) / 2}`,
  'fault 700 again 700',
  `afterwards 0 0 last ${(300 * 299) / 2 + 299}`,
];

/** vgpu-hostd for arm64; the emulator's own words come before the daemon's. */
function startArm64Host(directory: string): Promise<Host> {
  const program = path.join(directory, 'vgpu-hostd');
  const words = emulated(path.join(ARM64, 'vgpu-hostd')).map((word) => `'${word}'`);
  writeFileSync(program, `#!/bin/sh\nexec ${words.join(' ')} "$@"\n`);
  chmodSync(program, 0o755);
  // qemu-user has no seccomp.
  return startHost({
    listen: `unix:${directory}/s`,
    program,
    args: ['--no-seccomp', ...(process.getuid?.() === 0 ? ['--user', 'root'] : [])],
    env: emulatedDaemon(),
  });
}

/** The lines of programs/ptx_guest, over `transport` (VGPU_TRANSPORT). */
async function linesOfGuest(guest: 'arm64' | 'x86-64', host: Host, transport: string): Promise<string[]> {
  const [file, ...words] =
    guest === 'arm64'
      ? emulated(path.join(ARM64, 'programs/ptx_guest'))
      : ([builtFile('programs/ptx_guest')] as const);
  const library =
    guest === 'arm64' ? { QEMU_SET_ENV: `LD_LIBRARY_PATH=${ARM64}` } : { LD_LIBRARY_PATH: SHIM };
  const { stdout } = await run(file, [...words, path.join(ROOT, 'test/shim/kernels/ptx'), '80'], {
    env: { ...process.env, VGPU_HOST: host.address, VGPU_TRANSPORT: transport, ...library },
    timeout: 120_000,
  });
  return stdout.trim().split('\n');
}

describe('guest and host of different processors', { skip }, () => {
  for (const guest of ['arm64', 'x86-64'] as const) {
    for (const transport of ['socket', 'ring']) {
      it(`a guest of ${guest} computes right on a host of the other, transport ${transport}`, async () => {
        const scratch = scratchDirectory();
        const host = await (guest === 'arm64'
          ? startHost({ listen: `unix:${scratch.path}/s` })
          : startArm64Host(scratch.path));
        try {
          assert.deepEqual(await linesOfGuest(guest, host, transport), computed);
        } finally {
          await host.stop();
          scratch.remove();
        }
      });
    }
  }

  for (const [file, floor] of Object.entries(floors)) {
    if (file === 'libvgpu-trace.so') continue;
    it(`${file} for arm64 needs no glibc after 2.${floor}`, () => {
      assert.deepEqual(aboveFloor(path.join(ARM64, file), floor), []);
    });
  }
});
