/** The kernels of llama.cpp's libggml-cuda.so, from the npm package. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import path from 'node:path';
import { describe, it } from 'node:test';
import { ROOT } from '../cuda/private_programs.js';
import { builtFile, VARIANT } from '../shim_host.js';

const EXTRACTED = path.join(
  ROOT,
  '.cache/roots/llama-npm/node_modules/@node-llama-cpp/linux-x64-cuda-ext/bins/linux-x64-cuda/fallback/libggml-cuda.so',
);

describe("llama.cpp's CUDA library", () => {
  it('loads each module for five targets', {
    skip:
      VARIANT === 'shim-thread'
        ? 'one thread: nothing for ThreadSanitizer, and over five minutes of it'
        : !existsSync(EXTRACTED) && 'scripts/fetch-packages llama-npm has not fetched it',
  }, () => {
    const run = spawnSync(builtFile('programs/ptx_library'), [EXTRACTED], {
      encoding: 'utf8',
      timeout: 1_200_000,
      maxBuffer: 1 << 26,
    });
    assert.equal(run.status, 0, run.stdout.slice(0, 3000) + run.stderr);
    assert.match(run.stdout, /715 modules, 0 refused/);
  });
});
