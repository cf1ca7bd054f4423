/** Keeps another program's file when its place is needed: beside it, under a name that no program reads. */
import { syncParent } from './disk.js';
import type { Disk } from './effects.js';
import type { OpenTransaction } from './transaction.js';

const suffix = '.vgpu-save';

/**
 * A free name beside `file`, or one that already holds the same content (`kept`). ldconfig, systemd and the
 * loader read only names that end otherwise.
 */
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

/** Copies the file at `file` aside as a step of the transaction; answers where it is now. */
export async function keepAside(disk: Disk, transaction: OpenTransaction, file: string): Promise<string> {
  const state = await disk.inspect(file);
  const aside = await asideFor(disk, file, state.kind === 'file' ? state.sha256 : null);
  if (!aside.kept) await transaction.place(aside.path, { kind: 'copy', backup: file, state });
  return aside.path;
}

/** The same from a backup and outside a transaction: an undo that finds a stranger's file in the place. */
export async function keepBackupAside(
  disk: Disk,
  file: string,
  backup: string,
  sha256: string | null,
): Promise<string> {
  const aside = await asideFor(disk, file, sha256);
  if (!aside.kept) {
    await disk.copy(backup, aside.path);
    await syncParent(disk, aside.path);
  }
  return aside.path;
}
