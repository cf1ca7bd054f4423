/** Which libcuda and libnvidia-ml the loader takes for each process of the consumer, and for its next start. */
import { closeSync, readFileSync, readlinkSync } from 'node:fs';
import path from 'node:path';
import type { LibraryVendor, MachineFacts, ProcessFacts } from '../../contracts/facts.js';
import type { LoadedUnit } from '../../contracts/unit.js';
import { changeableByOthers } from '../../lib/trust/files.js';
import { descriptorSource, readInterpreter } from '../elf.js';
import { type ContentCache, contentAt, elfAt } from '../files/content.js';
import { Root } from '../files/root.js';
import { canLoad, describeLoadCheck } from '../unit/access.js';
import {
  type Attempt,
  askLoader,
  type LoaderEffects,
  type LoaderRequest,
  type LoaderWords,
  type Starting,
} from './ask-loader.js';
import { isSecure } from './process.js';

export interface LoaderChoice {
  readonly library: DriverLibrary;
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
  /** Functions of the library that `neededBy` needs and nothing provides. */
  readonly missing: readonly string[];
}

export type DriverLibrary = 'libcuda.so.1' | 'libnvidia-ml.so.1';

export interface ProcessChoices {
  /** Null: the next start of the unit. */
  readonly pid: number | null;
  readonly name: string;
  readonly executable: string;
  readonly choices: readonly LoaderChoice[];
}

export interface LoaderLook {
  readonly processes: readonly ProcessChoices[];
  /** Why the loader could not be asked, or not for all; null when it was. */
  readonly problem: string | null;
}

export interface Opener {
  readonly path: string;
  readonly needed: readonly string[];
}

interface LoaderQuestion extends LoaderEffects {
  readonly root: Root;
  readonly contents: ContentCache;
  readonly facts: MachineFacts;
  readonly openers: readonly Opener[];
}

const names: readonly DriverLibrary[] = ['libcuda.so.1', 'libnvidia-ml.so.1'];
/** cuBLAS, the runtime and the others write on in lower case. */
const functions: Readonly<Record<DriverLibrary, RegExp>> = {
  'libcuda.so.1': /^cu[A-Z]/,
  'libnvidia-ml.so.1': /^nvml[A-Z]/,
};
/** Ollama has one for each CUDA version. The directory may be the service's user's. */
const mostOpeners = 4;

/** Never throws for what may not be read: then there is nothing to say of that process. */
export async function lookAtLoader(question: LoaderQuestion): Promise<LoaderLook> {
  // Processes that the loader would serve alike are one question.
  const asked = new Map<string, Promise<readonly LoaderChoice[] | string>>();
  const answers = await Promise.all(
    subjectsOf(question.root, question.facts).map(async (subject) => {
      const known = asked.get(subject.key) ?? choicesOf({ ...question, ...subject }).catch(String);
      asked.set(subject.key, known);
      return { subject, choices: await known };
    }),
  );
  const processes = answers.flatMap(({ subject: { pid, name, executable }, choices }) =>
    typeof choices === 'string' ? [] : [{ pid, name, executable, choices }],
  );
  // A script or a static program has no loader of its own; that is no reason to worry about the others.
  const failed = answers.find(({ choices }) => typeof choices === 'string');
  const problem = failed === undefined ? null : `${failed.subject.executable}: ${String(failed.choices)}`;
  return { processes, problem };
}

/** A subject, with what is needed to look at it; `root` is the subject's. */
type Case = LoaderQuestion & Subject;

async function choicesOf(one: Case): Promise<readonly LoaderChoice[] | string> {
  const { root, unit, executable } = one;
  const interpreter = interpreterOf(root, executable);
  if (interpreter === null) return 'no dynamic loader starts this program';
  // A program names what starts it. Only a loader that root alone could have put there is run.
  const changeable = changeableByOthers(path.join(unit.sandbox.rootDirectory, interpreter));
  if (changeable !== null) {
    return `it is started by ${interpreter}, and another user than root can change ${changeable}, so it was not run`;
  }
  if (!(await isGlibc(one, interpreter))) {
    return `it is started by ${interpreter}, which is not glibc's loader and cannot show what it chooses`;
  }
  const resolution = root.resolve(executable);
  const program = resolution.kind === 'file' ? resolution.realPath : executable;
  const starting: Starting = { ...one, interpreter, program };
  const ask = (request: LoaderRequest) => askLoader(one, starting, request);

  const plain = await ask({ open: [], libraryPath: null });
  if (typeof plain === 'string') return plain;
  const choices: LoaderChoice[] = [];
  for (const library of names) {
    const choice = await judge(one, plain, library, null);
    if (choice !== null) choices.push(choice);
  }
  if (plain.objects === null) {
    return choices.length > 0 ? choices : (plain.complaint ?? 'the loader does not start it');
  }
  // A library that is not loaded at the start is what dlopen() would find later.
  const open = names.filter((name) => !choices.some(({ library }) => library === name));
  const opened = open.length === 0 ? null : await ask({ open, libraryPath: null });
  if (typeof opened === 'string') return opened;
  for (const library of open) {
    const choice = opened === null ? null : await judge(one, opened, library, null);
    const none = { outcome: { kind: 'not-found' }, passedOver: [], missing: [] } as const;
    choices.push(choice ?? { library, neededBy: null, ...none });
  }
  return [...choices, ...(await choicesOfOpeners(one, ask))];
}

