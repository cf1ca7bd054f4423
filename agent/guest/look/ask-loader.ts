/**
 * Asks the loader itself what it would map for a program: as the user, in the environment and sandbox of the unit.
 *
 * `LD_TRACE_LOADED_OBJECTS=1 ld.so PROGRAM`, as ldd(1) does it, ends before any code of the program or of a library
 * runs. The loader is started by its own name, so what is executed is the file that we checked and never the program.
 * A preload asks the same question as dlopen() by the program would: the same lists in the same order.
 */
import type { ProbeRun } from '../../contracts/probe.js';
import type { LoadedUnit } from '../../contracts/unit.js';
import type { CommandRunner } from '../../lib/run-command.js';
import type { UnitCommand } from '../../systemd/run-in-unit.js';

export interface Starting {
  readonly unit: LoadedUnit;
  readonly interpreter: string;
  /** Its real path: `$ORIGIN` is made of it. */
  readonly program: string;
  readonly environment: Readonly<Record<string, string>>;
  readonly environmentFiles: readonly string[];
  readonly user: UnitCommand['user'];
  /** Working directory: an empty entry in a list of directories is that one. */
  readonly directory: string;
}

export interface LoaderRequest {
  readonly open: readonly string[];
  /** LD_LIBRARY_PATH instead of the environment's; null: that one. */
  readonly libraryPath: string | null;
  /** Bind every symbol, as `ldd -r` does; no resolver of an IFUNC is called (glibc, elf/rtld.c). */
  readonly bind?: true;
}

export interface LoaderEffects {
  readonly runner: CommandRunner;
  runInUnit(command: UnitCommand): Promise<ProbeRun>;
}

const limitMs = 5_000;

export async function askLoader(
  effects: LoaderEffects,
  { unit, interpreter, program, environment, environmentFiles, user, directory }: Starting,
  { open, libraryPath, bind }: LoaderRequest,
): Promise<LoaderWords | string> {
  const args = [
    ...(libraryPath === null ? [] : ['--library-path', libraryPath]),
    ...(open.length === 0 ? [] : ['--preload', open.join(' ')]),
    program,
  ];
  const asking = {
    ...environment,
    LD_TRACE_LOADED_OBJECTS: '1',
    LD_DEBUG: 'libs',
    ...(bind === true ? { LD_BIND_NOW: '1', LD_WARN: '1' } : {}),
  };
  // Only root may start units; another user asks for itself.
  if (process.geteuid?.() !== 0) {
    const ran = await effects.runner.run(interpreter, args, {
      env: asking,
      cwd: directory,
      timeoutMs: limitMs,
    });
    return understood(ran.stdout.toString('utf8'), ran.stderr.toString('utf8'));
  }
  const ran = await effects.runInUnit({
    unit,
    purpose: 'vgpu-loader',
    program: interpreter,
    args,
    environment: asking,
    environmentFiles,
    user,
    directory,
    limitMs,
  });
  if (ran.kind === 'not-run') return ran.message;
  if (ran.timedOut) return `the loader did not answer within ${limitMs / 1000} s`;
  if (ran.signal !== null) return `the loader was ended by SIG${ran.signal}`;
  return understood(ran.stdout, ran.stderr);
}

function understood(stdout: string, stderr: string): LoaderWords | string {
  const words = readLoaderWords(stdout, stderr);
  if ('problem' in words)
    return `the output of the loader is not understood: ${JSON.stringify(words.problem)}`;
  if (words.objects !== null || words.searches.length > 0) return words;
  return words.complaint ?? 'the loader said nothing: it is not glibc’s';
}

// The output of glibc's loader for LD_TRACE_LOADED_OBJECTS and LD_DEBUG=libs (ld.so(8)): the list of
// libraries that it would map on standard output, its search on standard error. It has no other interface for this. The form is the
// same in glibc 2.31 to 2.43; a line of the search in another form makes the whole answer worthless. Pure.

