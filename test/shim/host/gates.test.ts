/**
 * Streams that wait for host functions of the program, on a device whose streams share one hardware channel and whose
 * driver waits for the device when memory is freed. The driver is the stand-in (programs/stand_in_driver.c).
 */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { runProgram } from '../cuda/private_programs.js';
import { builtFile, type Host, SHIM, scratchDirectory } from '../shim_host.js';
import { startStandIn } from './stand_in.js';

const cases = [
  ['gate_calls', 'frees', 'and memory is freed beside sixteen of them'],
  ['gate_calls', 'maps', 'and memory is mapped where other memory was unmapped'],
  ['gate_calls', 'launches', 'and more kernels are launched than the queue of a channel holds'],
  ['gate_calls', 'contexts', 'and another thread begins a context that waits for freed memory'],
  ['gate_calls', 'graphs', 'and a graph is destroyed whose launch is behind one of them'],
  ['gate_calls', 'conditions', 'and a graph with conditional nodes is changed, destroyed and created again'],
  ['gate_calls', 'limits', 'and the stack limit of the device is changed'],
  ['gate_calls', 'first_uses', 'and code is loaded at its first use'],
  ['gate_calls', 'allocates', 'and memory is allocated when little is left'],
  ['gate_calls', 'many_allocate', 'and twenty threads allocate memory'],
  ['gate_calls', 'ends', 'and a context ends in which a thread allocates memory'],
  ['gate_calls', 'local_memory', 'and a kernel needs more local memory than those before'],
  ['gate_calls', 'always_held', 'and such a kernel is launched beside one function after another'],
  ['gate_calls', 'deep_graph', 'and a graph has such a kernel'],
  [
    'gate_calls',
    'limit_again',
    'and such a kernel is launched after the program has set the stack limit back',
  ],
  [
    'gate_calls',
    'instantiated',
    'and a graph is instantiated until another thread has launched an earlier one',
  ],
  ['gate_calls', 'reads', 'and memory and an array are read'],
  ['host_functions', 'queues_behind', 'and work is queued behind the function'],
  ['host_functions', 'many_in_a_row', 'and thousands of functions run in their order'],
] as const;

describe('streams that wait for host functions on hardware', () => {
  const scratch = scratchDirectory();
  let host: Host;
  before(async () => {
    host = await startStandIn('hardware', { listen: `unix:${scratch.path}/s` });
  });
  after(async () => {
    await host.stop();
    scratch.remove();
  });

  for (const [program, name, sentence] of cases) {
    it(`go on, ${sentence}`, async () => {
      const ended = await runProgram(builtFile(`programs/${program}`), [name], {
        env: { VGPU_HOST: host.address, LD_LIBRARY_PATH: SHIM },
        limit: 20_000,
      });
      assert.equal(ended.code, 0, ended.stdout + ended.stderr);
    });
  }
});
