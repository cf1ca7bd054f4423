/** Builds the C test programs that need nothing of the shim but a few of its sources, with sanitizers. */
import { execFile } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { mkdir, rename, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** The repository's root, seen from dist/test/shim. */
export const ROOT = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../../../..');

export interface Program {
  /** Of the file made; distinct for each combination of the fields below. */
  readonly name: string;
  /** Relative to the repository's root. */
  readonly sources: readonly string[];
  readonly libraries?: readonly string[];
  readonly sanitize?: 'address,undefined' | 'thread' | 'none';
  /** A shared library with this SONAME instead of a program. */
  readonly soname?: string;
}

/** By name: a test file starts the stand-in for a driver dozens of times. */
const builds = new Map<string, Promise<string>>();

/** Compiles once in a process and gives the path of what was made; a compiler's complaint is the error. */
export function buildProgram(program: Program): Promise<string> {
  const build = builds.get(program.name) ?? compile(program);
  builds.set(program.name, build);
  return build;
}

async function compile(program: Program): Promise<string> {
  const directory = path.join(ROOT, 'build', 'test-programs');
  await mkdir(directory, { recursive: true });
  const target = path.join(directory, program.name);
  const record = `${target}.made`;
  const fresh = `${target}.${process.pid}`;
  const sanitize = program.sanitize ?? 'address,undefined';
  const command = [
    process.env['CC'] ?? 'cc',
    '-std=c11',
    '-D_GNU_SOURCE',
    '-g',
    '-O1',
    '-Wall',
    '-Wextra',
    '-Werror',
    ...(sanitize === 'none' ? [] : [`-fsanitize=${sanitize}`, '-fno-sanitize-recover=all']),
    ...(program.soname === undefined ? [] : ['-shared', '-fPIC', `-Wl,-soname,${program.soname}`]),
    '-Ishim-src',
    '-Ibuild/generated',
    ...program.sources,
    '-pthread',
    ...(program.libraries ?? []).map((library) => `-l${library}`),
  ] as const;
  // Another test file may have made it, by the same command of the same sources and files that they may include.
  const changed = Math.max(
    sourcesChanged(),
    ...program.sources.map((name) => changedAt(path.resolve(ROOT, name))),
  );
  const wanted = `${changed} ${command.join(' ')}`;
  if (existsSync(target) && existsSync(record) && readFileSync(record, 'utf8') === wanted) return target;
  const [compiler, ...args] = command;
  await run(compiler, [...args, '-o', fresh], { cwd: ROOT });
  // Beside and renamed: test files run at the same time.
  await rename(fresh, target);
  await writeFile(record, wanted);
  return target;
}

const changedAt = (file: string): number => statSync(file).mtimeMs;

/** When a file that a program may include was last changed. */
function sourcesChanged(): number {
  const directories = ['shim-src', 'test/shim/programs', 'build/generated'].map((name) =>
    path.join(ROOT, name),
  );
  const files = directories.flatMap((directory) =>
    readdirSync(directory, { recursive: true, encoding: 'utf8' })
      .filter((name) => /\.[ch]$/.test(name))
      .map((name) => path.join(directory, name)),
  );
  return Math.max(...files.map(changedAt));
}

/** The variables that preload `source` of test/shim/programs, without `.c`, into a program. */
export async function preloaded(source: string): Promise<Record<string, string>> {
  const name = `lib${source.replaceAll('_', '-')}.so`;
  return {
    LD_PRELOAD: await buildProgram({
      name,
      sources: [`test/shim/programs/${source}.c`],
      sanitize: 'none',
      soname: name,
    }),
    // ASan complains unless it is the first library, but also works as the second.
    ASAN_OPTIONS: `${process.env['ASAN_OPTIONS'] ?? ''}:verify_asan_link_order=0`,
  };
}

export interface Ended {
  readonly code: number | null;
  readonly signal: string | null;
  readonly stdout: string;
  readonly stderr: string;
  readonly milliseconds: number;
}

/** Runs a program to its end, at most `limit` milliseconds; never throws for its exit status. */
export function runProgram(
  file: string,
  args: readonly string[],
  options: {
    /** Beside what is in this process's. */
    readonly env?: Readonly<Record<string, string>>;
    /** Instead. */
    readonly only?: Readonly<NodeJS.ProcessEnv>;
    readonly limit?: number;
  } = {},
): Promise<Ended> {
  const start = performance.now();
  return new Promise((resolve) => {
    const child = execFile(
      file,
      args,
      {
        env: options.only ?? { ...process.env, ...options.env },
        timeout: options.limit ?? 60_000,
        killSignal: 'SIGKILL',
        maxBuffer: 1 << 24,
      },
      (_error, stdout, stderr) => {
        resolve({
          code: child.exitCode,
          signal: child.signalCode,
          stdout,
          stderr,
          milliseconds: performance.now() - start,
        });
      },
    );
  });
}