export interface Attempt {
  readonly path: string;
  /** `LD_LIBRARY_PATH`, `DT_RUNPATH of /x/libggml-cuda.so`, `ld.so.cache`, `a default directory`. */
  readonly by: string;
}

interface Search {
  readonly name: string;
  readonly attempts: readonly Attempt[];
  /** False: the loader gave up at the last file, which is there and is no library that it could take. */
  readonly finished: boolean;
}

interface ListedObject {
  readonly name: string;
  readonly path: string | null;
}

export interface LoaderWords {
  readonly searches: readonly Search[];
  /** In the order of the process's list of objects; null: the loader gave up before. */
  readonly objects: readonly ListedObject[] | null;
  /** The last line that is not part of the search: why the loader gave up, or what it did without. */
  readonly complaint: string | null;
  /** Symbols that no library has: `cuFoo`, `cuBar@VERSION`, with the file that needs each. */
  readonly missing: readonly { readonly symbol: string; readonly file: string }[];
}

const spoken = /^ {1,11}\d+:\t(.*)$/;

export function readLoaderWords(stdout: string, stderr: string): LoaderWords | { readonly problem: string } {
  const searches: { name: string; attempts: Attempt[]; finished: boolean }[] = [];
  const missing: { symbol: string; file: string }[] = [];
  let by = '';
  let complaint: string | null = null;
  for (const line of stderr.split('\n')) {
    const words = spoken.exec(line)?.[1];
    const [, symbol, version, file] =
      /^undefined symbol: (\S+?)(?:, version (\S+))?\t\((.*)\)$/.exec(line) ?? [];
    if (symbol !== undefined && file !== undefined) {
      missing.push({ symbol: version === undefined ? symbol : `${symbol}@${version}`, file });
      continue;
    }
    const search = searches.at(-1);
    if (words === undefined || /: error: .* \((continued|fatal)\)$/.test(words)) {
      complaint = words ?? (line === '' ? complaint : line);
      continue;
    }
    const name = /^find library=(.*) \[-?\d+\]; searching$/.exec(words)?.[1];
    const list = /^ search path=.*\t\t\((.*)\)$/.exec(words)?.[1];
    const tried = /^ {2}trying file=(.*)$/.exec(words)?.[1];
    if (name !== undefined) {
      searches.push({ name, attempts: [], finished: false });
      by = '';
    } else if (search === undefined) {
      return { problem: line };
    } else if (list !== undefined) {
      by = whichList(list);
    } else if (words.startsWith(' search cache=')) {
      by = 'ld.so.cache';
    } else if (tried !== undefined) {
      if (by === '') return { problem: line };
      const known = search.attempts.some((one) => one.path === tried);
      if (!known) search.attempts.push({ path: tried, by });
    } else if (words === '') {
      search.finished = true;
    } else if (!/^ {4}\(.*\)$/.test(words)) {
      // glibc 2.43 says in brackets why it passes a file over; older ones say nothing.
      return { problem: line };
    }
  }
  return { searches, objects: readList(stdout), complaint, missing };
}

/** `name => path (0x...)`, `path (0x...)`, `name => not found`. */
function readList(stdout: string): readonly ListedObject[] | null {
  const objects: ListedObject[] = [];
  for (const line of stdout.split('\n')) {
    const [, name, path] = /^\t(?:(.*) => )?(.*) \(0x[0-9a-f]+\)$/.exec(line) ?? [];
    const missing = /^\t(.*) => not found$/.exec(line)?.[1];
    if (path !== undefined) objects.push({ name: name ?? path, path });
    else if (missing !== undefined) objects.push({ name: missing, path: null });
  }
  return objects.length === 0 ? null : objects;
}

function whichList(label: string): string {
  const [, tag, file] = /^(RPATH|RUNPATH) from file (.*)$/.exec(label) ?? [];
  if (tag !== undefined) return `DT_${tag} of ${file}`;
  switch (label) {
    case 'system search path':
      return 'a default directory';
    case '--library-path':
      return 'LD_LIBRARY_PATH';
    default:
      return label;
  }
}
