// The consumer in guest tests: the Ollama stand-in (test/consumer), or a real Ollama. VGPU_TEST_OLLAMA names the binary of
// a real Ollama that all tests use instead of the stand-in. Without it, some tests use the real Ollama that scripts/test
// puts into .cache, alone or beside the stand-in. This repository contains no part of Ollama.

import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { repository } from './repository.js';

/** The way in which Ollama searches for GPUs: 1 up to 0.12.3, 2 up to 0.24, 3 from 0.30. */
export type ConsumerDesign = 1 | 2 | 3;
/** The stand-in of a design, or the real Ollama. */
export type Consumer = ConsumerDesign | 'real';

export interface ConsumerOptions {
  /** Starts the service; true unless given. */
  readonly start?: boolean;
  /** Further Environment= lines of the unit: OLLAMA_DEBUG, and the stand-in's own STANDIN_* (test/consumer/README.md). */
  readonly env?: Readonly<Record<string, string>>;
}

const assembled = join(repository, '.cache/ollama-0.32.9');
/** True if tests that take minutes shall run. */
export const long = process.env['VGPU_TEST_LONG'] === '1';

/** The consumer, for the title of tests. */
export function named(consumer: Consumer): string {
  return consumer === 'real' ? 'with a real Ollama' : 'with the stand-in';
}

/** The real Ollama's binary that the tests are told to use, if any. */
export function realOllama(): string | undefined {
  const path = process.env['VGPU_TEST_OLLAMA'];
  return path === undefined || path === '' ? undefined : path;
}

/** The directory with a real Ollama's bin/ and lib/ollama/; undefined: there is none. */
export function ollamaServer(): string | undefined {
  const path = realOllama();
  if (path !== undefined) return dirname(dirname(path));
  return existsSync(join(assembled, '.complete')) ? assembled : undefined;
}

/** Why no real Ollama can be run here, or false; for the `skip` option of a test. */
export function whyNoOllama(): string | false {
  return ollamaServer() === undefined
    ? 'there is no real Ollama here: set VGPU_TEST_OLLAMA=/path/to/ollama'
    : false;
}

/** The consumers of tests that fit any: the stand-in, with --long a real Ollama too; or only VGPU_TEST_OLLAMA. */
export function consumers(): readonly Consumer[] {
  if (realOllama() !== undefined) return ['real'];
  return long && ollamaServer() !== undefined ? [3, 'real'] : [3];
}

/** The designs to test: all three of the stand-in, or the design of the real Ollama. */
export function consumerDesigns(): readonly ConsumerDesign[] {
  const path = realOllama();
  if (path === undefined) return [1, 2, 3];
  const said = execFileSync(path, ['--version'], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
  const version = /(\d+)\.(\d+)\.(\d+)/.exec(said);
  if (version === null) throw new Error(`VGPU_TEST_OLLAMA=${path}: no version in "${said.trim()}"`);
  const minor = Number(version[2]);
  const patch = Number(version[3]);
  if (Number(version[1]) > 0 || minor >= 30) return [3];
  return minor > 12 || (minor === 12 && patch >= 4) ? [2] : [1];
}

/** Why there is no consumer to test with, or false; for the `skip` option of a test. */
export function whyNoConsumer(): string | false {
  if (realOllama() !== undefined) return false;
  return existsSync(join(repository, 'build/consumer/ollama-3'))
    ? false
    : 'the Ollama stand-in is not built (scripts/build-consumer)';
}

/** Why the stand-in's own knobs cannot be used, or false; for the `skip` option of a test. */
export function whyNoStandIn(): string | false {
  return realOllama() === undefined ? whyNoConsumer() : 'needs the stand-in, and VGPU_TEST_OLLAMA is set';
}

/** Arguments of scripts/lib/install-consumer. */
export function consumerArguments(consumer: Consumer, options: ConsumerOptions): string[] {
  const args = [realOllama() === undefined ? String(consumer) : 'real'];
  if (options.start === false) args.push('--no-start');
  for (const [key, value] of Object.entries(options.env ?? {})) args.push('--env', `${key}=${value}`);
  return args;
}
