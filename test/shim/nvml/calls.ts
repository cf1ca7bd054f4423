/** The program that makes NVML calls one after the other, and what came of each. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { buildProgram, ROOT } from '../cuda/private_programs.js';

/** nvmlReturn_t as far as it is expected here. */
export const RESULT = {
  success: 0,
  uninitialized: 1,
  invalid: 2,
  notSupported: 3,
  notFound: 6,
  tooSmall: 7,
  noDriver: 9,
  lost: 15,
} as const;

export const SANITIZERS = ['address,undefined', 'thread'] as const;

export interface Line {
  readonly call: string;
  readonly result: number;
  readonly milliseconds: number;
  readonly text: string;
}

const guest = (names: readonly string[]): string[] => names.map((name) => `shim-src/${name}.c`);

/** The C files of a folder itself. */
const all = (folder: string): string[] =>
  readdirSync(path.join(ROOT, 'shim-src', folder))
    .filter((name) => name.endsWith('.c'))
    .sort()
    .map((name) => `shim-src/${folder}/${name}`);

/** libnvidia-ml's own sources and a caller in one program, so that the sanitizers see all of it. */
export function buildCaller(sanitize: (typeof SANITIZERS)[number]): Promise<string> {
  return buildProgram({
    name: `nvml_calls-${sanitize.replace(',', '-')}`,
    sanitize,
    sources: [
      'test/shim/programs/nvml_calls.c',
      ...guest(
        ['state', 'system', 'handles', 'device', 'pci', 'query', 'usage'].map((file) => `guest/nvml/${file}`),
      ),
      'build/generated/nvml_queries.c',
      'build/generated/nvml_query_stubs.c',
      // what every library of the guest has beside its own
      ...all('guest'),
      ...all('wire'),
    ],
  });
}

/** Makes the calls; at each "wait" the next of `meanwhile` runs. Requires an empty stderr and a clean end. */
export async function makeCalls(
  program: string,
  address: string,
  names: readonly string[],
  meanwhile: readonly (() => Promise<void> | void)[] = [],
): Promise<Line[]> {
  const child = spawn(program, names, { env: { ...process.env, VGPU_HOST: address } });
  const ended = once(child, 'close');
  const lines: Line[] = [];
  const waiting = [...meanwhile];
  let stderr = '';
  child.stderr.on('data', (data: Buffer) => {
    stderr += data.toString();
  });
  for await (const line of createInterface({ input: child.stdout })) {
    if (line === 'ready') {
      await waiting.shift()?.();
      child.stdin.write('go\n');
      continue;
    }
    const [call = '', result, milliseconds, text = ''] = line.split('\t');
    lines.push({ call, result: Number(result), milliseconds: Number(milliseconds), text });
  }
  const [code] = await ended;
  assert.equal(stderr, '');
  assert.equal(code, 0);
  assert.equal(lines.length, names.length);
  return lines;
}
