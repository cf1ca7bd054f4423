/** The rings alone, both ends in one process: with sanitizers that see what tests of two processes cannot. */
import assert from 'node:assert/strict';
import { availableParallelism } from 'node:os';
import { describe, it } from 'node:test';
import { buildProgram, runProgram } from '../cuda/private_programs.js';

const SOURCES = ['device_copy', 'doorbell', 'owned_socket', 'ring', 'shared', 'stream'].map(
  (name) => `shim-src/wire/${name}.c`,
);
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

describe('a worker that waits awake for its guest', () => {
  const build = () =>
    buildProgram({
      name: 'ring_apart',
      sources: ['test/shim/programs/ring_apart.c', 'shim-src/host/session/processor.c', ...SOURCES],
    });
  const run = async (what: string): Promise<string> => {
    const ended = await runProgram(await build(), [what]);
    assert.equal(ended.code, 0, `${ended.stdout}${ended.stderr}`);
    return ended.stdout;
  };

  it('leaves the processor of the guest, stays on any other one, and may use the same ones afterwards', async (t) => {
    if (availableParallelism() < 2) return t.skip('this test may use one processor only');
    assert.equal(await run('thread'), 'moved yes\nkept yes\nmask the same\nwith one processor false\n');
  });

  it('does so after eight waits or a few more that slept, with the number in the ring, until it cannot be moved', async (t) => {
    if (availableParallelism() < 2) return t.skip('with one processor no thread waits awake');
    const [first = '', ...others] = (await run('ring')).trim().split('\n');
    const waits = Number(/^before the first: (\d+) waits that slept$/.exec(first)?.[1]);
    // Each turn in which another program ran on this processor adds a rest of two waits or more.
    assert.ok(waits >= 8 && waits <= 30, first);
    assert.deepEqual(others, ['calls 2 with 4711', 'own processor published']);
  });
});

describe('an end of a ring that waits awake', () => {
  it('does so for longer across a VM, where a bell is expensive and a pause is no other thread', async (t) => {
    if (availableParallelism() < 2) return t.skip('with one processor no thread waits awake');
    const program = await buildProgram({
      name: 'ring_patience',
      sources: ['test/shim/programs/ring_patience.c', ...SOURCES],
    });
    const ended = await runProgram(program, []);
    assert.deepEqual(
      [ended.code, ...ended.stdout.trim().split('\n')],
      [
        0,
        'beside each other: 60 us at first, 3 after waits that slept, 60 at most; 100 us are another thread',
        'host of a VM: 1000 us at first, 62 after waits that slept, 1000 at most; 100 us are nothing',
        'in a VM: 1000 us at first, 62 after waits that slept, 1000 at most; 100 us are nothing',
      ],
    );
  });
});
