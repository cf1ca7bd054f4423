/**
 * A real LLM with no GPU: llama.cpp's prebuilt CUDA library on the software device, kernels run, generates token
 * for token what llama.cpp's own CPU backend generates. The model is a toy (support/tiny_weights.ts), made so
 * that the chosen token is far ahead of the next and that what follows a prompt is known: the two backends round
 * differently, and with random weights the order of two additions would decide. How far, and by how much the
 * backends differ, is printed and bounded.
 *
 * In every run: q4_0 with CUDA graphs. With --large: every kind of weights, without graphs, on other GPUs, and what
 * is refused by name.
 */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { type Host, scratchDirectory, startHost } from '../shim_host.js';
import type { WeightType } from '../support/gguf_blocks.js';
import type { Answer, Order, Result } from '../support/llama-consumer.js';
import { consume, large, repeating, skip, skipLarge, tinyModel } from './llama_process.js';

const TYPES = ['f16', 'q4_0', 'q8_0', 'q4_k'] as const;
/** The one of every run. */
const SAMPLE: WeightType = 'q4_0';
const TOKENS = 8;
const long = process.env['VGPU_TEST_LONG'] === '1';
/** How many tokens a prompt has, and after how many it begins again. */
const SHORT = [16, 7] as const;
const LONG = [200, 67] as const;

/** One token at a time, and a prompt of 200 at once. There is no kernel in PTX for f16 with more than 16. */
function order(type: WeightType, gpu: boolean, most = 16): Order {
  const batch = type === 'f16' ? most : 256;
  return {
    gpu,
    tasks: [
      { prompt: repeating(...SHORT), tokens: TOKENS, batch: 1, flashAttention: true },
      { prompt: repeating(...LONG), tokens: TOKENS, batch, flashAttention: true },
    ],
  };
}

function known([count, period]: readonly [number, number]): number[] {
  return repeating(count + TOKENS, period).slice(count);
}

/** The largest difference of two tokens' logarithms, with what all differ by taken off. */
function difference(one: readonly number[], other: readonly number[]): number {
  const mean = one.reduce((sum, value, i) => sum + value - (other[i] ?? 0), 0) / one.length;
  return Math.max(...one.map((value, i) => Math.abs(value - (other[i] ?? 0) - mean)));
}

