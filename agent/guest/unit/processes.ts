/**
 * The consumer's processes, from /proc. Any of them may end, exec or be replaced at any moment, and some may not be
 * read: unknown facts are left out or named in `unreadable`, never guessed.
 */

import { constants, openSync, readdirSync, readlinkSync, statSync } from 'node:fs';
import { open, readdir } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout } from 'node:timers/promises';
import type { LibraryVendor, ProcessFacts, ProcessIdentity } from '../../contracts/facts.js';
import { errnoOf } from '../../lib/errors.js';
import { cdiVariable } from '../../lib/paths.js';
import { readLimited, readUpTo } from '../../lib/trust/files.js';
import { withoutTracer } from '../../systemd/unit-environment.js';
import type { ContentCache } from '../files/content.js';
import { openRegular } from '../files/root.js';
import { libraryOf } from '../libraries/candidates.js';

/** A process may make its maps hundreds of megabytes long (65 530 mappings of long paths); none that is honest comes near. */
const maxProcBytes = 16 * 1024 * 1024;
/** The variables that lead a process to the shim: the loader's, and the device of a container. */
const loaderVariables = ['LD_PRELOAD', 'LD_LIBRARY_PATH', cdiVariable];
const deletedMark = ' (deleted)';
/** The program with which PID 1 starts a service: itself, or since systemd 254 a helper; the service replaces it. */
const systemdsOwn = /\/systemd\/systemd(?:-executor)?$/;
const lookAgainMs = 10;
const looks = 4;

/**
 * Facts of those processes that still live when they are read, and run a program of their own: what PID 1 has forked
 * for a service has PID 1's environment until it executes the service's program. `proc` is where procfs is mounted.
 */
export async function readProcesses(
  pids: readonly number[],
  contents: ContentCache,
  proc = '/proc',
): Promise<readonly ProcessFacts[]> {
  const found = await Promise.all(pids.map((pid) => readProcess(pid, contents, proc)));
  return found.filter((one) => one !== null);
}

/** Null: unreadable. A tenth of the cost of asking systemd. */
export function cgroupPids(
  mainPid: number,
  unit: string,
  proc = '/proc',
  tree = cgroupTree,
): readonly number[] | null {
  const parts = cgroupOf(mainPid, proc)?.split('/') ?? [];
  const at = parts.lastIndexOf(unit);
  if (at === -1) return null;
  const { pids, whole } = pidsBelow(path.join(tree, ...parts.slice(0, at + 1)));
  return whole ? pids : null;
}

export const cgroupTree = '/sys/fs/cgroup';
/** A unit with Delegate= has groups of its own below, and systemd in a container makes one for each service. */
const maxCgroups = 64;

/** The path of the process's cgroup below the tree; null without cgroup v2. */
export function cgroupOf(pid: number, proc = '/proc'): string | null {
  return /^0::(\/.*)$/m.exec(textOf(path.join(proc, String(pid), 'cgroup')))?.[1] ?? null;
}

/** The processes of the cgroup and of those below. Not `whole`: there may be others. */
export function pidsBelow(directory: string): { readonly pids: readonly number[]; readonly whole: boolean } {
  const groups = [directory];
  const pids: string[] = [];
  let whole = true;
  // Those below are added while the list is read.
  for (const group of groups) {
    try {
      const below = readdirSync(group, { withFileTypes: true }).filter((entry) => entry.isDirectory());
      const room = Math.max(0, maxCgroups - groups.length);
      groups.push(...below.slice(0, room).map(({ name }) => path.join(group, name)));
      const text = readLimited(path.join(group, 'cgroup.procs'), maxProcBytes)?.toString('utf8');
      if (text === undefined || below.length > room) whole = false;
      pids.push(...(text ?? '').split('\n'));
    } catch {
      whole = false;
    }
  }
  // 0: a process that this PID namespace does not have (cgroups(7)).
  return { pids: pids.filter((line) => /^[1-9]\d*$/.test(line)).map(Number), whole };
}

/** Empty if it cannot be read. */
export function textOf(file: string): string {
  try {
    return readLimited(file, maxProcBytes)?.toString('utf8') ?? '';
  } catch {
    return '';
  }
}

export async function readIdentities(
  pids: readonly number[],
  proc = '/proc',
): Promise<readonly ProcessIdentity[]> {
  const found = await Promise.all(
    pids.map(async (pid): Promise<ProcessIdentity | null> => {
      const directory = path.join(proc, String(pid));
      const stat = await readStat(directory);
      return stat === null ? null : { ...(await numbersOf(pid, directory)), startTicks: stat.startTicks };
    }),
  );
  return found.filter((one) => one !== null);
}

