/** Which libcuda and libnvidia-ml the loader takes for each process of the consumer, and for its next start. */
import { closeSync, readFileSync, readlinkSync } from 'node:fs';
import path from 'node:path';
import type { LibraryVendor, MachineFacts } from '../../contracts/facts.js';
import { descriptorSource } from '../../machine/elf/elf-bytes.js';
import type { ContentCache } from '../../machine/files/content.js';
import { Root } from '../../machine/files/root.js';
import type { CommandRunner } from '../../run-command.js';
import { changeableByOthers } from '../../trust/files.js';
import { readLoading } from './elf-loading.js';
import { type LoaderRuntime, readLoaderRuntime } from './loader-runtime.js';
import { simulateLoader } from './loader-simulation.js';
import type { LoaderStep, LoadingProcess, LoadResult, SimulatedLoader } from './loader-types.js';
import { type LoadingUser, loaderView } from './loader-view.js';
import { isSecure } from './process-security.js';

export interface LoaderChoice {
  readonly library: 'libcuda.so.1' | 'libnvidia-ml.so.1';
  /** The library of the consumer's whose need it is; null: dlopen() by name from the program. */
  readonly neededBy: string | null;
  readonly outcome:
    | {
        readonly kind: 'found';
        readonly path: string;
        readonly realPath: string;
        /** `LD_PRELOAD`, `ld.so.cache`, `DT_RPATH of ...`. */
        readonly by: string;
        readonly vendor: LibraryVendor | null;
      }
    | { readonly kind: 'not-found' }
    | { readonly kind: 'refused'; readonly path: string; readonly reason: string };
  /** Files on the way that the loader did not take, with why: `tried X: 32-bit i386: ...`. */
  readonly passedOver: readonly string[];
}

export interface ProcessChoices {
  /** Null: the next start of the unit. */
  readonly pid: number | null;
  readonly name: string;
  readonly executable: string;
  readonly choices: readonly LoaderChoice[];
}

export interface LoaderLook {
  readonly processes: readonly ProcessChoices[];
  /** Why nothing could be simulated, or not for all; null when all were. */
  readonly problem: string | null;
}

export interface LoaderQuestion {
  readonly root: Root;
  readonly runner: CommandRunner;
  readonly contents: ContentCache;
  readonly facts: MachineFacts;
  /** Paths of the consumer's own libraries that need one of the two. */
  readonly openers: readonly string[];
}

const names = ['libcuda.so.1', 'libnvidia-ml.so.1'] as const;

interface Subject {
  readonly pid: number | null;
  readonly name: string;
  readonly root: Root;
  readonly process: LoadingProcess;
  readonly user: LoadingUser | null;
}

/** Never throws for what may not be read: then there is nothing to say of that process. */
export async function lookAtLoader(question: LoaderQuestion): Promise<LoaderLook> {
  const { facts } = question;
  const next = nextStart(question);
  const live = facts.processes.map(({ pid, name, executable }) => liveProcess(pid, name, executable));
  const subjects = [...live, next].filter((one) => one !== null);
  const processes: ProcessChoices[] = [];
  const runtimes = new Map<string, Promise<LoaderRuntime | null>>();
  const runtimeOf: RuntimeOf = (interpreter, user) => {
    const key = `${user?.uid ?? 'root'} ${interpreter}`;
    const known = runtimes.get(key) ?? readLoaderRuntime(question.runner, interpreter, user);
    runtimes.set(key, known);
    return known;
  };
  let problem: string | null = null;
  for (const subject of subjects) {
    const choices = await choicesOf(question, subject, runtimeOf).catch((error: unknown) =>
      error instanceof Error ? error.message : String(error),
    );
    if (typeof choices === 'string') {
      // A script or a static program has no loader of its own; that is no reason to worry about the others.
      problem ??= `${subject.process.executable}: ${choices}`;
      continue;
    }
    const { pid, name } = subject;
    processes.push({ pid, name, executable: subject.process.executable, choices });
  }
  return { processes, problem };
}

/** What systemd would start now, with Environment= as it is in force. */
function nextStart({ root, facts }: LoaderQuestion): Subject | null {
  const { unit, serviceUser } = facts;
  const [executable] = unit.kind === 'loaded' ? unit.execStart : [];
  if (unit.kind !== 'loaded' || executable === undefined || !executable.startsWith('/')) return null;
  // What the program gains at exec it gains again at the next.
  const secure = facts.processes.some((one) => one.executable === executable && isSecure(one.pid) === true);
  return {
    pid: null,
    name: path.basename(executable),
    root,
    process: { executable, environment: unit.environment, directory: '/', secure },
    user: serviceUser,
  };
}

