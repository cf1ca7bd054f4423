// Programs of newer CUDA, built here by nvcc: conditional nodes of graphs, variables that the program and its
// kernels use by name, memory on the stack, tiles of several warps.

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

async function reasonToSkip(): Promise<string | false> {
  if (VARIANT !== 'shim') return 'a program that is not sanitized cannot load a sanitized library';
  return run('nvcc', ['--version']).then(
    () => false,
    () => 'no nvcc here: graph_nodes.test.ts has conditional nodes by the driver API',
  );
}

/**
 * The programs to build. They contain PTX only, because a software device runs no code that is compiled for one GPU.
 */
const PROGRAMS = {
  conditional: ['conditional_graphs.cu', '-rdc=true', '-lcudadevrt'],
  managed: ['managed_variables.cu'],
  'managed-late': ['managed_variables.cu', '-DKERNEL_FIRST'],
  stack: ['stack_memory.cu'],
  tiles: ['block_tiles.cu', '-std=c++17', '-gencode', 'arch=compute_80,code=compute_80'],
} as const;

describe('programs built by nvcc', { skip: await reasonToSkip() }, () => {
  const scratch = scratchDirectory();
  const built = (name: keyof typeof PROGRAMS): string => path.join(scratch.path, name);
  const hosts = new Map<string, Host>();
  const host = (way: string): Host => {
    const found = hosts.get(way);
    assert.ok(found);
    return found;
  };

  before(async () => {
    for (const [name, [source, ...more]] of Object.entries(PROGRAMS)) {
      await run(
        'nvcc',
        [
          ...['-gencode', 'arch=compute_75,code=compute_75', '-cudart', 'shared', ...more],
          ...['-o', path.join(scratch.path, name), path.join(ROOT, 'test/shim/programs', source)],
        ],
        { maxBuffer: 1 << 24 },
      );
    }
    hosts.set('unix', await startHost({ listen: `unix:${scratch.path}/rings` }));
    hosts.set('tcp', await startHost({ listen: `tcp:127.0.0.1:${PORT}` }));
    hosts.set('chain', await startChain(scratch.path));
  });
  after(async () => {
    for (const each of hosts.values()) await each.stop();
    scratch.remove();
  });

  const start = (name: keyof typeof PROGRAMS, way: string, more: Record<string, string> = {}) =>
    runProgram(built(name), [], {
      env: {
        VGPU_HOST: host(way).address,
        LD_LIBRARY_PATH: [SHIM, process.env['LD_LIBRARY_PATH'] ?? ''].join(':'),
        ...more,
      },
      limit: 120_000,
    });

  const ways = {
    'over rings': ['unix', {}],
    'over a socket': ['unix', { VGPU_TRANSPORT: 'socket' }],
    'over TCP': ['tcp', {}],
    'with --device cuda over our own library': ['chain', {}],
  } as const;
  for (const [words, [way, more]] of Object.entries(ways)) {
    it(`let kernels decide what of a graph is done, and how often, ${words}`, async () => {
      const ended = await start('conditional', way, more);
      assert.deepEqual([ended.stdout, ended.code], ['right\n', 0], ended.stderr);
    });
  }

  it('take memory on the stack, as much as its limit says', async () => {
    const ended = await start('stack', 'unix');
    assert.deepEqual([ended.stdout, ended.code], ['right\n', 0], ended.stderr);
    await host('unix').logged(/kernel _Z5largePii: stack overflow: .*alloca of more than the stack has/);
  });

  it('have tiles of several warps, whose data are not where the shared variables are', async () => {
    const ended = await start('tiles', 'unix');
    assert.deepEqual([ended.stdout, ended.code], ['right\n', 0], ended.stderr);
  });

  for (const name of ['managed', 'managed-late'] as const) {
    const when = name === 'managed' ? 'first' : 'after a kernel';
    it(`share __managed__ variables with their kernels over rings, used by the program ${when}`, async () => {
      const ended = await start(name, 'unix');
      assert.deepEqual([ended.stdout, ended.code], ['right\n', 0], ended.stderr);
    });
  }
});