/** Another loader (musl's) ignores LD_TRACE_LOADED_OBJECTS and would run the program. */
async function isGlibc({ root, contents }: Case, interpreter: string): Promise<boolean> {
  const soname = (await elfAt(root, interpreter, contents))?.soname;
  return /^ld(-linux[\w.-]*|64)\.so\.\d+$/.test(soname ?? '');
}

async function choicesOfOpeners(
  one: Case,
  ask: (request: LoaderRequest) => Promise<LoaderWords | string>,
): Promise<readonly LoaderChoice[]> {
  const given = one.secure ? '' : (one.environment['LD_LIBRARY_PATH'] ?? '');
  // The loader would take a blank or a colon for the end of the name.
  const openers = one.openers.filter((opener) => !/[\s:;]/.test(opener.path)).slice(0, mostOpeners);
  const found = await Promise.all(
    openers.map(async (opener) => {
      // A consumer puts the directory of its library and the one above before all others.
      const own = path.dirname(opener.path);
      const list = [path.dirname(own), own, given].filter((directory) => directory !== '');
      const words = await ask({ open: [opener.path], libraryPath: list.join(':'), bind: true });
      if (typeof words === 'string') return [];
      const needed = names.filter((name) => opener.needed.includes(name));
      return Promise.all(needed.map((library) => judge(one, words, library, opener.path)));
    }),
  );
  return found.flat().filter((choice) => choice !== null);
}

async function judge(
  one: Case,
  words: LoaderWords,
  library: DriverLibrary,
  neededBy: string | null,
): Promise<LoaderChoice | null> {
  const search = words.searches.findLast(({ name }) => name === library);
  const attempts = search?.attempts ?? [];
  const last = attempts.at(-1);
  const choice = async (
    outcome: LoaderChoice['outcome'],
    before: readonly Attempt[],
    missing: readonly string[] = [],
  ) => ({ library, neededBy, outcome, passedOver: await passedOver(one, before), missing });
  const found = await listed(one, words, library);
  if (found !== null) {
    const by = search === undefined ? namedBy(one.root, found) : (last?.by ?? 'ld.so.cache');
    const missing = words.missing
      .filter(({ symbol, file }) => file === neededBy && functions[library].test(symbol))
      .map(({ symbol }) => symbol);
    const before = attempts.filter((attempt) => attempt.path !== found);
    return choice(await foundOutcome(one, found, by), before, missing);
  }
  if (search === undefined) return null;
  if (search.finished || last === undefined) return choice({ kind: 'not-found' }, attempts);
  const reason = (await whyNot(one, last.path)) ?? words.complaint ?? 'it cannot be loaded';
  return choice({ kind: 'refused', path: last.path, reason }, attempts.slice(0, -1));
}

/** The path of the object that answers to the name: by what asked for it, or by its SONAME. */
async function listed(
  { root, directory, contents }: Case,
  { objects }: LoaderWords,
  library: DriverLibrary,
): Promise<string | null> {
  for (const { name, path: listedAt } of objects ?? []) {
    if (listedAt === null) continue;
    const found = path.resolve(directory, listedAt);
    if (name === library) return found;
    if (name !== listedAt) continue;
    if ((await elfAt(root, found, contents))?.soname === library) return found;
  }
  return null;
}

const maxPreloadBytes = 64 * 1024;

/** A library that is listed without a search was named with its path. */
function namedBy(root: Root, file: string): string {
  const global = root.readFile('/etc/ld.so.preload', maxPreloadBytes)?.toString('utf8') ?? '';
  return global.split(/[\s:]+/).includes(file) ? '/etc/ld.so.preload' : 'LD_PRELOAD';
}

async function foundOutcome(
  { root, contents }: Case,
  found: string,
  by: string,
): Promise<LoaderChoice['outcome']> {
  const resolution = root.resolve(found);
  const realPath = resolution.kind === 'file' ? resolution.realPath : found;
  const content = await contentAt(root, found, contents).catch(() => null);
  return { kind: 'found', path: found, realPath, by, vendor: content?.vendor ?? null };
}

