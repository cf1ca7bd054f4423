// The contents of a guest's file system, cheaply: the guest's root is an overlay, so only what lies
// in the overlay's upper layer can differ from the root it was booted from. A listing walks the
// upper layer (some hundred files) and not /usr (a hundred thousand). Synchronous, because asynchronous calls take
// four times the processor time.

import { createHash } from 'node:crypto';
import { type BigIntStats, lstatSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';

export interface Entry {
  readonly type: 'file' | 'directory' | 'link' | 'other';
  /** Permission bits, including setuid and the sticky bit. */
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  /** Bytes; 0 for anything but a file. */
  readonly size: number;
  /** Only of files. */
  readonly sha256: string | undefined;
  /** Only of links. */
  readonly target: string | undefined;
  readonly mtimeNs: bigint;
}

export interface DiffOptions {
  /** Whether modification times count: of no file (the default), of regular files, or of all. */
  readonly mtimes?: 'none' | 'files' | 'all';
}

/** Where a guest's file system can be seen from outside. */
export interface Layers {
  /** The guest's root, as /proc/PID/root. */
  readonly merged: string;
  /** The overlay's upper layer: what the guest has written. */
  readonly upper: string;
  /** The overlay's lower layer: what the guest was booted from. */
  readonly lower: string;
}

/** Paths that change by themselves while systemd runs. */
const RESTLESS = ['/var/lib/systemd'];

/** The named errors mean that nothing is there; Node has an option for ENOENT, but none for ENOTDIR. */
function absent(error: unknown): boolean {
  return error instanceof Error && 'code' in error && (error.code === 'ENOENT' || error.code === 'ENOTDIR');
}

function entryAt(path: string): Entry | undefined {
  let stats: BigIntStats;
  try {
    stats = lstatSync(path, { bigint: true });
  } catch (error) {
    if (absent(error)) return undefined;
    throw error;
  }
  const file = stats.isFile();
  const link = stats.isSymbolicLink();
  return {
    type: file ? 'file' : link ? 'link' : stats.isDirectory() ? 'directory' : 'other',
    mode: Number(stats.mode) & 0o7777,
    uid: Number(stats.uid),
    gid: Number(stats.gid),
    size: file ? Number(stats.size) : 0,
    sha256: file ? createHash('sha256').update(readFileSync(path)).digest('hex') : undefined,
    target: link ? readlinkSync(path) : undefined,
    mtimeNs: stats.mtimeNs,
  };
}

function typeAt(path: string): 'directory' | 'other' | undefined {
  try {
    return lstatSync(path).isDirectory() ? 'directory' : 'other';
  } catch {
    return undefined;
  }
}

/** The names in a directory; none when there is no such directory. */
function names(directory: string): readonly string[] {
  return typeAt(directory) === 'directory' ? readdirSync(directory) : [];
}

/** Every path at or below `path` that the guest may have changed. */
function touched(layers: Layers, path: string, found: Set<string>): void {
  if (RESTLESS.includes(path)) return;
  const inUpper = typeAt(join(layers.upper, path));
  if (inUpper === undefined) return;
  found.add(path);
  if (inUpper === 'other') {
    everything(layers.lower, path, found); // a directory that was removed or replaced takes all below with it
    return;
  }
  const upper = names(join(layers.upper, path));
  for (const name of upper) touched(layers, join(path, name), found);
  // an opaque directory (removed, then made again) hides the entries of the lower directory without a mark for each
  const seen = new Set([...upper, ...names(join(layers.merged, path))]);
  for (const name of names(join(layers.lower, path))) {
    if (!seen.has(name)) everything(layers.lower, join(path, name), found);
  }
}

function everything(root: string, path: string, found: Set<string>): void {
  if (typeAt(join(root, path)) === undefined) return;
  found.add(path);
  for (const name of names(join(root, path))) everything(root, join(path, name), found);
}

/**
 * The state of some directories of a guest at one moment. `entries` has what the guest has
 * written since it was first booted and still has; everything else is as its root had it.
 */
export class Listing {
  readonly entries: ReadonlyMap<string, Entry>;
  readonly #touched: ReadonlySet<string>;
  readonly #lower: string;

  private constructor(entries: ReadonlyMap<string, Entry>, touchedPaths: ReadonlySet<string>, lower: string) {
    this.entries = entries;
    this.#touched = touchedPaths;
    this.#lower = lower;
  }

  /** Lists `paths` (absolute, as the guest sees them) and all below. */
  static take(layers: Layers, paths: readonly string[]): Listing {
    const found = new Set<string>();
    for (const path of paths) touched(layers, path, found);
    const entries = new Map<string, Entry>();
    for (const path of [...found].sort()) {
      const entry = entryAt(join(layers.merged, path));
      if (entry !== undefined) entries.set(path, entry);
    }
    return new Listing(entries, found, layers.lower);
  }

  /** The state of one path at that moment, from the guest or from the root it was booted from. */
  at(path: string): Entry | undefined {
    return this.#touched.has(path) ? this.entries.get(path) : entryAt(join(this.#lower, path));
  }

  /** The differences to a later listing of the same guest: one line a path, sorted; empty when there are none. */
  diff(later: Listing, options: DiffOptions = {}): string[] {
    const lines: string[] = [];
    for (const path of [...new Set([...this.#touched, ...later.#touched])].sort()) {
      const before = this.at(path);
      const after = later.at(path);
      if (before === undefined && after === undefined) continue;
      if (before === undefined) lines.push(`+ ${path}`);
      else if (after === undefined) lines.push(`- ${path}`);
      else {
        const changes = compare(before, after, options);
        if (changes.length > 0) lines.push(`~ ${path}: ${changes.join(', ')}`);
      }
    }
    return lines;
  }
}

function compare(before: Entry, after: Entry, options: DiffOptions): string[] {
  const changes: string[] = [];
  const fields = ['type', 'uid', 'gid', 'size', 'target'] as const;
  for (const field of fields) {
    if (before[field] !== after[field]) changes.push(`${field} ${before[field]} -> ${after[field]}`);
  }
  if (before.mode !== after.mode) {
    changes.push(`mode ${before.mode.toString(8)} -> ${after.mode.toString(8)}`);
  }
  if (before.sha256 !== after.sha256) changes.push('content');
  const timed = options.mtimes === 'all' || (options.mtimes === 'files' && after.type === 'file');
  if (timed && before.mtimeNs !== after.mtimeNs) changes.push('mtime');
  return changes;
}
