/** Gives one path back: what was there before the first install returns. */
import path from 'node:path';
import type { OwnedItem } from '../../contracts/manifest.js';
import { kindOf, type PathState } from '../../contracts/path-state.js';
import { findItem, isOurs, staysEdited } from '../plan/owned.js';
import { asideFor, keepAside } from './aside.js';
import type { Work } from './carry-out.js';
import type { Disk } from './effects.js';
import { withoutPath } from './manifest.js';
import type { Target } from './place.js';

type PlacedItem = Extract<OwnedItem, { kind: 'file' | 'link' }>;

/**
 * Removes an installed file, by its present state:
 *
 * - Unchanged, or missing: the former file is restored.
 * - A configuration that users may edit, and one did: it stays.
 * - Otherwise edited by a user: the edited text is kept beside it (`.vgpu-save`), then as above. A drop-in or loader
 *   configuration of vgpu-agent must not stay in force after an uninstall, and an edit must not be lost.
 * - A link that now has another target (set by a package's upgrade or an administrator): it stays, and the copy of the
 *   former file is put beside it, so that it is not lost with the state directory.
 */
export async function release(
  work: Work,
  file: string,
  items: readonly OwnedItem[],
): Promise<readonly OwnedItem[]> {
  const { effects, transaction, emit } = work;
  const item = findItem(items, file);
  if (item?.kind !== 'file' && item?.kind !== 'link') return items;
  const rest = withoutPath(items, file);
  const present = await effects.disk.inspect(file);
  if (staysEdited(item, present)) {
    emit({
      kind: 'note',
      level: 'warning',
      code: 'edited-file-stays',
      text: `${file} was edited since vgpu-agent wrote it, and stays`,
      remedy: 'the next install uses it; remove it when you do not need it',
    });
    return rest;
  }
  if (present.kind !== 'absent' && !isOurs(item, present)) {
    if (item.kind === 'link' || present.kind !== 'file') {
      await leave(work, item, present);
      return rest;
    }
    const where = await keepAside(effects.disk, transaction, file);
    emit({
      kind: 'note',
      level: 'warning',
      code: 'edited-file-kept',
      text: `${file} was edited since vgpu-agent wrote it; the edited text is kept as ${where}`,
      remedy: `look through ${where} and remove it when you do not need it`,
    });
  }
  if (item.before.kind !== 'absent') await transaction.makeParents(file);
  await transaction.place(file, formerTarget(effects.disk, item));
  return rest;
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
  emit({
    kind: 'note',
    level: 'warning',
    code: 'no-longer-ours',
    text: `${item.path} ${now} now, so vgpu-agent does not own it any more and leaves it${where}`,
    remedy: null,
  });
}