async function passedOver(one: Case, attempts: readonly Attempt[]): Promise<readonly string[]> {
  const lines: string[] = [];
  for (const { path: tried, by } of attempts) {
    const reason = await whyNot(one, tried);
    if (reason !== null) lines.push(`tried ${tried} (${by}): ${reason}`);
  }
  return lines;
}

/** Why a file that is there was not taken; null: nothing is there, or nothing is wrong with it. */
async function whyNot(
  { root, directory, runner, contents, facts }: Case,
  tried: string,
): Promise<string | null> {
  const file = path.resolve(directory, tried);
  try {
    if (root.lstat(file) === null) return null;
    const { serviceUser, distribution } = facts;
    const check = await canLoad(
      { runner, contents, architecture: distribution.architecture },
      serviceUser,
      file,
    );
    return check.kind === 'loadable' ? null : describeLoadCheck(file, serviceUser, check);
  } catch {
    return null;
  }
}

/** The loader that a program names; null for a static program, a script, and what may not be read. */
function interpreterOf(root: Root, executable: string): string | null {
  const descriptor = root.open(executable);
  if (descriptor === null) return null;
  try {
    return readInterpreter(descriptorSource(descriptor));
  } finally {
    closeSync(descriptor);
  }
}

// The subjects of the loader check: the unit's processes as they were started, and its next start.

interface Subject extends Omit<Starting, 'interpreter' | 'program'> {
  /** Null: the next start of the unit. */
  readonly pid: number | null;
  readonly name: string;
  readonly executable: string;
  readonly root: Root;
  /** AT_SECURE: set-user-ID, file capabilities. The loader then ignores the variables of the environment. */
  readonly secure: boolean;
  readonly key: string;
}

/** A service may have thousands of processes; the first ones are the oldest. */
const mostProcesses = 16;

function subjectsOf(root: Root, facts: MachineFacts): readonly Subject[] {
  const { unit, processes } = facts;
  if (unit.kind !== 'loaded') return [];
  const live = processes.slice(0, mostProcesses).map((one) => liveProcess(facts, unit, one));
  return [...live, nextStart(root, facts, unit)].filter((one) => one !== null);
}

function nextStart(root: Root, facts: MachineFacts, unit: LoadedUnit): Subject | null {
  const [executable] = unit.execStart;
  if (executable === undefined || !executable.startsWith('/')) return null;
  // Rights that the program gains at this exec, it gains again at the next one.
  const secure = facts.processes.some((one) => one.executable === executable && isSecure(one.pid) === true);
  const { rootDirectory } = unit.sandbox;
  const whole = { environment: unit.environment, environmentFiles: unit.environmentFiles };
  return {
    ...(secure ? { environment: {}, environmentFiles: [] } : whole),
    pid: null,
    name: path.basename(executable),
    executable,
    root: rootDirectory === '' ? root : new Root(root.prefix + rootDirectory),
    secure,
    unit,
    directory: '/',
    user: null,
    key: 'next start',
  };
}

/** Null when it has ended, is closed to us, or lives in a file system of its own, where the unit's loader is not its. */
function liveProcess(
  { serviceUser }: MachineFacts,
  unit: LoadedUnit,
  { pid, name, executable, loaderEnvironment, unreadable = [] }: ProcessFacts,
): Subject | null {
  if (executable === null || unreadable.includes('environ')) return null;
  try {
    const proc = `/proc/${pid}`;
    if (unit.mainPid !== 0 && mountsOf(pid) !== mountsOf(unit.mainPid)) return null;
    const status = readFileSync(`${proc}/status`, 'utf8');
    const uid = Number(/^Uid:\t\d+\t(\d+)/m.exec(status)?.[1]);
    const gid = Number(/^Gid:\t\d+\t(\d+)/m.exec(status)?.[1]);
    const groups = /^Groups:\t(.*)$/m.exec(status)?.[1]?.trim().split(/\s+/).filter(Boolean).map(Number);
    const secure = isSecure(pid);
    if (!Number.isInteger(uid) || !Number.isInteger(gid) || secure === null) return null;
    const environment = secure ? {} : loaderEnvironment;
    const directory = readlinkSync(`${proc}/cwd`);
    const user = uid === serviceUser?.uid ? null : { uid, gid, groups: groups ?? [] };
    return {
      pid,
      name,
      executable,
      root: new Root(`${proc}/root`),
      secure,
      unit,
      environment,
      environmentFiles: [],
      directory,
      user,
      key: JSON.stringify([executable, environment, directory, user, secure]),
    };
  } catch {
    return null;
  }
}

function mountsOf(pid: number): string {
  return readlinkSync(`/proc/${pid}/ns/mnt`);
}