async function numbersOf(pid: number, directory: string): Promise<Omit<ProcessIdentity, 'startTicks'>> {
  const namespacePid = innermostPid(await readProcFile(path.join(directory, 'status')));
  const pidNamespace = namespaceOf(readLink(path.join(directory, 'ns/pid')));
  return {
    pid,
    ...(namespacePid === null || namespacePid === pid ? {} : { namespacePid }),
    ...(pidNamespace === null ? {} : { pidNamespace }),
  };
}

async function readProcess(pid: number, contents: ContentCache, proc: string): Promise<ProcessFacts | null> {
  const directory = path.join(proc, String(pid));
  const before = await readStat(directory);
  if (before === null) return null;
  const unreadable: ('maps' | 'environ' | 'exe')[] = [];
  const image = await readImage(directory);
  if (image === null) return null;
  const { maps, environ, executable } = image;
  if (maps === 'denied') unreadable.push('maps');
  if (environ === 'denied') unreadable.push('environ');
  if (executable === 'denied') unreadable.push('exe');
  const numbers = await numbersOf(pid, directory);
  const variables = Buffer.isBuffer(environ) ? environmentOf(environ) : null;
  const forLoader = Object.fromEntries(
    Object.entries(variables ?? {}).filter(([name]) => loaderVariables.includes(name)),
  );
  const libraries = Buffer.isBuffer(maps) ? await readLibraries(directory, maps, contents) : [];
  // The number may have gone to another process meanwhile.
  const after = await readStat(directory);
  if (after === null || after.startTicks !== before.startTicks) return null;
  if (after.parent === 1 && systemdsOwn.test(withoutDeleted(executable ?? ''))) return null;
  return {
    ...numbers,
    parent: after.parent,
    name: after.name,
    startTicks: after.startTicks,
    executable: executable === 'denied' || executable === null ? null : withoutDeleted(executable),
    libraries,
    ...(variables !== null && !Object.hasOwn(variables, 'INVOCATION_ID') ? { environmentCleared: true } : {}),
    loaderEnvironment: withoutTracer(forLoader),
    ...(unreadable.length === 0 ? {} : { unreadable }),
  };
}

type ProcFile = Buffer | 'denied' | null;

/** The facts in /proc about one program, not two, if it executes another one meanwhile. Null: it kept doing so. */
async function readImage(directory: string): Promise<{
  readonly maps: ProcFile;
  readonly environ: ProcFile;
  readonly executable: string | null;
} | null> {
  const link = path.join(directory, 'exe');
  for (let look = 1; ; look += 1) {
    const executable = readLink(link);
    const [maps, environ] = await Promise.all([
      readProcFile(path.join(directory, 'maps')),
      readProcFile(path.join(directory, 'environ')),
    ]);
    const same = readLink(link) === executable;
    // The kernel shows an empty one in the middle of an exec.
    const empty = executable !== null && Buffer.isBuffer(environ) && environ.length === 0;
    if (same && (!empty || look === looks)) return { maps, environ, executable };
    if (look === looks) return null;
    await setTimeout(lookAgainMs);
  }
}

/** Unreadable processes are skipped: only root gets the complete answer. */
export async function mappedUnder(directory: string, proc = '/proc'): Promise<ReadonlySet<string>> {
  const prefix = directory.endsWith('/') ? directory : `${directory}/`;
  const mapped = new Set<string>();
  for (const name of await readdir(proc)) {
    if (!/^\d+$/.test(name)) continue;
    const maps = await readProcFile(path.join(proc, name, 'maps'));
    if (!Buffer.isBuffer(maps) || !maps.includes(prefix)) continue;
    for (const mapping of parseMaps(maps.toString('utf8'))) {
      if (!mapping.deleted && mapping.path.startsWith(prefix)) mapped.add(mapping.path);
    }
  }
  return mapped;
}

export interface Stat {
  readonly name: string;
  readonly parent: number;
  readonly startTicks: string;
}

/** /proc/PID/stat; comm may hold blanks and parentheses, so the last `)` ends it (proc(5)). */
export async function readStat(directory: string): Promise<Stat | null> {
  const bytes = await readProcFile(path.join(directory, 'stat'));
  if (!Buffer.isBuffer(bytes)) return null;
  const text = bytes.toString('utf8');
  const open = text.indexOf('(');
  const close = text.lastIndexOf(')');
  if (open === -1 || close < open) return null;
  const fields = text.slice(close + 2).split(' ');
  const [parent, startTicks] = [fields[1], fields[19]];
  if (parent === undefined || startTicks === undefined) return null;
  return { name: text.slice(open + 1, close), parent: Number(parent), startTicks };
}

