/** Kernels that launch kernels, as nvcc compiles them (test/shim/kernels/launches.cu), through the shim. */
import assert from 'node:assert/strict';
import path from 'node:path';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { askAll, type Host, type Shell, scratchDirectory, startHost, startShell } from '../shim_host.js';
import { ROOT } from './private_programs.js';

const ILLEGAL_ADDRESS = 700;

describe('launches from kernels', () => {
  const scratch = scratchDirectory();
  let host: Host;
  let shell: Shell;
  before(async () => {
    host = await startHost({ listen: `unix:${scratch.path}/s` });
  });
  after(async () => {
    await host.stop();
    scratch.remove();
  });
  beforeEach(() => {
    shell = startShell({ VGPU_HOST: host.address }, 'code_shell');
  });
  afterEach(() => shell.kill());

  const load = (target: number): Promise<unknown> =>
    askAll(shell, [
      'begin',
      `load 0 ${path.join(ROOT, 'test/shim/kernels/ptx', `launches.compute_${target}.ptx`)}`,
    ]);
  const launch = (name: string, blocks = 1, threads = 1, parameters = '-'): Promise<unknown> =>
    askAll(shell, [
      `function 1 0 ${name}`,
      `launch 1 ${blocks} 1 1 ${threads} 1 1 0 ${parameters === '-' ? '' : parameters}`,
      'sync',
    ]);
  /** The numbers of a variable, up to 16 of 32 bits. */
  const numbers = async (name: string): Promise<number[]> => {
    const bytes = Buffer.from((await askAll(shell, [`global 0 ${name}`])).values[1] ?? '', 'hex');
    return Array.from({ length: bytes.length / 4 }, (_, i) => bytes.readInt32LE(4 * i));
  };

  for (const target of [75, 90]) {
    it(`come in the order of their streams, children before what follows, tails last (${target})`, async () => {
      await load(target);
      await launch('in_order');
      assert.deepEqual(
        (await numbers('order')).slice(0, 13),
        [7, 1, 2, 21, 211, 212, 22, 221, 222, 3, 4, 9, 0],
      );
    });

    it(`bring parameters, grid, block and shared memory (${target})`, async () => {
      await load(target);
      await launch('parameters', 3, 40);
      let sum = 0;
      for (let thread = 1; thread < 40; thread += 2) {
        // blocks: x 0 and 1, y 0 to 2; each thread reads what another one of its block wrote
        for (let x = 0; x < 2; x++)
          for (let y = 0; y < 3; y++)
            for (let other = 0; other < 32; other++) sum += -3 + 1000 + thread + 5 + 2 + other + x + 10 * y;
      }
      assert.deepEqual(await numbers('sum'), [3 * sum]);
    });
  }

  it('may follow each other thousands of times', async () => {
    await load(90);
    await launch('chain', 1, 1, Buffer.from(Int32Array.of(5000).buffer).toString('hex'));
    assert.deepEqual(await numbers('sum'), [5001]);
  });

  it('are ordered with copies and fills, and may allocate', async () => {
    await load(90);
    await launch('copies');
    assert.deepEqual(await numbers('values'), [5, 6, 7, 8, 0x01010101, 0x01010101, 7, 8]);
    assert.deepEqual(await numbers('sum'), [1000 + 5 + 6 + 7 + 8 + 2 * 0x01010101 + 7 + 8]);
  });

  for (const target of [75, 90]) {
    it(`may copy and fill rows and slices (${target})`, async () => {
      await load(target);
      await launch('rows');
      const [ones, twos, pitch, value] = [0x01010101, 0x02020202, 12, 1];
      assert.deepEqual(await numbers('square'), [
        ...[ones, ones, 0, 0],
        ...[ones, ones, 0, 0],
        ...[0, 0, 1, 2],
        ...[0, 0, 5, 6],
      ]);
      assert.deepEqual(await numbers('cube'), [
        ...[twos, 0, twos, 0, 1, 2, 3, 4],
        ...[twos, 0, twos, 0, 5, 6, 7, 8],
      ]);
      assert.deepEqual((await numbers('order')).slice(0, 4), [0, pitch, pitch, value]);
    });

    it(`may come from a kernel that asks about its device (${target})`, async () => {
      await load(target);
      await launch('asks');
      const [none, unknown, notSupported] = [101, 1, 801];
      assert.deepEqual((await numbers('order')).slice(0, 11), [
        ...[0, 1, 132, 32, 13000, 8, 0],
        ...[none, unknown, notSupported, notSupported],
      ]);
    });
  }

  it('that cannot be carried out give an error to the calling thread, and stop no other thread', async () => {
    await load(90);
    await launch('errors');
    const words = 'invalid configuration argument';
    assert.deepEqual((await numbers('order')).slice(0, 6), [9, 9, 0, words.length, 9, 6]);
  });

  it('that fail are the failure of what was launched from outside', async () => {
    await load(90);
    await askAll(shell, ['function 1 0 child_fails', 'launch 1 1 1 1 1 1 1 0']);
    assert.equal((await shell.ask('sync')).result, ILLEGAL_ADDRESS);
    await host.logged(/kernel writes_nowhere: illegal address/);
  });
});
