/** The manifest: read, written, and the rules by which it grows. */
import { createHash } from 'node:crypto';
import { VgpuError } from '../errors.js';
import type { PathState } from '../machine/types.js';
import { manifestFile, storeRoot } from '../paths.js';
import type { Disk } from './effects.js';
import type { Manifest, OwnedItem } from './types.js';

/** Null when nothing is installed. Throws a VgpuError (`failed`) when it is there and cannot be understood. */
export async function readManifest(disk: Disk): Promise<Manifest | null> {
  const content = await disk.read(manifestFile);
  if (content === null) return null;
  let value: unknown;
  try {
    value = JSON.parse(content.toString('utf8'));
  } catch (cause) {
    throw unreadable('it is not JSON', cause);
  }
  if (typeof value !== 'object' || value === null || !('schema' in value) || !('items' in value)) {
    throw unreadable('it has no schema or no items');
  }
  if (value.schema !== 1) {
    throw unreadable(`its schema is ${JSON.stringify(value.schema)}, this agent knows 1`);
  }
  if (!Array.isArray(value.items)) throw unreadable('its items are no list');
  // Written by us as root; the shape behind the schema number is trusted.
  return value as unknown as Manifest;
}

function unreadable(why: string, cause?: unknown): VgpuError {
  return new VgpuError(`cannot understand ${manifestFile}: ${why}`, {
    kind: 'failed',
    operation: 'read the manifest',
    path: manifestFile,
    remedy: `use the vgpu-agent version that wrote it, or move ${manifestFile} away: install then adopts what is there`,
    ...(cause === undefined ? {} : { cause }),
  });
}

export function manifestBytes(manifest: Manifest): Buffer {
  return Buffer.from(`${JSON.stringify(manifest, null, 2)}\n`);
}

export function sha256(content: Buffer): string {
  return createHash('sha256').update(content).digest('hex');
}

/** Is what stands there what we made? The mode may have been changed since; the content decides. */
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

export function findItem(items: readonly OwnedItem[], path: string): OwnedItem | undefined {
  return items.find((item) => item.kind !== 'alternative' && item.path === path);
}

/**
 * Adds what a step made. What stood there before *the first install* stays noted, unless somebody put
 * something of his own in its place since: then that is what uninstall gives back.
 * @param found what the step found at the path
 */
export function withItem(
  items: readonly OwnedItem[],
  item: OwnedItem,
  found: PathState,
): readonly OwnedItem[] {
  if (item.kind === 'alternative') {
    const known = items.some((other) => sameThing(other, item));
    return known
      ? items.map((other) => (sameThing(other, item) ? { ...item, before: beforeOf(other, item) } : other))
      : [...items, item];
  }
  const earlier = findItem(items, item.path);
  if (earlier === undefined) return [...items, item];
  const merged = keepsEarlier(earlier, item, found) ? withBefore(item, earlier) : item;
  return items.map((other) => (other === earlier ? merged : other));
}

export function withoutPath(items: readonly OwnedItem[], path: string): readonly OwnedItem[] {
  return items.filter((item) => item.kind === 'alternative' || item.path !== path);
}

export function withoutAlternative(
  items: readonly OwnedItem[],
  group: string,
  path: string,
): readonly OwnedItem[] {
  return items.filter((item) => item.kind !== 'alternative' || item.group !== group || item.path !== path);
}

/** Items inside `/opt/vgpu/versions/<id>`, the directory itself included. */
export function itemsOfVersion(items: readonly OwnedItem[], id: string): readonly OwnedItem[] {
  const directory = `${storeRoot}/versions/${id}`;
  return items.filter(
    (item) =>
      item.kind !== 'alternative' && (item.path === directory || item.path.startsWith(`${directory}/`)),
  );
}

/** Names in the backup directory that the manifest still needs. */
export function neededBackups(manifest: Manifest | null): ReadonlySet<string> {
  const names = new Set<string>();
  for (const item of manifest?.items ?? []) {
    if ((item.kind === 'file' || item.kind === 'link') && item.backup !== null) names.add(item.backup);
  }
  return names;
}

function sameThing(a: OwnedItem, b: OwnedItem): boolean {
  return a.kind === 'alternative' && b.kind === 'alternative' && a.group === b.group && a.path === b.path;
}

function beforeOf(
  earlier: OwnedItem,
  item: OwnedItem & { kind: 'alternative' },
): { readonly status: 'auto' | 'manual'; readonly value: string } {
  // A group that somebody set to another choice since the install keeps his wish.
  if (earlier.kind !== 'alternative' || item.before.value !== item.path) return item.before;
  return earlier.before;
}

function keepsEarlier(earlier: OwnedItem, item: OwnedItem, found: PathState): boolean {
  if (found.kind === 'absent' || isOurs(earlier, found)) return true;
  // Small files of ours that were edited are kept aside (aside.ts); what was there before us is the earlier one.
  if (item.kind !== 'link') return true;
  return found.kind === 'link' && pointsIntoStore(found.target);
}

function pointsIntoStore(target: string): boolean {
  return target === storeRoot || target.startsWith(`${storeRoot}/`);
}

function withBefore(item: OwnedItem, earlier: OwnedItem): OwnedItem {
  if (item.kind !== 'file' && item.kind !== 'link') return item;
  if (earlier.kind !== 'file' && earlier.kind !== 'link') return item;
  return { ...item, before: earlier.before, backup: earlier.backup, ownerPackage: earlier.ownerPackage };
}
