// The consumer in guest tests: the Ollama stand-in (test/consumer), or a real one if
// VGPU_TEST_OLLAMA names its binary.

import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { repository } from './repository.js';

/** How it looks for GPUs: 1 up to 0.12.3, 2 up to 0.24, 3 from 0.30. */
export type ConsumerDesign = 1 | 2 | 3;

export interface ConsumerOptions {
  /** Starts the service; true unless given. */
  readonly start?: boolean;
  /** Further Environment= lines of the unit: OLLAMA_DEBUG, and the stand-in's own STANDIN_* (test/consumer/README.md). */
  readonly env?: Readonly<Record<string, string>>;
}

/** The real Ollama's binary that the tests are told to use, if any. */
export function realOllama(): string | undefined {
  const path = process.env['VGPU_TEST_OLLAMA'];
  return path === undefined || path === '' ? undefined : path;
}

/** The directory with its bin/ and lib/ollama/. */
export function realOllamaPrefix(): string | undefined {
  const path = realOllama();
  return path === undefined ? undefined : dirname(dirname(path));
}

/** The designs to test: all three of the stand-in, or the one that the real Ollama has. */
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
export function consumerArguments(design: ConsumerDesign, options: ConsumerOptions): string[] {
  const args = [realOllama() === undefined ? String(design) : 'real'];
  if (options.start === false) args.push('--no-start');
  for (const [key, value] of Object.entries(options.env ?? {})) args.push('--env', `${key}=${value}`);
  return args;
}
