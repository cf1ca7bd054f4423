// The oldest C library that what comes into guests runs with, whichever system it is built on (shim-src/glibc_floor.h).

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, rmSync } from 'node:fs';
import path from 'node:path';
import { describe, it } from 'node:test';
import { ROOT } from '../cuda/private_programs.js';
import { builtFile, VARIANT } from '../shim_host.js';
import { aboveFloor, floors } from '../support/glibc_floor.js';

const skip = VARIANT === 'shim' ? false : 'a build with sanitizers runs where it was built';

describe('the floor of glibc', { skip }, () => {
  for (const [file, floor] of Object.entries(floors)) {
    it(`of ${file} is 2.${floor}`, { skip: existsSync(builtFile(file)) ? false : 'not built here' }, () => {
      assert.deepEqual(aboveFloor(builtFile(file), floor), []);
    });
  }

  const old = path.join(ROOT, '.cache/test-roots/bullseye');
  const cannot = !existsSync(`${old}.made`)
    ? 'scripts/test-roots bullseye was not run'
    : process.getuid?.() !== 0 && 'chroot needs root';

  it('lets a program of Debian 11, glibc 2.31, start with the libraries preloaded', { skip: cannot }, () => {
    const scratch = mkdtempSync(path.join(old, 'tmp/vgpu-floor-'));
    try {
      for (const file of ['libcuda.so.1', 'libnvidia-ml.so.1', 'libvgpu-trace.so']) {
        if (!existsSync(builtFile(file))) continue;
        cpSync(builtFile(file), path.join(scratch, file));
        const library = `/${path.relative(old, path.join(scratch, file))}`;
        // ld.so complains on standard error of what it cannot preload, and goes on.
        const preloading = ['/usr/bin/env', `LD_PRELOAD=${library}`, '/usr/bin/sha256sum', '/bin/true'];
        const loaded = spawnSync('chroot', [old, ...preloading], { encoding: 'utf8' });
        assert.deepEqual([loaded.status, loaded.stderr], [0, ''], file);
      }
    } finally {
      rmSync(scratch, { recursive: true, force: true });
    }
  });
});
