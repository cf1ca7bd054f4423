// Tokens of a tiny model: llama.cpp's CUDA library through the shim on the simulated GPU, beside llama.cpp's own
// CPU backend, a token at a time on one thread.

import { scratchDirectory, startHost } from '../../shim/shim_host.js';
import type { WeightType } from '../../shim/support/gguf_blocks.js';
import type { Result } from '../../shim/support/llama-consumer.js';
import { consume, repeating, skip, tinyModel } from '../../shim/third_party/llama_process.js';
import type { Comparison, Entry } from '../measure.js';

const address = 'unix:/run/vgpu/hostd.sock';
const prompt = repeating(200, 67);
const types: readonly WeightType[] = ['q4_0', 'f16'];

async function once(model: string, type: WeightType, gpu: boolean, host = address): Promise<Result> {
  const batch = type === 'f16' ? 16 : 256;
  const order = { gpu, tasks: [{ prompt, tokens: 65, batch, flashAttention: true }] };
  // llama.cpp would move large products to the device even without --gpu-layers.
  const run = await consume({ address: host }, model, order, { GGML_OP_OFFLOAD_MIN_BATCH: '1000000' });
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
    const compiling = await startHost({
      listen: `unix:${scratch.path}/compiling.sock`,
      args: ['--software-compile', 'always'],
    });
    try {
      const comparisons: Comparison[] = [];
      for (const type of types) {
        const model = tinyModel(scratch.path, type);
        const [ours, compiled, theirs]: [Result[], Result[], Result[]] = [[], [], []];
        for (let round = 0; round <= runs; round++) {
          const results = [
            await once(model, type, true),
            await once(model, type, true, compiling.address),
            await once(model, type, false),
          ] as const;
          if (round === 0) continue;
          ours.push(results[0]);
          compiled.push(results[1]);
          theirs.push(results[2]);
        }
        const compare = (
          title: string,
          simulated: readonly Result[],
          rate: (result: Result) => number,
        ): Comparison => ({
          title,
          subject: { name: 'CUDA, simulated', unit: 'tokens/s', samples: simulated.map(rate) },
          beside: [{ name: 'CPU backend', unit: 'tokens/s', samples: theirs.map(rate) }],
        });
        const generated = ({ tokenMs }: Result): number => 1000 / tokenMs;
        comparisons.push(
          compare(
            `${type}: a prompt of ${prompt.length}, loading of code included`,
            ours,
            ({ prefillMs }) => {
              return (prompt.length * 1000) / prefillMs;
            },
          ),
          compare(`${type}: generating, a new session`, ours, generated),
          compare(`${type}: generating, all kernels compiled`, compiled, generated),
        );
      }
      return comparisons;
    } finally {
      await compiling.stop();
      scratch.remove();
    }
  },
};
