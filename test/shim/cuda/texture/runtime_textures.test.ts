// Textures and surfaces through NVIDIA's runtime, built here by nvcc, over the rings and with --device cuda.

import assert from 'node:assert/strict';
import { execFile, spawnSync } from 'node:child_process';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { promisify } from 'node:util';
import { type Host, SHIM, scratchDirectory, startChain, startHost, VARIANT } from '../../shim_host.js';
import { ROOT, runProgram } from '../private_programs.js';

const EXPECTED = `linear memory ok
images ok
volumes and layers ok
cubes and mipmaps ok
surfaces ok
`;

function reasonToSkip(): string | false {
  if (VARIANT !== 'shim') return 'a program that is not sanitized cannot load a sanitized library';
  return spawnSync('nvcc', ['--version']).status === 0
    ? false
    : 'no nvcc here: the driver API is tried by texture_calls, instructions by ptx/texture';
}

describe('a program with textures built by nvcc', { skip: reasonToSkip() }, () => {
  const scratch = scratchDirectory();
  const program = path.join(scratch.path, 'runtime_textures');
  before(async () => {
    const source = path.join(ROOT, 'test/shim/programs/texture/runtime_textures.cu');
    // PTX only, because a software device does not run code for a real GPU.
    const code = ['-gencode', 'arch=compute_75,code=compute_75'];
    await promisify(execFile)('nvcc', [...code, '-std=c++17', '-o', program, source], { maxBuffer: 1 << 24 });
  });
  after(() => scratch.remove());

  const ways = {
    'the rings': () => startHost({ listen: `unix:${scratch.path}/s` }),
    'a host with --device cuda': () => startChain(scratch.path),
  } as const;
  for (const [way, start] of Object.entries(ways)) {
    describe(`over ${way}`, () => {
      let host: Host;
      before(async () => {
        host = await start();
      });
      after(() => host.stop());

      it('reads and writes what plain C++ does', async () => {
        const ended = await runProgram(program, [], {
          env: {
            VGPU_HOST: host.address,
            LD_LIBRARY_PATH: [SHIM, process.env['LD_LIBRARY_PATH'] ?? ''].join(':'),
          },
          limit: 120_000,
        });
        assert.equal(ended.stdout, EXPECTED, ended.stderr);
        assert.equal(ended.code, 0);
      });
    });
  }
});
