/**
 * llama.cpp's real CUDA library with NVIDIA's real runtime and cuBLAS, as node-llama-cpp ships and drives
 * them, on the software device. Kernels are skipped, so what it generates is noise; that it gets there is the
 * test: every call between loading a model and the last token was carried and none was refused.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { ROOT } from './private_programs.js';
import { type Host, SHIM, scratchDirectory, startChain, startHost, until } from './shim_host.js';
import type { WeightType } from './support/gguf_blocks.js';
import { makeGguf } from './support/make-gguf.js';

const ROOTS = path.join(ROOT, '.cache/roots');
const missing = ['cudart-12', 'cublas-12', 'llama-npm'].filter(
  (group) => !existsSync(path.join(ROOTS, group, '.complete')),
);
const skip = missing.length > 0 ? `run scripts/fetch-packages --large (${missing.join(', ')})` : false;
const LIBRARIES = ['cudart-12', 'cublas-12'].map((group) =>
  path.join(ROOTS, group, 'usr/lib/x86_64-linux-gnu'),
);
const TOKENS = 6;

interface Run {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly log: string;
  readonly answer: {
    readonly ok?: boolean;
    readonly devices?: string[];
    readonly gpuLayers?: number;
    readonly tokens?: number[];
  };
}

/** Loads the model, prefills and decodes in a process of its own. */
async function consume(host: Host, model: string, env: Readonly<Record<string, string>> = {}): Promise<Run> {
  const child = spawn(
    process.execPath,
    [
      path.join(ROOT, 'dist/test/shim/support/llama-consumer.js'),
      path.join(ROOTS, 'llama-npm/node_modules'),
      model,
      String(TOKENS),
    ],
    {
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: 120_000,
      env: {
        ...process.env,
        VGPU_HOST: host.address,
        LD_LIBRARY_PATH: [SHIM, ...LIBRARIES].join(':'),
        ...env,
      },
    },
  );
  let out = '';
  let log = '';
  child.stdout.on('data', (chunk: Buffer) => {
    out += chunk.toString();
  });
  child.stderr.on('data', (chunk: Buffer) => {
    log += chunk.toString();
  });
  const [code, signal] = await new Promise<[number | null, NodeJS.Signals | null]>((resolve) =>
    child.once('close', (...ended) => resolve(ended)),
  );
  return { code, signal, log, answer: out === '' ? {} : JSON.parse(out) };
}

function generated(run: Run): void {
  assert.equal(run.code, 0, run.log.slice(-4000));
  assert.match(run.log, /ggml_cuda_init: found 1 CUDA devices/);
  assert.match(run.log, /Device 0: NVIDIA H100 80GB HBM3 .*\(simulated\), compute capability 9\.0, VMM: yes/);
  assert.match(run.log, /offloaded 3\/3 layers to GPU/);
  assert.equal(run.answer.ok, true);
  assert.equal(run.answer.gpuLayers, 3);
  assert.equal(run.answer.tokens?.length, TOKENS);
}

describe("llama.cpp with NVIDIA's runtime and cuBLAS", { skip, concurrency: false }, () => {
  const scratch = scratchDirectory();
  let host: Host;
  const model = (type: WeightType): string => {
    const file = path.join(scratch.path, `${type}.gguf`);
    if (!existsSync(file)) writeFileSync(file, makeGguf({ type, layers: 2, seed: 20_260_101 }));
    return file;
  };

  before(async () => {
    host = await startHost({ listen: `unix:${scratch.path}/s`, args: ['--software-kernels', 'skip'] });
  });
  after(async () => {
    await host.stop();
    scratch.remove();
  });

  for (const type of ['f16', 'q4_0', 'q8_0', 'q4_k'] as const) {
    it(`loads a ${type} model, prefills and decodes without graphs`, async () => {
      generated(await consume(host, model(type), { GGML_CUDA_DISABLE_GRAPHS: '1' }));
    });
  }

  it('decodes with CUDA graphs', async () => {
    const run = await consume(host, model('f16'));
    generated(run);
    assert.match(run.log, /CUDA Graph id \d+ reused/);
  });

  it('does the same through a host with --device cuda', async () => {
    mkdirSync(path.join(scratch.path, 'c'));
    const chain = await startChain(path.join(scratch.path, 'c'), ['--software-kernels', 'skip']);
    try {
      const run = await consume(chain, model('q8_0'));
      generated(run);
      assert.match(run.log, /CUDA Graph id \d+ reused/);
    } finally {
      await chain.stop();
    }
  });

  it('fails with a CUDA error that says why where kernels are not run, and takes nobody along', async () => {
    const refusing = await startHost({
      listen: `unix:${scratch.path}/r`,
      args: ['--software-kernels', 'refuse'],
    });
    try {
      const run = await consume(refusing, model('f16'));
      // ggml ends its process itself, with abort(), at any CUDA error.
      assert.equal(run.signal ?? run.code, 'SIGABRT', run.log.slice(-2000));
      assert.match(run.log, /CUDA error: /);
      assert.doesNotMatch(run.log, /Segmentation|corrupted|AddressSanitizer/);
      assert.match(refusing.log(), /this simulated device executes no kernels/);
      await until('the session to end', () => /session \d+: ended\n$/.test(refusing.log()));
      assert.doesNotMatch(refusing.log(), /killed by signal|violation/);
    } finally {
      await refusing.stop();
    }
  });
});
