/**
 * Asks the loader itself what it would map for a program: as the user, in the environment and sandbox of the unit.
 *
 * `LD_TRACE_LOADED_OBJECTS=1 ld.so PROGRAM`, as ldd(1) does it, ends before any code of the program or of a library
 * runs. The loader is started by its own name, so what is executed is the file that we checked and never the program.
 * A preload asks the same question as dlopen() by the program would: the same lists in the same order.
 */
import type { ProbeRun } from '../../../contracts/probe.js';
import type { LoadedUnit } from '../../../contracts/unit.js';
import type { CommandRunner } from '../../../lib/run-command.js';
import type { UnitCommand } from '../../../systemd/run-in-unit.js';
import { type LoaderWords, readLoaderWords } from './words.js';

/** A process as the loader meets it. */
export interface Starting {
  readonly unit: LoadedUnit;
  /** The loader that the program names. */
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
  /** Opened beside what the environment preloads. */
  readonly open: readonly string[];
  /** LD_LIBRARY_PATH instead of the environment's; null: that one. */
  readonly libraryPath: string | null;
}

export interface LoaderEffects {
  readonly runner: CommandRunner;
  /** Runs a program in a unit's place. */
  runInUnit(command: UnitCommand): Promise<ProbeRun>;
}

const limitMs = 5_000;

/** The loader's answer, or the reason why there is none. */
export async function askLoader(
  effects: LoaderEffects,
  { unit, interpreter, program, environment, environmentFiles, user, directory }: Starting,
  { open, libraryPath }: LoaderRequest,
): Promise<LoaderWords | string> {
  const args = [
    ...(libraryPath === null ? [] : ['--library-path', libraryPath]),
    ...(open.length === 0 ? [] : ['--preload', open.join(' ')]),
    program,
  ];
  const asking = { ...environment, LD_TRACE_LOADED_OBJECTS: '1', LD_DEBUG: 'libs' };
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
