/**
 * A test runner for Stryker: the unit tests of one room (MUTATE_ROOM), without those of files that
 * have effects (MUTATE_EFFECTS), in one process. A process for each test file, as Node's
 * own runner needs, is some hundred milliseconds a mutant; here it is a few.
 */
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { register } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Collected } from './collector.js';

/** The objects that Stryker's instrumented code reads. */
interface Instrumented {
  activeMutant?: string | undefined;
  currentTestId?: string | undefined;
  hitCount?: number | undefined;
  hitLimit?: number | undefined;
  mutantCoverage?: unknown;
}
interface MutantRun {
  readonly activeMutant: { readonly id: string };
  readonly testFilter?: readonly string[];
  readonly hitLimit?: number;
  readonly reloadEnvironment: boolean;
}
interface Test extends Collected {
  readonly id: string;
  readonly fileName: string;
}

/** A promise that fails when a promise fails that is not awaited. */
function stray(): { readonly failed: Promise<never>; readonly stop: () => void } {
  let fail: (error: unknown) => void = () => {};
  const failed = new Promise<never>((_, reject) => {
    fail = reject;
  });
  failed.catch(() => {});
  process.on('uncaughtException', fail);
  process.on('unhandledRejection', fail);
  const stop = () => {
    process.off('uncaughtException', fail);
    process.off('unhandledRejection', fail);
  };
  return { failed, stop };
}

const said = (error: unknown): string =>
  error instanceof Error ? `${error.name}: ${error.message}` : String(error);

/** In Stryker's copy of the tree. */
const timesFile = 'test-times.json';

class RoomRunner {
  readonly #room: string;
  readonly #effects: readonly string[];
  readonly #instrumented: Instrumented;
  #loads = 0;
  #files: readonly string[] = [];
  readonly #tests: Test[] = [];
  /** The time of each test, and of each file, in milliseconds: the quick ones run first. */
  #times: Readonly<Record<string, number>> = {};

  /** @param effects beginnings of the names of files, whose tests are not of the pure part */
  constructor(room: string, effects: readonly string[], instrumented: Instrumented) {
    this.#room = room;
    this.#effects = effects;
    this.#instrumented = instrumented;
  }

  capabilities(): { readonly reloadEnvironment: boolean } {
    return { reloadEnvironment: true };
  }

  init(): void {
    register(new URL('hooks.js', import.meta.url));
    const directory = path.join('dist/test/agent', this.#room);
    const hasEffects = (name: string): boolean =>
      this.#effects.some((effects) => name.startsWith(effects.endsWith('/') ? effects : `${effects}.`));
    this.#files = readdirSync(directory, { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.test.js') && !hasEffects(name))
      .map((name) => path.join('test/agent', this.#room, name.replace(/\.js$/, '.ts')))
      .toSorted();
    // Of the first run, which was in another process when this one takes over after some hundred mutants.
    if (existsSync(timesFile)) this.#order(JSON.parse(readFileSync(timesFile, 'utf8')));
  }

  /** `first`: what noticed the last mutant is the likeliest to notice the next one, which is near to it. */
  #order(times: Readonly<Record<string, number>>, first?: Test): void {
    this.#times = times;
    const of = (name: string): number =>
      name === first?.id || name === first?.fileName ? -1 : (times[name] ?? 0);
    this.#files = this.#files.toSorted((a, b) => of(a) - of(b));
    this.#tests.sort((a, b) => of(a.id) - of(b.id));
  }

  async dryRun(): Promise<object> {
    this.#instrumented.mutantCoverage = undefined;
    const tests: object[] = [];
    const times: Record<string, number> = {};
    for await (const test of this.#fresh()) {
      this.#tests.push(test);
    }
    for (const test of this.#tests) {
      this.#instrumented.currentTestId = test.id;
      const started = performance.now();
      const failure = await this.#failureOf(test);
      const timeSpentMs = performance.now() - started;
      times[test.id] = timeSpentMs;
      times[test.fileName] = (times[test.fileName] ?? 0) + timeSpentMs;
      const parts = { id: test.id, name: test.name, fileName: test.fileName, timeSpentMs };
      tests.push(
        failure === null ? { ...parts, status: 0 } : { ...parts, status: 1, failureMessage: failure },
      );
    }
    this.#instrumented.currentTestId = undefined;
    writeFileSync(timesFile, JSON.stringify(times));
    this.#order(times);
    return { status: 'complete', tests, mutantCoverage: this.#instrumented.mutantCoverage };
  }

  async mutantRun(run: MutantRun): Promise<object> {
    if (this.#tests.length === 0) {
      for await (const test of this.#fresh()) this.#tests.push(test);
      this.#order(this.#times);
    }
    this.#instrumented.hitCount = run.hitLimit === undefined ? undefined : 0;
    this.#instrumented.hitLimit = run.hitLimit;
    this.#instrumented.activeMutant = run.activeMutant.id;
    let nrOfTests = 0;
    try {
      for await (const test of run.reloadEnvironment ? this.#fresh() : this.#tests) {
        if (run.testFilter?.includes(test.id) === false) continue;
        nrOfTests += 1;
        const failureMessage = await this.#failureOf(test);
        if (failureMessage === null) continue;
        this.#order(this.#times, test);
        return { status: 'killed', killedBy: [test.id], failureMessage, nrOfTests };
      }
      return { status: 'survived', nrOfTests };
    } catch (error) {
      return { status: 'killed', killedBy: [], failureMessage: `does not load: ${said(error)}`, nrOfTests };
    } finally {
      this.#instrumented.activeMutant = undefined;
    }
  }

  /** The tests, file by file, of modules that are all loaded again. */
  async *#fresh(): AsyncGenerator<Test> {
    this.#loads += 1;
    const query = `?load=${this.#loads}`;
    // Of this load: hooks.ts gives the files with this query the same module.
    const collector: typeof import('./collector.js') = await import(`./collector.js${query}`);
    for (const fileName of [...this.#files]) {
      const file = path.resolve('dist', fileName.replace(/\.ts$/, '.js'));
      await import(`${pathToFileURL(file).href}${query}`);
      for (const [index, one] of collector.take().entries()) {
        yield { ...one, id: `${path.basename(fileName)} ${index} ${one.name}`, fileName };
      }
    }
  }

  async #failureOf(test: Test): Promise<string | null> {
    const { failed, stop } = stray();
    try {
      await Promise.race([test.run(), failed]);
      return null;
    } catch (error) {
      return said(error);
    } finally {
      stop();
    }
  }
}

declare global {
  var __stryker__: Instrumented | undefined;
}

/** Stryker looks for this name. */
export const strykerPlugins = [
  {
    kind: 'TestRunner',
    name: 'room',
    factory: Object.assign(
      () => {
        const room = process.env['MUTATE_ROOM'];
        if (room === undefined) throw new Error('MUTATE_ROOM is not set: run `npm run mutate -- ROOM`');
        globalThis.__stryker__ ??= {};
        const effects = (process.env['MUTATE_EFFECTS'] ?? '').split(' ').filter((one) => one !== '');
        return new RoomRunner(room, effects, globalThis.__stryker__);
      },
      { inject: [] as const },
    ),
  },
];
