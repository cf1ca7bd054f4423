/**
 * Stands in for `node:test` while mutants are tried: collects the tests of a file instead of running them, so that each can
 * be run as often as there are mutants, in one process. What it lacks fails loudly: the first run without a mutant is red.
 */
import { mock } from 'node:test';

type Run = (context: Context) => unknown;
export interface Collected {
  readonly name: string;
  readonly run: () => Promise<void>;
}
interface Suite {
  readonly name: string;
  readonly before: Run[];
  readonly after: Run[];
  readonly beforeEach: Run[];
  readonly afterEach: Run[];
}
interface Context {
  readonly name: string;
  readonly mock: typeof mock;
  after(run: Run): void;
  diagnostic(text: string): void;
  test(name: string, run: Run): Promise<void>;
}

const newSuite = (name: string): Suite => ({ name, before: [], after: [], beforeEach: [], afterEach: [] });
const collected: Collected[] = [];
/** The file, and the suites inside of one another that are being collected. */
const suites: Suite[] = [newSuite('')];

/** The tests of one file: those that were collected since it was asked last. */
export function take(): readonly Collected[] {
  suites.splice(0, suites.length, newSuite(''));
  return collected.splice(0);
}

async function runOne(name: string, run: Run, around: readonly Suite[]): Promise<void> {
  const left: Run[] = [];
  const context: Context = {
    name,
    mock,
    after: (one) => left.push(one),
    diagnostic: () => {},
    test: (inner, one) => runOne(inner, one, []),
  };
  try {
    for (const suite of around) for (const one of [...suite.before, ...suite.beforeEach]) await one(context);
    await run(context);
  } finally {
    for (const one of left) await one(context);
    for (const suite of around.toReversed())
      for (const one of [...suite.afterEach, ...suite.after]) await one(context);
  }
}

type Given = readonly [name: string, run: Run] | readonly [name: string, options: object, run: Run];

function partsOf(given: Given): { readonly name: string; readonly skip: boolean; readonly run: Run } {
  const run = given.length === 2 ? given[1] : given[2];
  const options: { skip?: unknown } = given.length === 2 ? {} : given[1];
  return { name: given[0], run, skip: options.skip !== undefined && options.skip !== false };
}

export function test(...given: Given): void {
  const { name, skip, run } = partsOf(given);
  const around = [...suites];
  if (skip) return;
  const full = [...around.slice(1).map((suite) => suite.name), name].join(' › ');
  collected.push({ name: full, run: () => runOne(name, run, around) });
}

export function describe(
  ...given: readonly [string, () => void] | readonly [string, object, () => void]
): void {
  const { name, skip, run } = partsOf(given);
  if (skip) return;
  suites.push(newSuite(name));
  try {
    (run as () => void)();
  } finally {
    suites.pop();
  }
}

function hook(kind: 'before' | 'after' | 'beforeEach' | 'afterEach'): (run: Run) => void {
  return (run) => {
    suites.at(-1)?.[kind].push(run);
  };
}

export const [before, after, beforeEach, afterEach] = [
  hook('before'),
  hook('after'),
  hook('beforeEach'),
  hook('afterEach'),
];
export { describe as suite, mock, test as it };
