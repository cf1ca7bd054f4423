/**
 * A test runner for Stryker: the unit tests of one room (MUTATE_ROOM), without those of files that
 * have effects (MUTATE_EFFECTS), in one process. A process for each test file, as Node's
 * own runner needs, is some hundred milliseconds a mutant; here it is a few.
 */
import { readdirSync } from 'node:fs';
import { register } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Collected } from './collector.js';

/** What Stryker's instrumented code looks at. */
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

/** A promise that fails once something fails that nobody waits for. */
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

class RoomRunner {
  readonly #room: string;
  readonly #effects: readonly string[];
  readonly #instrumented: Instrumented;
  #loads = 0;
  #tests: readonly Test[] = [];

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
  }

  async dryRun(): Promise<object> {
    this.#instrumented.mutantCoverage = undefined;
    this.#tests = await this.#load();
    const tests: object[] = [];
    for (const test of this.#tests) {
      this.#instrumented.currentTestId = test.id;
      const started = performance.now();
      const failure = await this.#failureOf(test);
      const parts = {
        id: test.id,
        name: test.name,
        fileName: test.fileName,
        timeSpentMs: performance.now() - started,
      };
      tests.push(
        failure === null ? { ...parts, status: 0 } : { ...parts, status: 1, failureMessage: failure },
      );
    }
    this.#instrumented.currentTestId = undefined;
    return { status: 'complete', tests, mutantCoverage: this.#instrumented.mutantCoverage };
  }

  async mutantRun(run: MutantRun): Promise<object> {
    this.#instrumented.hitCount = run.hitLimit === undefined ? undefined : 0;
    this.#instrumented.hitLimit = run.hitLimit;
    this.#instrumented.activeMutant = run.reloadEnvironment ? run.activeMutant.id : undefined;
    try {
      if (this.#tests.length === 0 && !run.reloadEnvironment) this.#tests = await this.#load();
      const tests = run.reloadEnvironment ? await this.#load() : this.#tests;
      this.#instrumented.activeMutant = run.activeMutant.id;
      const asked = tests.filter((test) => run.testFilter?.includes(test.id) ?? true);
      for (const test of asked) {
        const failure = await this.#failureOf(test);
        if (failure !== null) {
          return { status: 'killed', killedBy: [test.id], failureMessage: failure, nrOfTests: asked.length };
        }
      }
      return { status: 'survived', nrOfTests: asked.length };
    } catch (error) {
      return {
        status: 'killed',
        killedBy: [],
        failureMessage: `does not load: ${said(error)}`,
        nrOfTests: 0,
      };
    } finally {
      this.#instrumented.activeMutant = undefined;
    }
  }

  async #load(): Promise<readonly Test[]> {
    this.#loads += 1;
    const query = `?load=${this.#loads}`;
    const directory = path.resolve('dist/test/agent', this.#room);
    const files = readdirSync(directory, { recursive: true, encoding: 'utf8' });
    // Of this load: hooks.ts gives the files with this query the same module.
    const collector: typeof import('./collector.js') = await import(`./collector.js${query}`);
    const tests: Test[] = [];
    const wanted = files.filter(
      (name) =>
        name.endsWith('.test.js') &&
        !this.#effects.some((effects) => name.startsWith(effects.endsWith('/') ? effects : `${effects}.`)),
    );
    for (const file of wanted.toSorted()) {
      await import(`${pathToFileURL(path.join(directory, file)).href}${query}`);
      for (const [index, one] of collector.take().entries()) {
        const fileName = path.join('test/agent', this.#room, file.replace(/\.js$/, '.ts'));
        tests.push({ ...one, id: `${file} ${index} ${one.name}`, fileName });
      }
    }
    return tests;
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
