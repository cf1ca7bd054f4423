/**
 * A real consumer: node-llama-cpp's own prebuilt llama.cpp with its CUDA library, driven as a program would.
 *
 * node dist/test/shim/support/llama-consumer.js PACKAGES MODEL TOKENS
 *
 * PACKAGES is the node_modules with node-llama-cpp and its binary packages. llama.cpp's log goes to stderr as
 * it comes, because llama.cpp ends the process itself when CUDA fails; then one JSON document goes to stdout:
 * what it found, what it generated, how long a token took. Exit 0, or 1 with the reason in `error`.
 */
import { writeSync } from 'node:fs';
import path from 'node:path';
import { argv, exit, stdout } from 'node:process';
import { pathToFileURL } from 'node:url';

/** What of node-llama-cpp's interface is used here. */
interface Sequence {
  evaluate(tokens: readonly number[], options: { readonly temperature: number }): AsyncIterable<number>;
}
interface Model {
  readonly gpuLayers: number;
  tokenize(text: string): number[];
  detokenize(tokens: readonly number[]): string;
  createContext(options: { readonly contextSize: number; readonly batchSize: number }): Promise<{
    getSequence(): Sequence;
  }>;
}
interface Llama {
  readonly gpu: string | false;
  getGpuDeviceNames(): Promise<string[]>;
  getVramState(): Promise<{ readonly total: number; readonly used: number; readonly free: number }>;
  loadModel(options: { readonly modelPath: string; readonly gpuLayers: 'max' }): Promise<Model>;
}
interface Package {
  getLlama(options: {
    readonly gpu: 'cuda';
    readonly build: 'never';
    readonly skipDownload: true;
    readonly progressLogs: false;
    readonly logLevel: 'debug';
    logger(level: string, message: string): unknown;
  }): Promise<Llama>;
}

const PROMPT = 'one two three four five six seven eight nine ten';

async function consume(packages: string, modelPath: string, count: number) {
  const index = pathToFileURL(path.join(packages, 'node-llama-cpp/dist/index.js')).href;
  const { getLlama }: Package = await import(index);
  const llama = await getLlama({
    gpu: 'cuda',
    build: 'never',
    skipDownload: true,
    progressLogs: false,
    logLevel: 'debug',
    // At once: what is still buffered when the process aborts would be lost.
    logger: (_level, message) => writeSync(2, `${message.trimEnd()}\n`),
  });
  const devices = await llama.getGpuDeviceNames();
  const vram = await llama.getVramState();
  const model = await llama.loadModel({ modelPath, gpuLayers: 'max' });
  const context = await model.createContext({ contextSize: 256, batchSize: 64 });
  const tokens: number[] = [];
  const times: number[] = [];
  let last = performance.now();
  for await (const token of context.getSequence().evaluate(model.tokenize(PROMPT), { temperature: 0 })) {
    tokens.push(token);
    times.push(performance.now() - last);
    last = performance.now();
    if (tokens.length === count) break;
  }
  return {
    gpu: llama.gpu,
    devices,
    vram,
    gpuLayers: model.gpuLayers,
    tokens,
    text: model.detokenize(tokens),
    prefillMs: times[0] ?? 0,
    tokenMs: times.slice(1).sort((a, b) => a - b)[Math.floor((times.length - 1) / 2)] ?? 0,
  };
}

const [packages, model, count] = argv.slice(2);
let answer: object;
try {
  if (packages === undefined || model === undefined) throw new Error('usage: PACKAGES MODEL TOKENS');
  answer = { ok: true, ...(await consume(packages, path.resolve(model), Number(count ?? '8'))) };
} catch (error) {
  answer = { ok: false, error: error instanceof Error ? error.message : String(error) };
}
stdout.write(`${JSON.stringify(answer)}\n`, () => exit('error' in answer ? 1 : 0));
