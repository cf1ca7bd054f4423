/** Which libcuda and libnvidia-ml the loader takes for each process of the consumer, and for its next start. */
import path from 'node:path';
import type { LibraryVendor, MachineFacts } from '../../../contracts/facts.js';
import { changeableByOthers } from '../../../lib/trust/files.js';
import type { ContentCache } from '../../files/content.js';
import type { Root } from '../../files/root.js';
import { canLoad, describeLoadCheck } from '../../unit/access.js';
import { askLoader, type LoaderEffects, type LoaderRequest, type Starting } from './ask.js';
import { interpreterOf } from './interpreter.js';
import { type Subject, subjectsOf } from './subjects.js';
import type { Attempt, LoaderWords } from './words.js';

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

/** A library of the consumer's own that needs one of the two. */
export interface Opener {
  readonly path: string;
  readonly needed: readonly string[];
}

export interface LoaderQuestion extends LoaderEffects {
  readonly root: Root;
  readonly contents: ContentCache;
  readonly facts: MachineFacts;
  readonly openers: readonly Opener[];
}

const names: readonly DriverLibrary[] = ['libcuda.so.1', 'libnvidia-ml.so.1'];
/** Ollama has one for each CUDA version. The directory may be the service's user's. */
const mostOpeners = 4;

/** Never throws for what may not be read: then there is nothing to say of that process. */
export async function lookAtLoader(question: LoaderQuestion): Promise<LoaderLook> {
  // Processes that the loader would serve alike are one question.
  const asked = new Map<string, Promise<readonly LoaderChoice[] | string>>();
  const answers = await Promise.all(
    subjectsOf(question.root, question.facts).map(async (subject) => {
      const known = asked.get(subject.key) ?? choicesOf(question, subject).catch(String);
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

/** The choices, or why there are none. */
async function choicesOf(
  question: LoaderQuestion,
  subject: Subject,
): Promise<readonly LoaderChoice[] | string> {
  const { root, unit, executable } = subject;
  const interpreter = interpreterOf(root, executable);
  if (interpreter === null) return 'no dynamic loader starts this program';
  // A program names what starts it. Only a loader that root alone could have put there is run.
  const changeable = changeableByOthers(path.join(unit.sandbox.rootDirectory, interpreter));
  if (changeable !== null) {
    return `it is started by ${interpreter}, and another user than root can change ${changeable}, so it was not run`;
  }
  if (!(await isGlibc(question, subject, interpreter))) {
    return `it is started by ${interpreter}, which is not glibc's loader and cannot show what it chooses`;
  }
  const resolution = root.resolve(executable);
  const program = resolution.kind === 'file' ? resolution.realPath : executable;
  const starting: Starting = { ...subject, interpreter, program };
  const ask = (request: LoaderRequest): Promise<LoaderWords | string> =>
    askLoader(question, starting, request);

  const plain = await ask({ open: [], libraryPath: null });
  if (typeof plain === 'string') return plain;
  const choices: LoaderChoice[] = [];
  for (const library of names) {
    const choice = await judge(question, subject, plain, library, null);
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
    const choice = opened === null ? null : await judge(question, subject, opened, library, null);
    choices.push(choice ?? { library, neededBy: null, outcome: { kind: 'not-found' }, passedOver: [] });
  }
  return [...choices, ...(await choicesOfOpeners(question, subject, ask))];
}

/** Another loader (musl's) ignores LD_TRACE_LOADED_OBJECTS and would run the program. */
async function isGlibc(
  { contents }: LoaderQuestion,
  { root }: Subject,
  interpreter: string,
): Promise<boolean> {
  const resolution = root.resolve(interpreter);
  if (resolution.kind !== 'file') return false;
  const content = await contents.of(root.prefix + resolution.realPath, interpreter);
  const soname = content?.elf.kind === 'elf' ? content.elf.facts.soname : null;
  return soname !== null && /^ld(-linux[\w.-]*|64)\.so\.\d+$/.test(soname);
}

async function choicesOfOpeners(
  question: LoaderQuestion,
  subject: Subject,
  ask: (request: LoaderRequest) => Promise<LoaderWords | string>,
): Promise<readonly LoaderChoice[]> {
  const given = subject.secure ? '' : (subject.environment['LD_LIBRARY_PATH'] ?? '');
  // The loader would take a blank or a colon for the end of the name.
  const openers = question.openers.filter((one) => !/[\s:;]/.test(one.path)).slice(0, mostOpeners);
  const found = await Promise.all(
    openers.map(async (opener) => {
      // A consumer puts the directory of its library and the one above before all others.
      const own = path.dirname(opener.path);
      const list = [path.dirname(own), own, given].filter((one) => one !== '');
      const words = await ask({ open: [opener.path], libraryPath: list.join(':') });
      if (typeof words === 'string') return [];
      const needed = names.filter((name) => opener.needed.includes(name));
      return Promise.all(needed.map((library) => judge(question, subject, words, library, opener.path)));
    }),
  );
  return found.flat().filter((one) => one !== null);
}

/** The loader's answer about one library; null: it was not asked for. */
async function judge(
  question: LoaderQuestion,
  subject: Subject,
  words: LoaderWords,
  library: DriverLibrary,
  neededBy: string | null,
): Promise<LoaderChoice | null> {
  const search = words.searches.findLast(({ name }) => name === library);
  const attempts = search?.attempts ?? [];
  const last = attempts.at(-1);
  const found = await listed(question, subject, words, library);
  if (found !== null) {
    const by = search === undefined ? namedBy(subject.root, found) : (last?.by ?? 'ld.so.cache');
    const before = attempts.filter((one) => one.path !== found);
    const outcome = await foundOutcome(question, subject, found, by);
    return { library, neededBy, outcome, passedOver: await passedOver(question, subject, before) };
  }
  if (search === undefined) return null;
  if (!search.finished && last !== undefined) {
    const reason = (await whyNot(question, subject, last.path)) ?? words.complaint ?? 'it cannot be loaded';
    const before = await passedOver(question, subject, attempts.slice(0, -1));
    return { library, neededBy, outcome: { kind: 'refused', path: last.path, reason }, passedOver: before };
  }
  const outcome = { kind: 'not-found' } as const;
  return { library, neededBy, outcome, passedOver: await passedOver(question, subject, attempts) };
}

/** The path of the object that answers to the name: by what asked for it, or by its SONAME. */
async function listed(
  { contents }: LoaderQuestion,
  { root, directory }: Subject,
  { objects }: LoaderWords,
  library: DriverLibrary,
): Promise<string | null> {
  for (const { name, path: listedAt } of objects ?? []) {
    if (listedAt === null) continue;
    const found = path.resolve(directory, listedAt);
    if (name === library) return found;
    if (name !== listedAt) continue;
    const real = root.resolve(found);
    if (real.kind !== 'file') continue;
    const content = await contents.of(root.prefix + real.realPath, found).catch(() => null);
    if (content?.elf.kind === 'elf' && content.elf.facts.soname === library) return found;
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
  { contents }: LoaderQuestion,
  { root }: Subject,
  found: string,
  by: string,
): Promise<LoaderChoice['outcome']> {
  const resolution = root.resolve(found);
  const realPath = resolution.kind === 'file' ? resolution.realPath : found;
  const content = await contents.of(root.prefix + realPath, found).catch(() => null);
  return { kind: 'found', path: found, realPath, by, vendor: content?.vendor ?? null };
}

async function passedOver(
  question: LoaderQuestion,
  subject: Subject,
  attempts: readonly Attempt[],
): Promise<readonly string[]> {
  const lines: string[] = [];
  for (const { path: tried, by } of attempts) {
    const reason = await whyNot(question, subject, tried);
    if (reason !== null) lines.push(`tried ${tried} (${by}): ${reason}`);
  }
  return lines;
}

/** Why a file that is there was not taken; null: nothing is there, or nothing is wrong with it. */
async function whyNot(
  { runner, contents, facts }: LoaderQuestion,
  { root, directory }: Subject,
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