function liveProcess(pid: number, name: string, executable: string | null): Subject | null {
  if (executable === null) return null;
  try {
    const proc = `/proc/${pid}`;
    const status = readFileSync(`${proc}/status`, 'utf8');
    const uid = /^Uid:\t\d+\t(\d+)/m.exec(status)?.[1];
    const gid = /^Gid:\t\d+\t(\d+)/m.exec(status)?.[1];
    const groups = /^Groups:\t(.*)$/m.exec(status)?.[1]?.trim().split(/\s+/) ?? [];
    const secure = isSecure(pid);
    if (uid === undefined || gid === undefined || secure === null) return null;
    return {
      pid,
      name,
      root: new Root(`${proc}/root`),
      process: {
        executable,
        environment: environmentOf(readFileSync(`${proc}/environ`)),
        directory: readlinkSync(`${proc}/cwd`),
        secure,
      },
      user: { uid: Number(uid), groups: [gid, ...groups].map(Number) },
    };
  } catch {
    return null;
  }
}

/** `/proc/PID/environ`: what a process was started with. */
export function environmentOf(environ: Buffer): Readonly<Record<string, string>> {
  const values: Record<string, string> = {};
  for (const assignment of environ.toString('utf8').split('\0')) {
    const equals = assignment.indexOf('=');
    if (equals > 0) values[assignment.slice(0, equals)] = assignment.slice(equals + 1);
  }
  return values;
}

type RuntimeOf = (interpreter: string, user: LoadingUser | null) => Promise<LoaderRuntime | null>;

/** The choices, or why there are none. */
async function choicesOf(
  question: LoaderQuestion,
  { root, process, user }: Subject,
  runtimeOf: RuntimeOf,
): Promise<readonly LoaderChoice[] | string> {
  const { facts, contents, openers } = question;
  const { architecture } = facts.distribution;
  const interpreter = interpreterOf(root, process.executable);
  if (interpreter === null) return 'it is no program that a dynamic loader starts';
  // A program names what starts it. Only a loader that root alone could have put there is run, and never by root.
  const changeable = changeableByOthers(interpreter);
  if (changeable !== null) {
    return `it is started by ${interpreter}, and another user than root can change ${changeable}; that is not run`;
  }
  const runtime = await runtimeOf(interpreter, user);
  if (runtime === null)
    return 'the loader of this system says nothing of itself (glibc before 2.33, or another)';
  const view = loaderView(root, runtime, architecture, user);
  const start = (environment: LoadingProcess['environment']): SimulatedLoader | null =>
    simulateLoader(view, runtime, { ...process, environment });
  if (start(process.environment) === null) return 'it may not be read by the user of the service';

  const choices: LoaderChoice[] = [];
  for (const neededBy of [null, ...openers]) {
    for (const library of names) {
      const loader = start(neededBy === null ? process.environment : asChild(process.environment, neededBy));
      const result = loader === null ? null : resultFor(loader, library, neededBy);
      if (result === null) continue;
      const outcome = await outcomeOf(result, root, contents);
      choices.push({ library, neededBy, outcome, passedOver: passedOver(result.steps) });
    }
  }
  return choices;
}

function interpreterOf(root: Root, executable: string): string | null {
  const descriptor = root.open(executable);
  if (descriptor === null) return null;
  try {
    const reading = readLoading(descriptorSource(descriptor));
    return reading.kind === 'elf' ? reading.facts.interpreter : null;
  } finally {
    closeSync(descriptor);
  }
}

/** A consumer puts the directory of its library and the one above before everybody else's. */
function asChild(environment: LoadingProcess['environment'], library: string): LoadingProcess['environment'] {
  const own = path.dirname(library);
  const list = [path.dirname(own), own, environment['LD_LIBRARY_PATH'] ?? ''];
  return { ...environment, LD_LIBRARY_PATH: list.filter((one) => one !== '').join(':') };
}

/** Null when that library does not need it. */
function resultFor(loader: SimulatedLoader, library: string, neededBy: string | null): LoadResult | null {
  if (neededBy === null) return loader.open(library).result;
  const { mapped, missing } = loader.open(neededBy);
  const trouble = missing.find(({ name }) => name === library);
  if (trouble !== undefined) return trouble.result;
  const needs = mapped.some(({ file }) => file.needed.includes(library));
  if (!needs) return null;
  const object =
    mapped.find(({ file, path: found }) => file.soname === library || path.basename(found) === library) ??
    loader.loaded(library);
  return object === null ? null : { kind: 'found', object, already: true, steps: [] };
}

async function outcomeOf(
  result: LoadResult,
  root: Root,
  contents: ContentCache,
): Promise<LoaderChoice['outcome']> {
  switch (result.kind) {
    case 'not-found':
      return { kind: 'not-found' };
    case 'refused':
      return { kind: 'refused', path: result.path, reason: result.reason };
    case 'found': {
      const { path: found, file, by } = result.object;
      const content = await contents.of(root.prefix + file.realPath, found).catch(() => null);
      return { kind: 'found', path: found, realPath: file.realPath, by, vendor: content?.vendor ?? null };
    }
  }
}

function passedOver(steps: readonly LoaderStep[]): readonly string[] {
  return steps
    .filter(({ reason }) => reason !== null)
    .map(({ path: tried, by, reason }) => `tried ${tried} (${by}): ${reason}`);
}
