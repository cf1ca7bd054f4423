/** The rings alone, both ends in one process: with sanitizers that see what tests of two processes cannot. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { buildProgram, runProgram } from '../cuda/private_programs.js';

const SOURCES = ['doorbell', 'ring', 'shared', 'stream'].map((name) => `shim-src/wire/${name}.c`);
const LONG = process.env['VGPU_TEST_LONG'] === '1';

describe('two rings between two threads', () => {
  for (const sanitize of ['thread', 'address,undefined'] as const) {
    it(`bring every frame whole and in order (${sanitize} sanitizer)`, async () => {
      const program = await buildProgram({
        name: `ring_threads-${sanitize.split(',')[0]}`,
        sources: ['test/shim/programs/ring_threads.c', ...SOURCES],
        sanitize,
      });
      for (let seed = 1; seed <= (LONG ? 20 : 2); seed++) {
        const frames = LONG ? '5000' : '400';
        const ended = await runProgram(program, [frames, String(seed)], { limit: 240_000 });
        assert.deepEqual([ended.code, ended.stdout, ended.stderr], [0, `${frames} frames\n`, '']);
      }
    });
  }
});
