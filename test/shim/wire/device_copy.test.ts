/** Copies to and from the memory that a VM has of its host. */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import { buildProgram, runProgram } from '../cuda/private_programs.js';

it('copies of every length and alignment bring their bytes and change no others', async () => {
  const program = await buildProgram({
    name: 'device_copy',
    sources: ['test/shim/programs/device_copy.c'],
  });
  const ended = await runProgram(program, []);
  assert.deepEqual([ended.code, ended.stderr], [0, '']);
});
