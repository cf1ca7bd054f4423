// A program as a CUDA programmer writes one, built here by nvcc with NVIDIA's runtime linked in or shared, over
// every way there is to a host and without one: what it prints and how it ends is the same.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { promisify } from 'node:util';
import { type Host, SHIM, scratchDirectory, startChain, startHost, VARIANT } from '../shim_host.js';
import { freePort } from '../support/free_port.js';
import { ROOT, runProgram } from './private_programs.js';

const run = promisify(execFile);
const PORT = await freePort();
const MODULES = [0, 1, 2, 3];

async function reasonToSkip(): Promise<string | false> {
  if (VARIANT !== 'shim') return 'a program that is not sanitized cannot load a sanitized library';
  return run('nvcc', ['--version']).then(
    () => false,
    () => 'no nvcc here: the kernels of test/shim/kernels go through the driver API instead',
  );
}

const skip = await reasonToSkip();

/** `mapped`: both ends see the same memory, which only rings give. */
const expected = (mapped: boolean): string =>
  [
    `NVIDIA H100 80GB HBM3 (simulated) 9.0, host memory can${mapped ? '' : 'not'} be mapped`,
    'properties ok',
    'parameters ok',
    'streams ok',
    'graphs ok',
    'pools ok',
    'pinned ok',
    'boxes ok',
    'globals ok',
    'modules ok',
    'threads ok',
    'occupancy ok',
    'errors ok',
    '',
  ].join('\n');

describe('a program of four modules built by nvcc', { skip }, () => {
  const scratch = scratchDirectory();
  const program = (linking: 'static' | 'shared'): string => path.join(scratch.path, linking);

  before(async () => {
    const source = path.join(ROOT, 'test/shim/programs/runtime_tour.cu');
    const objects = MODULES.map((number) => path.join(scratch.path, `${number}.o`));
    for (const [number, object] of objects.entries()) {
      // PTX only, because a software device does not run code for a real GPU.
      const code = ['-gencode', 'arch=compute_75,code=compute_75'];
      await run('nvcc', [...code, `-DTOUR_MODULE=${number}`, '-c', '-o', object, source], {
        maxBuffer: 1 << 24,
      });
    }
    for (const linking of ['static', 'shared'] as const) {
      await run('nvcc', ['-cudart', linking, '-o', program(linking), ...objects], { maxBuffer: 1 << 24 });
    }
  });
  after(() => scratch.remove());

  // The reference for the transports: the same library with the software device inside.
  it('finds all right without any transport', async () => {
    const ended = await runProgram(program('shared'), [], {
      env: {
        VGPU_INPROCESS_PROFILE: path.join(ROOT, 'profiles/devices/h100-80gb.json'),
        LD_LIBRARY_PATH: [path.join(SHIM, 'programs/inprocess'), process.env['LD_LIBRARY_PATH'] ?? ''].join(
          ':',
        ),
      },
      limit: 120_000,
    });
    assert.equal(ended.stdout, expected(false), ended.stderr);
    assert.equal(ended.code, 0);
  });

  const ways = {
    'the rings': { env: {}, start: () => startHost({ listen: `unix:${scratch.path}/s` }) },
    'a unix socket': {
      env: { VGPU_TRANSPORT: 'socket' },
      start: () => startHost({ listen: `unix:${scratch.path}/s` }),
    },
    tcp: { env: {}, start: () => startHost({ listen: `tcp:127.0.0.1:${PORT}` }) },
    'a host with --device cuda': { env: {}, start: () => startChain(scratch.path) },
  } as const;
  for (const [way, { env, start }] of Object.entries(ways)) {
    describe(`over ${way}`, () => {
      let host: Host;
      before(async () => {
        host = await start();
      });
      after(async () => {
        await host.stop();
      });

      for (const linking of ['static', 'shared'] as const) {
        it(`finds all right, its runtime ${linking}`, async () => {
          const ended = await runProgram(program(linking), [], {
            env: {
              ...env,
              VGPU_HOST: host.address,
              LD_LIBRARY_PATH: [SHIM, process.env['LD_LIBRARY_PATH'] ?? ''].join(':'),
            },
            limit: 120_000,
          });
          assert.equal(ended.stdout, expected(way === 'the rings'), ended.stderr);
          assert.equal(ended.code, 0);
          assert.equal(ended.stderr, '');
        });
      }
    });
  }
});
