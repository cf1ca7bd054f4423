/**
 * llama.cpp's real CUDA library with NVIDIA's real runtime and cuBLAS, as node-llama-cpp ships and drives
 * them, on the software device. Kernels are skipped, so what it generates is noise; that it gets there is the
 * test: every call between loading a model and the last token was carried and none was refused.
 *
 * In every run: one model with CUDA graphs, and kernels that are refused. With --large: the other kinds of weights,
 * without graphs, and through a host that is itself a consumer (--device cuda).
 */
import assert from 'node:assert/strict';
import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { type Host, scratchDirectory, startChain, startHost, until } from '../shim_host.js';
import type { WeightType } from '../support/gguf_blocks.js';
import type { Order } from '../support/llama-consumer.js';
import { consume, type Run, repeating, skip, skipLarge, tinyModel } from './llama_process.js';

const TOKENS = 6;
const ORDER: Order = {
  gpu: true,
  tasks: [{ prompt: repeating(32, 9), tokens: TOKENS, batch: 64, flashAttention: true }],
};

function generated(run: Run): void {
  assert.equal(run.code, 0, run.log.slice(-4000));
  assert.match(run.log, /ggml_cuda_init: found 1 CUDA devices/);
  assert.match(run.log, /Device 0: NVIDIA H100 80GB HBM3 .*\(simulated\), compute capability 9\.0, VMM: yes/);
  assert.match(run.log, /offloaded 3\/3 layers to GPU/);
  assert.ok(run.answer.ok);
  assert.equal(run.answer.gpuLayers, 3);
  assert.equal(run.answer.results[0]?.tokens.length, TOKENS);
}

describe("llama.cpp with NVIDIA's runtime and cuBLAS", { skip, concurrency: false }, () => {
  const scratch = scratchDirectory();
  let host: Host;
  const model = (type: WeightType): string => tinyModel(scratch.path, type);

  before(async () => {
    host = await startHost({ listen: `unix:${scratch.path}/s`, args: ['--software-kernels', 'skip'] });
  });
  after(async () => {
    await host.stop();
    scratch.remove();
  });

  for (const type of ['f16', 'q4_0', 'q8_0', 'q4_k'] as const) {
    it(`loads a ${type} model, prefills and decodes without graphs`, { skip: skipLarge }, async () => {
      generated(await consume(host, model(type), ORDER, { GGML_CUDA_DISABLE_GRAPHS: '1' }));
    });
  }

  it('decodes with CUDA graphs', async () => {
    const run = await consume(host, model('f16'), ORDER);
    generated(run);
    assert.match(run.log, /CUDA Graph id \d+ reused/);
  });

  it('does the same through a host with --device cuda', { skip: skipLarge }, async () => {
    mkdirSync(path.join(scratch.path, 'c'));
    const chain = await startChain(path.join(scratch.path, 'c'), ['--software-kernels', 'skip']);
    try {
      const run = await consume(chain, model('q8_0'), ORDER);
      generated(run);
      assert.match(run.log, /CUDA Graph id \d+ reused/);
    } finally {
      await chain.stop();
    }
  });

  it('fails with a CUDA error that says why where kernels are not run, and no other session fails', async () => {
    const refusing = await startHost({
      listen: `unix:${scratch.path}/r`,
      args: ['--software-kernels', 'refuse'],
    });
    try {
      const run = await consume(refusing, model('f16'), ORDER);
      // ggml ends its process itself, with abort(), at any CUDA error.
      assert.equal(run.signal ?? run.code, 'SIGABRT', run.log.slice(-2000));
      assert.match(run.log, /CUDA error: /);
      assert.doesNotMatch(run.log, /Segmentation|corrupted|AddressSanitizer/);
      await refusing.logged(/this simulated device executes no kernels/);
      await until('the session to end', () => /session \d+: ended\n$/.test(refusing.log()));
      assert.doesNotMatch(refusing.log(), /killed by signal|violation/);
    } finally {
      await refusing.stop();
    }
  });
});
