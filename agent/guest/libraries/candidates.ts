/** Every place where a program may find a libcuda or libnvidia-ml, and what is there. */
import path from 'node:path';
import type { AlternativeGroup, Distribution, LibraryCandidate, LoaderFacts } from '../../contracts/facts.js';
import { VgpuError } from '../../lib/errors.js';
import { glob } from '../../lib/glob.js';
import { storeCurrent } from '../../lib/paths.js';
import { expandVariables } from '../../profile/instance.js';
import type { Profile } from '../../profile/types.js';
import { type ContentCache, contentAt, pathState } from '../files/content.js';
import type { Root } from '../files/root.js';

const driverNames = ['libcuda.so', 'libcuda.so.1', 'libnvidia-ml.so', 'libnvidia-ml.so.1'];

/** Beside the loader's: Debian's alternatives, WSL, CUDA's forward compatibility, containers, NixOS. */
const driverDirectories = [
  '/usr/lib/*/nvidia/*',
  '/usr/lib/nvidia/*',
  '/usr/lib/wsl/lib',
  '/usr/local/cuda*/compat',
  '/usr/local/nvidia/lib64',
  '/run/opengl-driver/lib',
];

interface Place {
  readonly path: string;
  /** Named by the profile: listed even when nothing is there, and an unreadable one is an error. */
  readonly isPublic: boolean;
}

export function publicDirectories(
  profile: Profile,
  distribution: Distribution,
): readonly { readonly path: string; readonly create: boolean }[] {
  const byFamily = profile.publicLinks.directories;
  const directories = byFamily[distribution.family] ?? byFamily.unknown ?? [];
  return directories.flatMap((one) => {
    const filled = fillIn(one.path, distribution);
    return filled === null ? [] : [{ path: filled, create: one.create }];
  });
}

export function consumerDirectories(
  root: Root,
  profile: Profile,
  distribution: Distribution,
): readonly string[] {
  return profile.consumerLibraries.flatMap((pattern) => {
    const filled = fillIn(pattern, distribution);
    return filled === null ? [] : glob(root, filled).filter((one) => root.stat(one)?.isDirectory());
  });
}

/** Null when a variable has no value here: the path does not exist on this kind of system. */
function fillIn(text: string, distribution: Distribution): string | null {
  return expandVariables(text, { store: storeCurrent, multiarch: distribution.multiarch });
}

/**
 * All candidates without their packages, in the order: public directories (with every versioned name), loader cache and directories,
 * the consumer's own, the driver's private ones, the store. A directory that has several names is examined
 * once, under its first.
 */
export async function findCandidates(
  root: Root,
  profile: Profile,
  distribution: Distribution,
  loader: LoaderFacts,
  alternatives: readonly AlternativeGroup[],
  contents: ContentCache,
): Promise<LibraryCandidate[]> {
  const slaves = slaveLinks(root, alternatives);
  const found = await Promise.all(
    places(root, profile, distribution, loader).map(async (place) => {
      try {
        return await examine(root, place.path, slaves, contents);
      } catch (error) {
        if (place.isPublic || !(error instanceof VgpuError)) throw error;
        return null;
      }
    }),
  );
  return found.filter((one) => one !== null);
}

function places(
  root: Root,
  profile: Profile,
  distribution: Distribution,
  loader: LoaderFacts,
): readonly Place[] {
  const seen = new Set<string>();
  const found: Place[] = [];
  const add = (file: string, isPublic: boolean): void => {
    if (libraryOf(path.basename(file)) === null) return;
    const key = `${directoryKey(root, path.dirname(file))}/${path.basename(file)}`;
    if (seen.has(key)) return;
    if (!isPublic && !exists(root, file)) return;
    seen.add(key);
    found.push({ path: file, isPublic });
  };
  const addNames = (directory: string, names: readonly string[], isPublic: boolean): void => {
    for (const name of names) if (libraryOf(name) !== null) add(path.join(directory, name), isPublic);
  };

  const publicNames = Object.keys(profile.publicLinks.names);
  for (const directory of publicDirectories(profile, distribution)) {
    addNames(directory.path, publicNames, true);
    // Versioned names (`libcuda.so.550.163.01`) decide what ldconfig makes of `libcuda.so.1`.
    addNames(directory.path, root.readdir(directory.path), false);
  }
  for (const entry of loader.cache) add(entry.path, false);
  for (const directory of loader.directories) addNames(directory.path, driverNames, false);
  for (const directory of consumerDirectories(root, profile, distribution)) {
    addNames(directory, driverNames, false);
  }
  for (const pattern of driverDirectories) {
    for (const directory of glob(root, pattern)) addNames(directory, driverNames, false);
  }
  addNames(storeCurrent, driverNames, false);
  return found;
}

/** Device and inode: the same for every name of a directory, bind mounts included. */
function directoryKey(root: Root, directory: string): string {
  const stats = root.stat(directory);
  return stats === null ? (root.canonical(directory) ?? directory) : `${stats.dev}:${stats.ino}`;
}

/** False, too, for what this user may not look at. */
function exists(root: Root, file: string): boolean {
  try {
    return root.lstat(file) !== null;
  } catch {
    return false;
  }
}

/** Which of the two a file name belongs to: `libcuda.so.550.163.01` -> `libcuda`; null for any other. */
export function libraryOf(name: string): LibraryCandidate['library'] | null {
  const match = /^(libcuda|libnvidia-ml)\.so(\.|$)/.exec(name);
  return match?.[1] === 'libcuda' || match?.[1] === 'libnvidia-ml' ? match[1] : null;
}

type Slaves = ReadonlyMap<string, { readonly group: string; readonly slave: string }>;

function slaveLinks(root: Root, alternatives: readonly AlternativeGroup[]): Slaves {
  const links = new Map<string, { group: string; slave: string }>();
  for (const group of alternatives) {
    for (const slave of [{ name: group.name, link: group.link }, ...group.slaves]) {
      links.set(root.canonical(slave.link) ?? slave.link, { group: group.name, slave: slave.name });
    }
  }
  return links;
}

async function examine(
  root: Root,
  file: string,
  slaves: Slaves,
  contents: ContentCache,
): Promise<LibraryCandidate> {
  const state = await pathState(root, file, contents);
  const resolution = root.resolve(file);
  const content = await contentAt(root, file, contents);
  const missing = resolution.kind === 'file' && content === null ? 'it is not a regular file' : null;
  return {
    path: file,
    library: libraryOf(path.basename(file)) ?? 'libcuda',
    state,
    resolution,
    ownerOfPath: null,
    ownerOfFile: null,
    elf: content?.elf.kind === 'elf' ? content.elf.facts : null,
    elfProblem: content?.elf.kind === 'problem' ? content.elf.reason : missing,
    vendor: content?.vendor ?? null,
    alternative: slaves.get(root.canonical(file) ?? file) ?? null,
  };
}
