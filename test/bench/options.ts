import { parseArgs } from 'node:util';
import type { Entry } from './measure.js';

export interface Options {
  readonly help: boolean;
  readonly json: boolean;
  /** Rounds of every entry; null leaves it to each. */
  readonly runs: number | null;
  readonly chosen: readonly Entry[];
}

export const maxRuns = 1_000;

/** Throws an Error that says what was wrong with which word. */
export function parseOptions(argv: readonly string[], entries: readonly Entry[]): Options {
  const { values } = parseArgs({
    args: [...argv],
    options: {
      help: { type: 'boolean', short: 'h', default: false },
      json: { type: 'boolean', default: false },
      runs: { type: 'string' },
      only: { type: 'string', multiple: true, default: [] },
    },
  });
  for (const name of values.only) {
    if (entries.some((entry) => entry.name === name)) continue;
    throw new Error(`--only: no entry ${JSON.stringify(name)}; there is ${names(entries)}`);
  }
  const runs = values.runs === undefined ? null : Number(values.runs);
  if (runs !== null && !(Number.isInteger(runs) && runs >= 1 && runs <= maxRuns)) {
    throw new Error(`--runs: wants 1 to ${maxRuns}, not ${JSON.stringify(values.runs)}`);
  }
  return {
    help: values.help,
    json: values.json,
    runs,
    chosen: entries.filter(({ name }) => values.only.length === 0 || values.only.includes(name)),
  };
}

function names(entries: readonly Entry[]): string {
  return entries.map(({ name }) => name).join(', ');
}

export function usage(entries: readonly Entry[]): string {
  return [
    'npm run bench -- [--runs N] [--only NAME]... [--json]',
    '',
    'Boots a throwaway guest with a simulated GPU beside it (needs root) and measures there. Every time',
    'stands beside that of something else which ran in the same rounds; the ratio is what counts.',
    '',
    ...entries.map(({ name, runs, what }) => `  ${name.padEnd(14)} ${what} (${runs} rounds)`),
  ].join('\n');
}
