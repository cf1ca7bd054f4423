/** The file system as a process sees it, for the simulation of its loader: links, permissions, ELF headers. */
import fs from 'node:fs';
import path from 'node:path';
import type { ElfFacts, LoaderCacheEntry } from '../../contracts/facts.js';
import { nativeElf } from '../../machine/elf/elf.js';
import { descriptorSource } from '../../machine/elf/elf-bytes.js';
import type { Root } from '../../machine/files/root.js';
import { parseLoaderCache } from '../../machine/libraries/loader-cache.js';
import { type LoadingFacts, readLoading } from './elf-loading.js';
import type { LoaderRuntime } from './loader-runtime.js';
import type { LoaderView, Opened } from './loader-types.js';

/** Whose permissions count: of the process, not ours. */
export interface LoadingUser {
  readonly uid: number;
  readonly groups: readonly number[];
}

const maxCacheBytes = 32 * 1024 * 1024;
const maxPreloadBytes = 64 * 1024;
const elfHeaderBytes = 64;

/** ABI words of the cache's entries, as `ldconfig -p` prints them, for what this machine loads. */
const cacheAbi: Readonly<Record<string, string>> = {
  x86_64: 'libc6,x86-64',
  aarch64: 'libc6,AArch64',
  ppc64: 'libc6,64bit',
  s390: 'libc6,64bit',
};

/**
 * A view through `root` (which may be `/proc/PID/root`: the process's own mounts) with the permissions of
 * `user`; null is root, whom none stop. Permission bits count, access control lists do not.
 */
export function loaderView(
  root: Root,
  runtime: LoaderRuntime,
  architecture: string,
  user: LoadingUser | null,
): LoaderView {
  const opened = new Map<string, Opened>();
  const cache = readCache(root, runtime, architecture);
  return {
    open: (file) => {
      const known = opened.get(file) ?? openFile(root, architecture, user, file);
      opened.set(file, known);
      return known;
    },
    preloadFile: readText(root, '/etc/ld.so.preload'),
    cached: (name) => cache.get(name) ?? null,
  };
}

function openFile(root: Root, architecture: string, user: LoadingUser | null, file: string): Opened {
  const resolution = root.resolve(file);
  switch (resolution.kind) {
    case 'absent':
      return { kind: 'absent' };
    case 'dangling':
      return { kind: 'passed-over', reason: `it leads to ${resolution.missing}, which does not exist` };
    case 'loop':
      return { kind: 'passed-over', reason: 'its links go round in a circle' };
    case 'directory':
      return { kind: 'refused', reason: 'it is a directory' };
    case 'file':
      break;
  }
  const closed = user === null ? null : firstClosed(root, resolution.realPath, user);
  if (closed !== null) {
    const where = closed === resolution.realPath ? '' : `: ${closed} is closed to it`;
    return { kind: 'passed-over', reason: `user ${user?.uid ?? 0} may not read it${where}` };
  }
  const descriptor = root.open(file);
  if (descriptor === null) return { kind: 'refused', reason: 'it is no regular file' };
  try {
    const stats = fs.fstatSync(descriptor);
    const source = descriptorSource(descriptor);
    if (source.size < elfHeaderBytes)
      return { kind: 'refused', reason: `${source.size} bytes: file too short` };
    const reading = readLoading(source);
    if (reading.kind === 'problem') return { kind: 'refused', reason: reading.reason };
    return judge(reading.facts, architecture, resolution.realPath, stats);
  } finally {
    fs.closeSync(descriptor);
  }
}

function judge(facts: LoadingFacts, architecture: string, realPath: string, stats: fs.Stats): Opened {
  const wanted = nativeElf(architecture);
  if (wanted !== null && (facts.class !== wanted.class || facts.machine !== wanted.machine)) {
    return { kind: 'passed-over', reason: `${facts.class}-bit ${facts.machine}: not for this process` };
  }
  if (!loadableTypes.includes(facts.type)) {
    return { kind: 'refused', reason: `its ELF type is ${facts.type}` };
  }
  return {
    kind: 'library',
    file: {
      realPath,
      identity: `${stats.dev}:${stats.ino}`,
      soname: facts.soname,
      needed: facts.needed,
      rpath: facts.rpath,
      runpath: facts.runpath,
      noDefaultDirectories: facts.noDefaultDirectories,
      interpreter: facts.interpreter,
      setUserId: (stats.mode & 0o4000) !== 0,
    },
  };
}

const loadableTypes: readonly ElfFacts['type'][] = ['dyn', 'exec'];

/** The first directory on the way that the user may not enter, or the file itself if it may not be read. */
function firstClosed(root: Root, realPath: string, user: LoadingUser): string | null {
  if (user.uid === 0) return null;
  const parts = path
    .dirname(realPath)
    .split('/')
    .filter((part) => part !== '');
  const directories = ['/', ...parts.map((_, index) => `/${parts.slice(0, index + 1).join('/')}`)];
  for (const directory of directories) {
    if (!allows(root, directory, user, 1)) return directory;
  }
  return allows(root, realPath, user, 4) ? null : realPath;
}

function allows(root: Root, file: string, user: LoadingUser, bit: 1 | 4): boolean {
  const stats = root.stat(file);
  if (stats === null) return true;
  const mode = Number(stats.mode);
  if (Number(stats.uid) === user.uid) return (mode & (bit << 6)) !== 0;
  if (user.groups.includes(Number(stats.gid))) return (mode & (bit << 3)) !== 0;
  return (mode & bit) !== 0;
}

function readText(root: Root, file: string): string | null {
  return root.readFile(file, maxPreloadBytes)?.toString('utf8') ?? null;
}

/** The best entry of each name: the best hwcaps subdirectory that is active, else the first plain one. */
function readCache(root: Root, runtime: LoaderRuntime, architecture: string): ReadonlyMap<string, string> {
  const best = new Map<string, { path: string; rank: number }>();
  const bytes = root.readFile('/etc/ld.so.cache', maxCacheBytes);
  const abi = cacheAbi[nativeElf(architecture)?.machine ?? ''];
  const plainRank = runtime.subdirectories.length;
  for (const entry of (bytes === null ? null : parseLoaderCache(bytes)) ?? []) {
    const rank = rankOf(entry, abi, runtime);
    const known = best.get(entry.soname);
    if (rank !== null && rank <= plainRank && (known === undefined || rank < known.rank)) {
      best.set(entry.soname, { path: entry.path, rank });
    }
  }
  return new Map([...best].map(([name, { path: found }]) => [name, found]));
}

/** Null for an entry of another ABI, or for a processor that this one is not. */
function rankOf(entry: LoaderCacheEntry, abi: string | undefined, runtime: LoaderRuntime): number | null {
  const [words = '', hwcap] = entry.flags.split(', hwcap: ');
  if (abi !== undefined && words !== abi && words !== 'libc6') return null;
  if (hwcap === undefined) return runtime.subdirectories.length;
  const rank = runtime.subdirectories.indexOf(`glibc-hwcaps/${hwcap.replaceAll('"', '')}`);
  return rank === -1 ? null : rank;
}
