/** Restores the state of a path before the first install. */
import path from 'node:path';
import { type Emit, note } from '../../contracts/events.js';
import { kindOf, type OwnedItem, type PathState, sameContent } from '../../contracts/manifest.js';
import { storeRoot, storeVersions } from '../../lib/paths.js';
import { findItem, itemsOfVersion, staysEdited } from '../plan/owned.js';
import { syncParent } from './disk.js';
import type { ApplyEffects, Disk } from './effects.js';
import { manifestBytes, neededBackups, readManifest, sha256 } from './manifest.js';
import { asideFor, clear, place, type Target, temporaryFor } from './place.js';
import type { Transaction } from './records.js';
import { keepEdited, type Work } from './transaction.js';

type PlacedItem = Extract<OwnedItem, { kind: 'file' | 'link' }>;

/**
 * Removes an installed file, by its present state:
 *
 * - Unchanged, or missing: the former file is restored.
 * - An edited configuration that users may edit: it stays.
 * - Otherwise edited by a user: the edited text is kept beside it (`.vgpu-save`), then as above. A drop-in or loader
 *   configuration of vgpu-agent must not stay in force after an uninstall, and an edit must not be lost.
 * - A link that now has another target (set by a package's upgrade or an administrator): it stays, and the copy of the
 *   former file is put beside it, so that it is not lost with the state directory.
 */
export async function release(work: Work, file: string): Promise<void> {
  const { effects, transaction, emit } = work;
  const item = findItem(work.items, file);
  if (item?.kind !== 'file' && item?.kind !== 'link') return;
  work.items = work.items.filter((one) => one !== item);
  const present = await effects.disk.inspect(file);
  if (staysEdited(item, present)) {
    const text = `${file} was edited since vgpu-agent wrote it, and stays`;
    const remedy = 'the next install uses it; remove it when you do not need it';
    note(emit, 'warning', 'edited-file-stays', text, remedy);
    return;
  }
  if (present.kind !== 'absent' && !sameContent(item, present)) {
    if (item.kind === 'link' || present.kind !== 'file') {
      await leave(work, item, present);
      return;
    }
    await keepEdited(work, file, (where) => `look through ${where} and remove it when you do not need it`);
  }
  if (item.before.kind !== 'absent') await transaction.makeParents(file);
  await transaction.place(file, formerTarget(effects.disk, item));
}

function formerTarget({ state }: Disk, item: PlacedItem): Target {
  if (item.before.kind === 'absent' || item.backup === null) return { kind: 'absent' };
  return { kind: 'copy', backup: path.join(state.backups, item.backup), state: item.before };
}

async function leave(work: Work, item: PlacedItem, present: PathState): Promise<void> {
  const { effects, transaction, emit } = work;
  const target = formerTarget(effects.disk, item);
  let where = '';
  if (target.kind === 'copy' && item.before.kind === 'file') {
    const aside = await asideFor(effects.disk, item.path, item.before.sha256);
    if (!aside.kept) await transaction.place(aside.path, target);
    where = `; the file that was there before the install is kept as ${aside.path}`;
  }
  const now = present.kind === 'link' ? `points to ${present.target}` : `is ${kindOf(present)}`;
  const text = `${item.path} ${now} now, so vgpu-agent does not own it any more and leaves it${where}`;
  note(emit, 'warning', 'no-longer-ours', text);
}

// After the commit: deletes unused files. Every deletion is checked against the records, and can be interrupted and
// repeated.

export async function sweepStore(effects: ApplyEffects, transaction: Transaction, emit: Emit): Promise<void> {
  const { disk } = effects;
  const { begin } = transaction;
  const gone: OwnedItem[] = [];
  for (const id of begin.retire) {
    const items = itemsOfVersion(begin.manifest?.items ?? [], id);
    const directory = path.join(storeVersions, id);
    // After an uninstall the processes keep what they have mapped; the files need no names for that.
    if (begin.intent === 'install' && (await effects.mappedUnder(directory)).size > 0) {
      note(emit, 'info', 'version-in-use', `${directory} stays for now: a running process uses it`);
      continue;
    }
    await removeItems(disk, items);
    gone.push(...items);
  }
  if (begin.intent === 'uninstall') {
    const directories = (begin.manifest?.items ?? []).filter(
      ({ kind, path }) => kind === 'directory' && [storeRoot, storeVersions].includes(path),
    );
    await removeItems(disk, directories);
    for (const item of directories) {
      if (item.kind === 'directory' && (await disk.inspect(item.path)).kind !== 'absent') {
        note(
          emit,
          'info',
          'directory-kept',
          `${item.path} stays: it holds files that vgpu-agent did not make`,
        );
      }
    }
    return;
  }
  if (gone.length > 0) await forget(disk, gone);
}

/** The last made goes first, so that directories are empty when their turn comes. */
async function removeItems(disk: Disk, items: readonly OwnedItem[]): Promise<void> {
  for (const item of [...items].reverse()) {
    if (item.kind === 'alternative') continue;
    await clear(disk, temporaryFor(item.path));
    const present = await disk.inspect(item.path);
    if (!sameContent(item, present)) continue;
    if (present.kind === 'directory' && !present.empty) continue;
    await place(disk, item.path, { kind: 'absent' });
  }
}

async function forget(disk: Disk, gone: readonly OwnedItem[]): Promise<void> {
  const manifest = await readManifest(disk);
  if (manifest === null) return;
  const paths = new Set(gone.map((item) => item.path));
  const items = manifest.items.filter((item) => item.kind === 'alternative' || !paths.has(item.path));
  if (items.length === manifest.items.length) return;
  const content = manifestBytes({ ...manifest, items });
  await place(disk, disk.state.manifest, { kind: 'file', content, sha256: sha256(content), mode: 0o644 });
}

/** The log goes first, then the copies that only it needed; with no manifest the directories too. */
export async function closeTransaction(disk: Disk): Promise<void> {
  const { transaction } = disk.state;
  if ((await disk.inspect(transaction)).kind !== 'absent') {
    await place(disk, transaction, { kind: 'absent' });
  }
  await tidyState(disk);
}

/** Removes what a killed run can leave in the state directory outside of a transaction. */
export async function tidyState(disk: Disk): Promise<void> {
  const { state } = disk;
  if ((await disk.inspect(state.directory)).kind !== 'directory') return;
  await clear(disk, temporaryFor(state.manifest));
  const manifest = await readManifest(disk);
  const needed = neededBackups(manifest);
  const unused = (await disk.list(state.backups)).filter((name) => !needed.has(name));
  for (const name of unused) await clear(disk, path.join(state.backups, name));
  if (unused.length > 0) await disk.syncDirectory(state.backups);
  if (manifest !== null) return;
  for (const directory of [state.backups, state.directory]) {
    const present = await disk.inspect(directory);
    if (present.kind === 'directory' && present.empty) {
      await disk.removeDirectory(directory);
      await syncParent(disk, directory);
    }
  }
}
