/**
 * Some of NVIDIA's cuda-samples, where their sources are: VGPU_TEST_CUDA_SAMPLES=DIR, else .cache/cuda-samples. All of
 * them, in a table: npm run samples -- DIR.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import path from 'node:path';
import { after, describe, it } from 'node:test';
import { ROOT } from '../../cuda/private_programs.js';
import { scratchDirectory, VARIANT } from '../../shim_host.js';
import { buildSample } from './build.js';
import { runSample } from './run.js';
import { readSamples } from './sample.js';

const NAMES = [
  'cdpQuadtree',
  'cdpSimpleQuicksort',
  'matrixMulDrv',
  'simpleCudaGraphs',
  'simplePrintf',
  'vectorAddMMAP',
];

const root = process.env['VGPU_TEST_CUDA_SAMPLES'] ?? path.join(ROOT, '.cache/cuda-samples');

function reasonToSkip(): string | false {
  if (VARIANT !== 'shim') return 'a program that is not sanitized cannot load a sanitized library';
  if (spawnSync('nvcc', ['--version']).status !== 0) return 'no nvcc here';
  return existsSync(path.join(root, 'Samples')) ? false : `no cuda-samples in ${root}`;
}

const skip = reasonToSkip();

describe("NVIDIA's cuda-samples", { skip }, () => {
  const scratch = scratchDirectory();
  after(() => scratch.remove());
  for (const sample of skip === false ? readSamples(root).filter(({ name }) => NAMES.includes(name)) : []) {
    it(`${sample.name} passes`, async () => {
      const built = await buildSample(sample, root, scratch.path);
      if (built.kind !== 'built') assert.fail(built.why);
      const { outcome } = await runSample(sample, built.program, 120_000);
      assert.deepEqual(outcome, { kind: 'passed' });
    });
  }
});