describe('the software device with a real LLM', { skip, concurrency: false }, () => {
  const scratch = scratchDirectory();
  const hosts = new Map<string, Host>();
  /** The answers of llama.cpp's CPU backend, by type. */
  const expected = new Map<WeightType, Answer>();

  const hostOf = async (profile: string): Promise<Host> => {
    const there = hosts.get(profile);
    if (there !== undefined) return there;
    const host = await startHost({
      listen: `unix:${scratch.path}/${profile}`,
      args: ['--profile', profile],
    });
    hosts.set(profile, host);
    return host;
  };

  before(async () => {
    // Kernels are refused: what comes out was computed by the CPU backend alone.
    const refusing = await startHost({
      listen: `unix:${scratch.path}/r`,
      args: ['--software-kernels', 'refuse'],
    });
    for (const type of large ? TYPES : [SAMPLE]) {
      const run = await consume(refusing, tinyModel(scratch.path, type), order(type, false), {
        GGML_OP_OFFLOAD_MIN_BATCH: '1000000',
      });
      assert.ok(run.code === 0 && run.answer.ok, run.log.slice(-4000));
      assert.equal(run.answer.gpuLayers, 0);
      expected.set(type, run.answer);
    }
    assert.doesNotMatch(refusing.log(), /refused|executes no kernels/);
    await refusing.stop();
  });
  after(async () => {
    for (const host of hosts.values()) await host.stop();
    scratch.remove();
  });

  const same = async (
    profile: string,
    type: WeightType,
    most: number,
    env: Readonly<Record<string, string>>,
    say: (line: string) => void,
  ): Promise<string> => {
    const host = await hostOf(profile);
    const run = await consume(host, tinyModel(scratch.path, type), order(type, true, most), env);
    assert.ok(run.code === 0 && run.answer.ok, run.log.slice(-4000) + host.log().slice(-2000));
    assert.match(run.log, /offloaded 3\/3 layers to GPU/);
    const cpu = expected.get(type);
    for (const [task, prompt] of [SHORT, LONG].entries()) {
      const ours: Result | undefined = run.answer.results[task];
      const theirs: Result | undefined = cpu?.results[task];
      assert.ok(ours !== undefined && theirs !== undefined);
      assert.deepEqual(ours.tokens, theirs.tokens);
      assert.deepEqual(ours.tokens, known(prompt), 'the model goes on with what it has read');
      const margin = Math.min(...theirs.margins);
      const apart = Math.max(...ours.logarithms.map((row, i) => difference(row, theirs.logarithms[i] ?? [])));
      say(
        `prompt of ${prompt[0]}: least margin ${margin.toFixed(2)}, backends differ by ${apart.toFixed(4)}; ` +
          `prompt ${ours.prefillMs.toFixed(0)} ms (CPU backend ${theirs.prefillMs.toFixed(0)}), ` +
          `token ${ours.tokenMs.toFixed(1)} ms (${theirs.tokenMs.toFixed(1)})`,
      );
      // f16 loses little on the way; quantised, both round activations to 8 bits, and not alike.
      assert.ok(apart < (type === 'f16' ? 0.1 : margin / 2), `${apart} with a margin of ${margin}`);
    }
    return run.log;
  };

  for (const type of TYPES) {
    it(`${type}: generates what the CPU backend does, with CUDA graphs`, {
      skip: type === SAMPLE ? false : skipLarge,
    }, async (t) => {
      const log = await same('h100-80gb', type, 16, {}, (line) => t.diagnostic(line));
      assert.match(log, /CUDA Graph id \d+ reused/);
    });

    it(`${type}: generates what the CPU backend does, without CUDA graphs`, {
      skip: skipLarge,
    }, async (t) => {
      const log = await same('h100-80gb', type, 16, { GGML_CUDA_DISABLE_GRAPHS: '1' }, (line) =>
        t.diagnostic(line),
      );
      assert.doesNotMatch(log, /CUDA Graph id/);
    });
  }

  // Other kernels are chosen for each: without tensor cores (6.1), with those of Turing (7.5) and Ampere. On a P40,
  // f16 has kernels for 8 tokens at a time only, which take half a minute for 200.
  const others: readonly (readonly [string, readonly WeightType[]])[] = [
    ['p40', long ? TYPES : ['q4_0', 'q8_0', 'q4_k']],
    ['t4', long ? TYPES : ['f16', 'q4_k']],
    ['a100-40gb', long ? TYPES : ['q4_0']],
  ];
  for (const [profile, types] of others) {
    for (const type of types) {
      it(`${type}: generates what the CPU backend does on a ${profile}`, { skip: skipLarge }, async (t) => {
        await same(profile, type, profile === 'p40' ? 8 : 16, {}, (line) => t.diagnostic(line));
      });
    }
  }

  const refused = async (type: WeightType, order: Order): Promise<void> => {
    const host = await startHost({ listen: `unix:${scratch.path}/n` });
    try {
      const run = await consume(host, tinyModel(scratch.path, type), order);
      // ggml ends its process itself, with abort(), at any CUDA error.
      assert.equal(run.signal ?? run.code, 'SIGABRT', run.log.slice(-2000));
      assert.match(run.log, /CUDA error: no kernel image is available for execution on the device/);
      await host.logged(/kernel \S*gemm\S* cannot be run here: its module has only machine code/);
    } finally {
      await host.stop();
    }
  };

  it('refuses f16 with more than 16 tokens at a time, by the name of the cuBLAS kernel', {
    skip: skipLarge,
  }, async () => {
    await refused('f16', {
      gpu: true,
      tasks: [{ prompt: repeating(...LONG), tokens: 1, batch: 256, flashAttention: true }],
    });
  });

  it('refuses a prompt without flash attention, by the name of the cuBLAS kernel', {
    skip: skipLarge,
  }, async () => {
    await refused('q8_0', {
      gpu: true,
      tasks: [{ prompt: repeating(...LONG), tokens: 1, batch: 256, flashAttention: false }],
    });
  });
});
