/**
 * Runs llama.cpp's real CUDA library with NVIDIA's real runtime and cuBLAS, as node-llama-cpp ships them, in a
 * process of its own (support/llama-consumer.ts) against a host. All of them are large: scripts/test fetches them
 * where there is room and a network, and runs a short part; `--large` runs all.
 */
import { spawn } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { ROOT } from '../cuda/private_programs.js';
import { type Host, SHIM, VARIANT } from '../shim_host.js';
import type { WeightType } from '../support/gguf_blocks.js';
import type { Answer, Order } from '../support/llama-consumer.js';
import { makeGguf } from '../support/make-gguf.js';

const ROOTS = path.join(ROOT, '.cache/roots');
const missing = ['cudart-12', 'cublas-12', 'llama-npm'].filter(
  (group) => !existsSync(path.join(ROOTS, group, '.complete')),
);
const LIBRARIES = ['cudart-12', 'cublas-12'].map((group) =>
  path.join(ROOTS, group, 'usr/lib/x86_64-linux-gnu'),
);

/** Why tests that need the packages are skipped; false if they are there. */
export const skip = whyNot();

function whyNot(): string | false {
  if (VARIANT !== 'shim') return 'a program that is not sanitized cannot load a sanitized library';
  return missing.length > 0 ? `run scripts/fetch-packages ${missing.join(' ')}` : false;
}

/** Whether all is run, or what is enough to know that it works. */
export const large = process.env['VGPU_TEST_LARGE'] === '1';
/** Why a test of the rest is skipped. */
export const skipLarge = large ? false : 'only with scripts/test --large';

export interface Run {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  /** llama.cpp's own. */
  readonly log: string;
  readonly answer: Answer | { readonly ok: false; readonly error: string };
}

/** A tiny model in `directory`, made at the first call for its type. */
export function tinyModel(directory: string, type: WeightType): string {
  const file = path.join(directory, `${type}.gguf`);
  if (!existsSync(file)) writeFileSync(file, makeGguf({ type, seed: 20_260_101 }));
  return file;
}

/**
 * A token that begins a text, then different tokens that repeat. The first three tokens of a vocabulary are not text.
 */
export function repeating(count: number, period: number): number[] {
  return Array.from({ length: count }, (_, i) => (i === 0 ? 1 : 3 + (((i % period) * 97) % 251)));
}

/** Loads the model and carries the order out in a process of its own, with the libraries of this build or others. */
export async function consume(
  host: Pick<Host, 'address'>,
  model: string,
  order: Order,
  env: Readonly<Record<string, string>> = {},
  shim = SHIM,
): Promise<Run> {
  const child = spawn(
    process.execPath,
    [
      path.join(ROOT, 'dist/test/shim/support/llama-consumer.js'),
      path.join(ROOTS, 'llama-npm/node_modules'),
      model,
      JSON.stringify(order),
    ],
    {
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: 300_000,
      env: {
        ...process.env,
        VGPU_HOST: host.address,
        LD_LIBRARY_PATH: [shim, ...LIBRARIES].join(':'),
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
  return { code, signal, log, answer: out === '' ? { ok: false, error: 'no answer' } : JSON.parse(out) };
}
