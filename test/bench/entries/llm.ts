// Tokens of a tiny model: llama.cpp's CUDA library through the shim on the simulated GPU, beside llama.cpp's own
// CPU backend, a token at a time on one thread.

import { scratchDirectory } from '../../shim/shim_host.js';
import type { WeightType } from '../../shim/support/gguf_blocks.js';
import type { Result } from '../../shim/support/llama-consumer.js';
import { consume, repeating, skip, tinyModel } from '../../shim/third_party/llama_process.js';
import type { Comparison, Entry } from '../measure.js';

const address = 'unix:/run/vgpu/hostd.sock';
const prompt = repeating(200, 67);
const types: readonly WeightType[] = ['q4_0', 'f16'];

async function once(model: string, type: WeightType, gpu: boolean): Promise<Result> {
  const batch = type === 'f16' ? 16 : 256;
  const order = { gpu, tasks: [{ prompt, tokens: 17, batch, flashAttention: true }] };
  // No matrix goes to the device by itself: what is measured beside it is the processor.
  const run = await consume({ address }, model, order, { GGML_OP_OFFLOAD_MIN_BATCH: '1000000' });
  const result = run.answer.ok ? run.answer.results[0] : undefined;
  if (result === undefined) throw new Error(`llama.cpp ended with ${run.code}: ${run.log.slice(-2000)}`);
  return result;
}

export const llm: Entry = {
  name: 'llm',
  what: 'a tiny model in llama.cpp: its CUDA library on the simulated GPU, its CPU backend beside',
  runs: 3,
  missing: skip,
  measure: async (runs) => {
    const scratch = scratchDirectory();
    try {
      const comparisons: Comparison[] = [];
      for (const type of types) {
        const model = tinyModel(scratch.path, type);
        const [ours, theirs]: [Result[], Result[]] = [[], []];
        for (let round = 0; round <= runs; round++) {
          const pair = [await once(model, type, true), await once(model, type, false)] as const;
          if (round === 0) continue;
          ours.push(pair[0]);
          theirs.push(pair[1]);
        }
        const compare = (title: string, rate: (result: Result) => number): Comparison => ({
          title,
          subject: { name: 'CUDA, simulated', unit: 'tokens/s', samples: ours.map(rate) },
          beside: [{ name: 'CPU backend', unit: 'tokens/s', samples: theirs.map(rate) }],
        });
        comparisons.push(
          compare(`${type}: a prompt of ${prompt.length}, loading of code included`, ({ prefillMs }) => {
            return (prompt.length * 1000) / prefillMs;
          }),
          compare(`${type}: generating`, ({ tokenMs }) => 1000 / tokenMs),
        );
      }
      return comparisons;
    } finally {
      scratch.remove();
    }
  },
};
