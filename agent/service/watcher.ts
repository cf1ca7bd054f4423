/** inotify on directories: tells that a name in one of them changed. Nothing is polled. */
import { existsSync, type FSWatcher, statSync, watch } from 'node:fs';
import path from 'node:path';
import { isLibrary, isTemporary, type Places } from './watch-places.js';

export interface Watcher {
  /** Watches these places from now on; those that were watched already are kept. */
  set(places: Places): void;
  /** Directories that are watched now. */
  readonly size: number;
  close(): void;
}

interface Watched {
  readonly inode: bigint;
  readonly watcher: FSWatcher;
}

/** `onChange` gets the path that changed; for a directory that appears or goes, that directory. */
export function watchDirectories(onChange: (file: string) => void): Watcher {
  const watched = new Map<string, Watched>();
  let wanted: Places = new Map();
  /** For a directory that does not exist: the child that has to appear, and the directory in which it will. */
  let awaited = new Map<string, Set<string>>();

  const drop = (directory: string): void => {
    watched.get(directory)?.watcher.close();
    watched.delete(directory);
  };
  const hear = (directory: string, name: string | null): void => {
    if (name === null || name === path.basename(directory)) {
      // The directory itself was removed or replaced: the watch is of the old one.
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
      // Removed between the two calls, or the limit of watches is reached: the slow check is the net.
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
      // Wait for the first missing part of the way.
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
    set(places) {
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
