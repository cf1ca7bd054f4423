/** Replaces the entry at a path atomically: a reader sees the former state or the new one. */
import path from 'node:path';
import type { PathState } from '../../contracts/manifest.js';
import { syncParent } from './disk.js';
import type { Disk } from './effects.js';

export type Target =
  | { readonly kind: 'absent' }
  | { readonly kind: 'link'; readonly target: string }
  | { readonly kind: 'file'; readonly content: Buffer; readonly sha256: string; readonly mode: number }
  | { readonly kind: 'directory'; readonly mode: number }
  /** Exactly what was copied to `backup`: its state was `state`. */
  | { readonly kind: 'copy'; readonly backup: string; readonly state: PathState };

/**
 * The temporary name of the new entry. It is always the same for a path (one process at a time holds the lock), so that
 * the remains of a killed run can be found by name; ldconfig and systemd ignore names with a leading dot.
 */
export function temporaryFor(file: string): string {
  return path.join(path.dirname(file), `.${path.basename(file)}.vgpu-new`);
}

/**
 * Makes `file` be `target`. Files and links are replaced by a rename; only between a directory and something else
 * is there a moment with nothing, which no rename avoids. Running it again after a crash ends in the same state.
 * Throws the system's error.
 */
export async function place(disk: Disk, file: string, target: Target): Promise<void> {
  if (target.kind === 'absent') {
    await clear(disk, file);
    await syncParent(disk, file);
    return;
  }
  if (target.kind === 'directory') {
    await disk.makeDirectory(file, target.mode);
    await syncParent(disk, file);
    return;
  }
  const temporary = temporaryFor(file);
  await clear(disk, temporary);
  switch (target.kind) {
    case 'link':
      await disk.symlink(temporary, target.target);
      break;
    case 'file':
      await disk.create(temporary, target.content, target.mode);
      break;
    case 'copy':
      await disk.copy(target.backup, temporary);
      break;
  }
  const present = await disk.inspect(file);
  const becomesDirectory = target.kind === 'copy' && target.state.kind === 'directory';
  if (present.kind !== 'absent' && (present.kind === 'directory') !== becomesDirectory) {
    await clear(disk, file);
  }
  await disk.rename(temporary, file);
  await syncParent(disk, file);
}

export async function clear(disk: Disk, file: string): Promise<void> {
  const present = await disk.inspect(file);
  if (present.kind === 'absent') return;
  if (present.kind === 'directory') await disk.removeDirectory(file);
  else await disk.unlink(file);
}

export function isAlready(present: PathState, target: Target): boolean {
  switch (target.kind) {
    case 'absent':
      return present.kind === 'absent';
    case 'link':
      return present.kind === 'link' && present.target === target.target;
    case 'file':
      return present.kind === 'file' && present.sha256 === target.sha256 && present.mode === target.mode;
    case 'directory':
      return present.kind === 'directory';
    case 'copy':
      return sameState(present, target.state);
  }
}

/** Equal in kind, content, mode and owner. Times do not tell who has changed it. */
export function sameState(a: PathState, b: PathState): boolean {
  if (a.kind === 'absent' || b.kind === 'absent') return a.kind === b.kind;
  if (a.uid !== b.uid || a.gid !== b.gid) return false;
  if (a.kind === 'link') return b.kind === 'link' && a.target === b.target;
  if (a.kind === 'file') return b.kind === 'file' && a.sha256 === b.sha256 && a.mode === b.mode;
  if (a.kind === 'directory') return b.kind === 'directory' && a.mode === b.mode;
  return b.kind === 'other' && a.type === b.type;
}

// Keeps another program's file when its place is needed: in the same directory, under a name that no program reads.

const suffix = '.vgpu-save';

/** Free, or with the same content (`kept`). ldconfig, systemd and the loader ignore the suffix. */
export async function asideFor(
  disk: Disk,
  file: string,
  sha256: string | null,
): Promise<{ readonly path: string; readonly kept: boolean }> {
  for (let number = 0; ; number += 1) {
    const path = number === 0 ? `${file}${suffix}` : `${file}${suffix}.${number}`;
    const present = await disk.inspect(path);
    if (present.kind === 'absent') return { path, kept: false };
    if (present.kind === 'file' && present.sha256 === sha256) return { path, kept: true };
  }
}
