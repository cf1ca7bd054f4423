/**
 * After the commit: deletes what nothing refers to any more. Every deletion is checked against what we wrote, and
 * all of it can be cut short and begun again.
 */
import path from 'node:path';
import type { Emit } from '../../contracts/events.js';
import type { OwnedItem } from '../../contracts/manifest.js';
import { storeVersions } from '../../lib/paths.js';
import { isOurs, itemsOfVersion } from '../plan/owned.js';
import { syncParent } from './disk.js';
import type { ApplyEffects, Disk } from './effects.js';
import { manifestBytes, neededBackups, readManifest, sha256 } from './manifest.js';
import { clear, place, temporaryFor } from './place.js';
import { readTransaction, type Transaction } from './records.js';

/** Deletes retired versions and, after an uninstall, the store's directories. Keeps a version that is in use. */
export async function sweepStore(effects: ApplyEffects, transaction: Transaction, emit: Emit): Promise<void> {
  const { disk } = effects;
  const { begin } = transaction;
  const gone: OwnedItem[] = [];
  for (const id of begin.retire) {
    const items = itemsOfVersion(begin.manifest?.items ?? [], id);
    const directory = path.join(storeVersions, id);
    // After an uninstall the processes keep what they have mapped; the files need no names for that.
    if (begin.intent === 'install' && (await effects.mappedUnder(directory)).size > 0) {
      note(emit, 'version-in-use', `${directory} stays for now: a running process uses it`);
      continue;
    }
    await removeItems(disk, items);
    gone.push(...items);
  }
  if (begin.intent === 'uninstall') {
    const directories = (begin.manifest?.items ?? []).filter(
      (item) => item.kind === 'directory' && isStoreDirectory(item.path),
    );
    await removeItems(disk, directories);
    for (const item of directories) {
      if (item.kind === 'directory' && (await disk.inspect(item.path)).kind !== 'absent') {
        note(emit, 'directory-kept', `${item.path} stays: it holds files that vgpu-agent did not make`);
      }
    }
    return;
  }
  if (gone.length > 0) await forget(disk, gone);
}

function isStoreDirectory(directory: string): boolean {
  return directory === storeVersions || directory === path.dirname(storeVersions);
}

/** The last made goes first, so that directories are empty when their turn comes. */
async function removeItems(disk: Disk, items: readonly OwnedItem[]): Promise<void> {
  for (const item of [...items].reverse()) {
    if (item.kind === 'alternative') continue;
    await clear(disk, temporaryFor(item.path));
    const present = await disk.inspect(item.path);
    if (!isOurs(item, present)) continue;
    if (present.kind === 'directory' && !present.empty) continue;
    await place(disk, item.path, { kind: 'absent' });
  }
}

/** Takes items out of the manifest. */
async function forget(disk: Disk, gone: readonly OwnedItem[]): Promise<void> {
  const manifest = await readManifest(disk);
  if (manifest === null) return;
  const paths = new Set(gone.map((item) => item.path));
  const items = manifest.items.filter((item) => item.kind === 'alternative' || !paths.has(item.path));
  if (items.length === manifest.items.length) return;
  const content = manifestBytes({ ...manifest, items });
  await place(disk, disk.state.manifest, { kind: 'file', content, sha256: sha256(content), mode: 0o644 });
}

/**
 * Ends a transaction: its log goes first, then the copies that only it needed. Without a manifest nothing is
 * installed, and the state directories go too.
 */
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
  const trial = await readTransaction(disk, state.trial);
  const kept = trial === null || trial === 'torn' ? null : `${trial.begin.id}-`;
  const names = await disk.list(state.backups);
  const unused = names.filter((name) => !needed.has(name) && !(kept !== null && name.startsWith(kept)));
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

function note(emit: Emit, code: string, text: string): void {
  emit({ kind: 'note', level: 'info', code, text, remedy: null });
}
