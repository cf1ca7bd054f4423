import { createHash } from 'node:crypto';
import {
  type Manifest,
  manifestSchema,
  type OwnedItem,
  type PathState,
  sameContent,
} from '../../contracts/manifest.js';
import { VgpuError } from '../../lib/errors.js';
import { isInStore } from '../../lib/paths.js';
import { readAs } from '../../lib/schema.js';
import { findAlternative, findItem } from '../plan/owned.js';
import type { Disk } from './effects.js';

/** Null when nothing is installed. Throws a VgpuError (`failed`) when it is there and cannot be understood. */
export async function readManifest(disk: Disk): Promise<Manifest | null> {
  const file = disk.state.manifest;
  const content = await disk.read(file);
  if (content === null) return null;
  const checked = readAs(manifestSchema, content.toString('utf8'));
  if (checked.kind === 'fits') return checked.value;
  throw new VgpuError(`cannot understand ${file}: ${checked.problem}`, {
    kind: 'failed',
    operation: 'read the manifest',
    path: file,
    remedy: `use the vgpu-agent version that wrote it, or move ${file} away: install then adopts what is there`,
  });
}

export function manifestBytes(manifest: Manifest): Buffer {
  return Buffer.from(`${JSON.stringify(manifest, null, 2)}\n`);
}

export function sha256(content: Buffer): string {
  return createHash('sha256').update(content).digest('hex');
}

/**
 * Adds the result of a step. The state before *the first install* stays recorded, unless another program has put its
 * own file there since: then uninstall restores that one.
 * @param found the state that the step found at the path
 */
export function withItem(
  items: readonly OwnedItem[],
  item: OwnedItem,
  found: PathState,
): readonly OwnedItem[] {
  if (item.kind === 'alternative') {
    const known = findAlternative(items, item.group, item.path);
    if (known === undefined) return [...items, item];
    // A group that an administrator set to another choice since the install keeps that choice.
    const before = item.before.value === item.path ? known.before : item.before;
    return items.map((other) => (other === known ? { ...item, before } : other));
  }
  const earlier = findItem(items, item.path);
  if (earlier === undefined) return [...items, item];
  const merged = keepsEarlier(earlier, item, found) ? withBefore(item, earlier) : item;
  return items.map((other) => (other === earlier ? merged : other));
}

export function neededBackups(manifest: Manifest | null): ReadonlySet<string> {
  const names = new Set<string>();
  for (const item of manifest?.items ?? []) {
    if ((item.kind === 'file' || item.kind === 'link') && item.backup !== null) names.add(item.backup);
  }
  return names;
}

function keepsEarlier(earlier: OwnedItem, item: OwnedItem, found: PathState): boolean {
  if (found.kind === 'absent' || sameContent(earlier, found)) return true;
  // Small files that were edited after the install are kept aside (place.ts); `before` is what was there before the install.
  if (item.kind !== 'link') return true;
  return found.kind === 'link' && isInStore(found.target);
}

function withBefore(item: OwnedItem, earlier: OwnedItem): OwnedItem {
  if (item.kind !== 'file' && item.kind !== 'link') return item;
  if (earlier.kind !== 'file' && earlier.kind !== 'link') return item;
  return { ...item, before: earlier.before, backup: earlier.backup };
}
