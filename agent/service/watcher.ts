/** inotify on directories: reports changed names. Nothing is polled. */
import { existsSync, type FSWatcher, statSync, watch } from 'node:fs';
import path from 'node:path';
import type { MachineFacts } from '../contracts/facts.js';
import type { Manifest } from '../contracts/manifest.js';
import {
  agentConf,
  cdiDirectories,
  guestConf,
  guestState,
  loaderConf,
  storeRoot,
  storeVersions,
} from '../lib/paths.js';
import type { Profile } from '../profile/types.js';

interface Watched {
  readonly inode: bigint;
  readonly watcher: FSWatcher;
}

export function watchDirectories(onChange: (file: string) => void) {
  const watched = new Map<string, Watched>();
  let wanted: Places = new Map();
  /** For a directory that does not exist: the missing child, and the directory above it. */
  let awaited = new Map<string, Set<string>>();

  const drop = (directory: string): void => {
    watched.get(directory)?.watcher.close();
    watched.delete(directory);
  };
  const hear = (directory: string, name: string | null): void => {
    if (name === null || name === path.basename(directory)) {
      // The directory itself was removed or replaced, so the watch is on the old one.
      refresh();
      onChange(directory);
      return;
    }
    if (isTemporary(name)) return;
    if (awaited.get(directory)?.has(name)) {
      refresh();
      onChange(path.join(directory, name));
      return;
    }
    const names = wanted.get(directory);
    if (names === undefined) return;
    if (names === null || names.has(name) || isLibrary(name)) onChange(path.join(directory, name));
  };
  const add = (directory: string): boolean => {
    const inode = inodeOf(directory);
    const present = watched.get(directory);
    if (inode === null) {
      drop(directory);
      return false;
    }
    if (present?.inode === inode) return true;
    drop(directory);
    try {
      const watcher = watch(directory, { persistent: true }, (_event, name) => hear(directory, name));
      // Removed between the two calls, or the limit of watches is reached: the periodic inspection finds changes.
      watcher.on('error', () => drop(directory));
      watched.set(directory, { inode, watcher });
      return true;
    } catch {
      return false;
    }
  };
  const refresh = (): void => {
    const needed = new Set<string>();
    awaited = new Map();
    for (const directory of wanted.keys()) {
      if (add(directory)) {
        needed.add(directory);
        continue;
      }
      // Wait for the first missing part of the path.
      let child = directory;
      let parent = path.dirname(child);
      while (!existsSync(parent) && parent !== '/') {
        child = parent;
        parent = path.dirname(child);
      }
      if (add(parent)) needed.add(parent);
      awaited.set(parent, (awaited.get(parent) ?? new Set()).add(path.basename(child)));
    }
    for (const directory of [...watched.keys()]) if (!needed.has(directory)) drop(directory);
  };

  return {
    set(places: Places) {
      wanted = places;
      refresh();
    },
    get size() {
      return watched.size;
    },
    close() {
      for (const directory of [...watched.keys()]) drop(directory);
    },
  };
}

function inodeOf(directory: string): bigint | null {
  try {
    const stats = statSync(directory, { bigint: true });
    return stats.isDirectory() ? stats.ino : null;
  } catch {
    return null;
  }
}

// The directories to watch for drift: everything that a plan inspects, and nothing else, so that an idle machine causes
// no wake-ups. Pure: from profile, facts and manifest.

/** Names in a directory that matter; null: all of them. */
export type Places = ReadonlyMap<string, ReadonlySet<string> | null>;

/**
 * Directories and the names in them that are watched. A library's directory is watched for any libcuda* and
 * libnvidia-ml*, whatever version: `isLibrary` decides, so such names are not listed.
 */
export function watchPlaces(profile: Profile, facts: MachineFacts | null, manifest: Manifest | null): Places {
  const places = new Map<string, Set<string> | null>();
  const all = (directory: string): void => {
    places.set(directory, null);
  };
  const one = (file: string): void => {
    const directory = path.dirname(file);
    if (!places.has(directory)) places.set(directory, new Set());
    places.get(directory)?.add(path.basename(file));
  };
  one(agentConf);
  one(guestConf);
  one(loaderConf);
  one(guestState.manifest);
  one(storeRoot);
  all(storeRoot);
  all(storeVersions);
  one('/etc/ld.so.cache');
  one('/etc/alternatives/nvidia');
  one('/etc/alternatives/glx');
  const { unit } = profile;
  one(`/etc/systemd/system/${unit}`);
  one(`/etc/systemd/system/${unit}.d`);
  all(`/etc/systemd/system/${unit}.d`);
  if (facts?.unit.kind === 'loaded' && facts.unit.fragment !== '') one(facts.unit.fragment);
  if (facts?.containers?.wanted === true) {
    for (const directory of cdiDirectories) {
      one(directory);
      all(directory);
    }
  }
  const quadlet = facts?.containers?.dropIn;
  if (quadlet != null) all(path.dirname(quadlet.path));
  for (const item of manifest?.items ?? []) {
    if (item.kind === 'alternative') one(`/etc/alternatives/${item.group}`);
    else if (item.kind === 'directory') {
      if (item.path.startsWith(`${storeVersions}/`)) all(item.path);
    } else one(item.path);
  }
  for (const candidate of facts?.candidates ?? []) one(candidate.path);
  return places;
}

export function allPlaces(places: Iterable<Places>): Places {
  const merged = new Map<string, ReadonlySet<string> | null>();
  for (const one of places) {
    for (const [directory, names] of one) {
      const known = merged.get(directory);
      const every = names === null || known === null;
      merged.set(directory, every ? null : new Set([...(known ?? []), ...names]));
    }
  }
  return merged;
}

/** Names that matter in every watched directory: a driver's package brings them with any version. */
export function isLibrary(name: string): boolean {
  return name.startsWith('libcuda.so') || name.startsWith('libnvidia-ml.so');
}

/** Temporary files of vgpu-agent and of ldconfig: their final name causes its own event. */
export function isTemporary(name: string): boolean {
  return name.endsWith('.vgpu-new') || name === 'ld.so.cache~';
}