/** `pid:[4026531836]`, the link of a namespace (namespaces(7)). */
function namespaceOf(link: string | null): number | null {
  const inode = /^pid:\[(\d+)\]$/.exec(link ?? '')?.[1];
  return inode === undefined ? null : Number(inode);
}

/** The last number of `NSpid:` in /proc/PID/status (proc_pid_status(5)); null where the kernel has none. */
function innermostPid(status: Buffer | 'denied' | null): number | null {
  if (!Buffer.isBuffer(status)) return null;
  const last = /^NSpid:.*?(\d+)$/m.exec(status.toString('utf8'))?.[1];
  return last === undefined ? null : Number(last);
}

export interface Mapping {
  /** As /proc/PID/map_files names it. */
  readonly range: string;
  /** `MAJOR:MINOR`, hexadecimal. */
  readonly device: string;
  readonly inode: string;
  readonly path: string;
  readonly deleted: boolean;
}

export function parseMaps(text: string): readonly Mapping[] {
  const mappings = new Map<string, Mapping>();
  for (const line of text.split('\n')) {
    const match = /^([0-9a-f]+)-([0-9a-f]+) \S+ [0-9a-f]+ ([0-9a-f]+:[0-9a-f]+) (\d+) +(\/.*)$/.exec(line);
    if (match === null) continue;
    const [, from = '0', to = '0', device = '', inode = '', shown = ''] = match;
    const key = `${device} ${inode} ${shown}`;
    if (mappings.has(key)) continue;
    const deleted = shown.endsWith(deletedMark);
    mappings.set(key, {
      range: `${BigInt(`0x${from}`).toString(16)}-${BigInt(`0x${to}`).toString(16)}`,
      device,
      inode,
      path: unescapePath(withoutDeleted(shown)),
      deleted,
    });
  }
  return [...mappings.values()];
}

async function readLibraries(
  directory: string,
  maps: Buffer,
  contents: ContentCache,
): Promise<ProcessFacts['libraries']> {
  const mappings = parseMaps(maps.toString('utf8')).filter(
    (one) => libraryOf(path.basename(one.path)) !== null,
  );
  return Promise.all(
    mappings.map(async (mapping) => ({
      path: mapping.path,
      deleted: mapping.deleted,
      vendor: await vendorOf(directory, mapping, contents),
    })),
  );
}

/**
 * The vendor of the mapped file, by its content: through map_files, which also works for a deleted file but needs
 * CAP_SYS_ADMIN; else by its path in the process's own root, if that is still the mapped file.
 */
async function vendorOf(
  directory: string,
  mapping: Mapping,
  contents: ContentCache,
): Promise<LibraryVendor | null> {
  const mapped = openMapped(path.join(directory, 'map_files', mapping.range));
  const descriptor = mapped ?? openByPath(directory, mapping);
  try {
    return (await contents.ofDescriptor(descriptor))?.vendor ?? null;
  } catch {
    return null;
  }
}

function openMapped(link: string): number | null {
  try {
    if (!statSync(link).isFile()) return null;
    return openSync(link, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch {
    return null;
  }
}

function openByPath(directory: string, mapping: Mapping): number | null {
  if (mapping.deleted) return null;
  try {
    const file = path.join(directory, 'root', mapping.path);
    if (String(statSync(file).ino) !== mapping.inode) return null;
    return openRegular(file, mapping.path);
  } catch {
    return null;
  }
}

/** The kernel escapes newlines only (seq_path with "\n"). */
function unescapePath(shown: string): string {
  return shown.replaceAll('\\012', '\n');
}

function withoutDeleted(shown: string): string {
  return shown.endsWith(deletedMark) ? shown.slice(0, -deletedMark.length) : shown;
}

/** The loader takes the last of several. */
export function environmentOf(environ: Buffer): Readonly<Record<string, string>> {
  return Object.fromEntries(
    environ
      .toString('utf8')
      .split('\0')
      .flatMap((assignment) => {
        const equals = assignment.indexOf('=');
        return equals > 0 ? [[assignment.slice(0, equals), assignment.slice(equals + 1)]] : [];
      }),
  );
}

/** Null when the process is gone; a zombie's files read empty. */
async function readProcFile(file: string): Promise<ProcFile> {
  try {
    const handle = await open(file);
    try {
      return readUpTo(handle.fd, maxProcBytes).bytes;
    } finally {
      await handle.close();
    }
  } catch (error) {
    const code = errnoOf(error);
    return code === 'EACCES' || code === 'EPERM' ? 'denied' : null;
  }
}

function readLink(file: string): string | 'denied' | null {
  try {
    return readlinkSync(file);
  } catch (error) {
    const code = errnoOf(error);
    return code === 'EACCES' || code === 'EPERM' ? 'denied' : null;
  }
}
