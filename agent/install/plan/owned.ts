/** Questions to the list of what we own. */
import type { OwnedItem } from '../../contracts/manifest.js';
import type { PathState } from '../../contracts/path-state.js';
import { editableFiles, storeRoot } from '../../lib/paths.js';

/** Is this file what vgpu-agent wrote? Its mode may have changed since; the content decides. */
export function isOurs(item: OwnedItem, present: PathState): boolean {
  switch (item.kind) {
    case 'file':
      return present.kind === 'file' && present.sha256 === item.sha256;
    case 'link':
      return present.kind === 'link' && present.target === item.target;
    case 'directory':
      return present.kind === 'directory';
    case 'alternative':
      return false;
  }
}

/**
 * A configuration that a person has edited, where there was none before: it stays when vgpu-agent goes, and the next
 * install uses it, as dpkg does with its `conffiles`.
 */
export function staysEdited(item: OwnedItem, present: PathState): boolean {
  const theirs = item.kind === 'file' && present.kind === 'file' && !isOurs(item, present);
  return theirs && item.before.kind === 'absent' && editableFiles.has(item.path);
}

export function findItem(items: readonly OwnedItem[], path: string): OwnedItem | undefined {
  return items.find((item) => item.kind !== 'alternative' && item.path === path);
}

/** Items inside `/opt/vgpu/versions/<id>`, the directory itself included. */
export function itemsOfVersion(items: readonly OwnedItem[], id: string): readonly OwnedItem[] {
  const directory = `${storeRoot}/versions/${id}`;
  return items.filter(
    (item) =>
      item.kind !== 'alternative' && (item.path === directory || item.path.startsWith(`${directory}/`)),
  );
}
