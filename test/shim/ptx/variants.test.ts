/** The arithmetic is compiled for several processors: all that run here give the same. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { describe, it } from 'node:test';
import { builtFile } from '../shim_host.js';

describe('loads, stores and textures of a warp', () => {
  it('are the same for each processor that they are compiled for', () => {
    const run = spawnSync(builtFile('programs/ptx_variants'), [], { encoding: 'utf8' });
    assert.deepEqual([run.status, run.stderr], [0, ''], run.stdout);
    const lines = run.stdout.trim().split('\n');
    assert.match(lines[0] ?? '', /^base: /);
    for (const line of lines) assert.match(line, /^(?:base|v3|v4): 20000 rounds, most within bounds$/);
  });
});

describe('products of matrices', () => {
  it('are those of the plain loop, bit by bit, for each processor that they are compiled for', () => {
    const run = spawnSync(builtFile('programs/ptx_products'), [], { encoding: 'utf8' });
    assert.deepEqual([run.status, run.stderr], [0, ''], run.stdout);
    const lines = run.stdout.trim().split('\n');
    assert.match(lines[0] ?? '', /^base: /);
    for (const line of lines) assert.match(line, /^(?:base|v3|v4): 3000 products, most elements finite$/);
  });
});

describe('floats of 16 and 32 bits', () => {
  it('are the same, bit by bit, for each processor that their arithmetic is compiled for', () => {
    const run = spawnSync(builtFile('programs/ptx_arithmetic'), [], { encoding: 'utf8' });
    assert.deepEqual([run.status, run.stderr], [0, ''], run.stdout);
    const lines = run.stdout.trim().split('\n');
    assert.match(lines[0] ?? '', /^base: /);
    for (const line of lines) assert.match(line, /^(?:base: 100|(?:v3|v4): 4000) rounds$/);
  });
});
