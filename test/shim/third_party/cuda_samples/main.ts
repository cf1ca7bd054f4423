/**
 * npm run samples -- DIR [--cache DIR] [--limit SECONDS] [--only REGEXP] [--alone]: builds those of NVIDIA's cuda-samples
 * below DIR that need CUDA alone, runs each on as many simulated devices as it needs and prints a table. With --alone it
 * takes those only that need no other library and one GPU. Exit status: 0 all that could be built passed; 1 not; 2 usage.
 */
import os from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { buildSample } from './build.js';
import { runSample } from './run.js';
import { needsCudaAlone, readSamples, type Sample } from './sample.js';

const USAGE = 'usage: npm run samples -- DIR [--cache DIR] [--limit SECONDS] [--only REGEXP] [--alone]';

const print = (text: string): boolean => process.stdout.write(`${text}\n`);

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      cache: { type: 'string', default: path.join(os.tmpdir(), 'cuda-samples-built') },
      limit: { type: 'string', default: '300' },
      only: { type: 'string', default: '' },
      alone: { type: 'boolean', default: false },
    },
  });
  const [given] = positionals;
  const seconds = Number(values.limit);
  if (given === undefined || positionals.length > 1) throw new Error('name one directory');
  const root = path.resolve(given);
  if (!(seconds > 0)) throw new Error(`--limit ${values.limit}: a number of seconds above 0`);
  const only = new RegExp(values.only);
  const counts = new Map<string, number>();
  const row = (kind: string, name: string, more: string): void => {
    counts.set(kind, (counts.get(kind) ?? 0) + 1);
    print(`${kind.padEnd(10)} ${name.padEnd(30)} ${more}`);
  };
  const wanted = (sample: Sample): boolean =>
    only.test(sample.name) && (!values.alone || needsCudaAlone(sample));
  for (const sample of readSamples(root).filter(wanted)) {
    if (sample.excluded !== undefined) {
      row('excluded', sample.name, sample.excluded);
      continue;
    }
    const built = await buildSample(sample, root, path.resolve(values.cache));
    if (built.kind === 'unbuildable') {
      row('not built', sample.name, built.why);
      continue;
    }
    const { outcome, seconds: took } = await runSample(sample, built.program, seconds * 1000);
    row(
      outcome.kind,
      sample.name,
      `${took.toFixed(1)} s${outcome.kind === 'passed' ? '' : `  ${outcome.why}`}`,
    );
  }
  print([...counts].map(([kind, count]) => `${count} ${kind}`).join(', '));
  return (counts.get('failed') ?? 0) + (counts.get('refused') ?? 0) === 0 ? 0 : 1;
}

try {
  process.exitCode = await main();
} catch (error) {
  process.stderr.write(`samples: ${error instanceof Error ? error.message : String(error)}\n${USAGE}\n`);
  process.exitCode = 2;
}
