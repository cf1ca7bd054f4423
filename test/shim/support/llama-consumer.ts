/**
 * A real consumer: node-llama-cpp's own prebuilt llama.cpp with its CUDA library, driven as a program would.
 *
 * node dist/test/shim/support/llama-consumer.js PACKAGES MODEL ORDER
 *
 * PACKAGES is the node_modules with node-llama-cpp and its binary packages. ORDER is a JSON document (`Order`
 * below). llama.cpp's log goes to stderr as it comes, because llama.cpp ends
 * the process itself when CUDA fails; then one JSON document goes to stdout: what it found, and for each task
 * what it generated, greedily, how far the chosen token was ahead of the next, and how long a token took.
 * Exit 0, or 1 with the reason in `error`.
 */
import { writeSync } from 'node:fs';
import path from 'node:path';
import { argv, exit, stdout } from 'node:process';
import { pathToFileURL } from 'node:url';

/** The part of node-llama-cpp's interface that is used here. */
interface Step {
  readonly token: number;
  /** Of each token of the vocabulary, the likeliest first. */
  readonly probabilities: ReadonlyMap<number, number>;
}
interface Sequence {
  evaluateWithMetadata(
    tokens: readonly number[],
    metadata: { readonly probabilities: true },
    options: { readonly temperature: number },
  ): AsyncIterable<Step>;
}
interface Context {
  getSequence(): Sequence;
  dispose(): Promise<void>;
}
interface Model {
  readonly gpuLayers: number;
  detokenize(tokens: readonly number[]): string;
  createContext(options: {
    readonly contextSize: number;
    readonly batchSize: number;
    readonly threads: number;
    readonly flashAttention: boolean;
  }): Promise<Context>;
}
interface Llama {
  readonly gpu: string | false;
  getGpuDeviceNames(): Promise<string[]>;
  getVramState(): Promise<{ readonly total: number; readonly used: number; readonly free: number }>;
  loadModel(options: { readonly modelPath: string; readonly gpuLayers: 'max' | 0 }): Promise<Model>;
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

/** One prompt and what follows it, in a context of its own. */
export interface Task {
  readonly prompt: readonly number[];
  /** Tokens to generate. */
  readonly tokens: number;
  /** Most tokens given to the model at a time (llama.cpp's batch and ubatch). */
  readonly batch: number;
  readonly flashAttention: boolean;
}

export interface Order {
  /** false: all layers on the processor; the library still finds the device. */
  readonly gpu: boolean;
  readonly tasks: readonly Task[];
}

/** Of a task. */
export interface Result {
  readonly tokens: number[];
  readonly text: string;
  /** For each token, how much its logit is above that of the next likeliest. */
  readonly margins: number[];
  /** For each token, the natural logarithms of all tokens' probabilities, by token. */
  readonly logarithms: number[][];
  readonly prefillMs: number;
  /** Median of all tokens but the first. */
  readonly tokenMs: number;
}

export interface Answer {
  readonly ok: true;
  readonly devices: string[];
  readonly vram: { readonly total: number; readonly used: number; readonly free: number };
  readonly gpuLayers: number;
  readonly results: Result[];
}

const CONTEXT = 512;

async function run(model: Model, task: Task): Promise<Result> {
  const context = await model.createContext({
    contextSize: CONTEXT,
    batchSize: task.batch,
    threads: 1,
    flashAttention: task.flashAttention,
  });
  const tokens: number[] = [];
  const margins: number[] = [];
  const logarithms: number[][] = [];
  const times: number[] = [];
  let last = performance.now();
  const steps = context
    .getSequence()
    .evaluateWithMetadata(task.prompt, { probabilities: true }, { temperature: 0 });
  for await (const { token, probabilities } of steps) {
    times.push(performance.now() - last);
    tokens.push(token);
    const values: number[] = [];
    for (const [of, probability] of probabilities) values[of] = Math.log(probability);
    logarithms.push(values);
    const next = Math.max(...values.filter((_, of) => of !== token));
    margins.push((values[token] ?? Number.NaN) - next);
    if (tokens.length === task.tokens) break;
    last = performance.now();
  }
  await context.dispose();
  return {
    tokens,
    text: model.detokenize(tokens),
    margins,
    logarithms,
    prefillMs: times[0] ?? 0,
    tokenMs: times.slice(1).sort((a, b) => a - b)[Math.floor((times.length - 1) / 2)] ?? 0,
  };
}

async function consume(packages: string, modelPath: string, order: Order): Promise<Answer> {
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
  const model = await llama.loadModel({ modelPath, gpuLayers: order.gpu ? 'max' : 0 });
  const results: Result[] = [];
  for (const task of order.tasks) results.push(await run(model, task));
  return { ok: true, devices, vram, gpuLayers: model.gpuLayers, results };
}

const [packages, model, order] = argv.slice(2);
let answer: Answer | { readonly ok: false; readonly error: string };
try {
  if (packages === undefined || model === undefined || order === undefined)
    throw new Error('usage: PACKAGES MODEL ORDER');
  answer = await consume(packages, path.resolve(model), JSON.parse(order));
} catch (error) {
  answer = { ok: false, error: error instanceof Error ? error.message : String(error) };
}
stdout.write(`${JSON.stringify(answer)}\n`, () => exit(answer.ok ? 0 : 1));
