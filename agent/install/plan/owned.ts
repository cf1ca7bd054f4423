import path from 'node:path';
import {
  type Consumer,
  kindOf,
  type Manifest,
  type OwnedItem,
  type PathState,
  sameContent,
} from '../../contracts/manifest.js';
import { type Change, type Refusal, told } from '../../contracts/plan.js';
import { dropInPath, editableFiles, storeRoot } from '../../lib/paths.js';

/** A configuration that a person edited stays, as `conffiles` of dpkg do, and the next install uses it. */
export function staysEdited(item: OwnedItem, present: PathState): boolean {
  const theirs = item.kind === 'file' && present.kind === 'file' && !sameContent(item, present);
  return theirs && item.before.kind === 'absent' && editableFiles.has(item.path);
}

/** Only a person or a mistake puts such a thing there, so its content stays. */
export function inTheWay(path: string, state: PathState, wanted: 'file' | 'link'): readonly Refusal[] {
  if (state.kind !== 'directory' && state.kind !== 'other') return [];
  const full = state.kind === 'directory' && !state.empty ? ' that is not empty' : '';
  return told(
    state.kind === 'directory' ? 'directory-in-the-way' : 'thing-in-the-way',
    `${path} is ${kindOf(state)}${full}, where a ${wanted} has to be`,
    `find out what made ${path} and move it away`,
  );
}

type AlternativeItem = Extract<OwnedItem, { kind: 'alternative' }>;
type PathItem = Exclude<OwnedItem, AlternativeItem>;

export function findItem(items: readonly OwnedItem[], path: string): PathItem | undefined {
  return items.find((item): item is PathItem => item.kind !== 'alternative' && item.path === path);
}

export function ownedAt(manifest: Manifest | null, path: string): PathItem | undefined {
  return findItem(manifest?.items ?? [], path);
}

export function findAlternative(
  items: readonly OwnedItem[],
  group: string,
  path: string,
): AlternativeItem | undefined {
  return items.find((item) => item.kind === 'alternative' && item.group === group && item.path === path) as
    | AlternativeItem
    | undefined;
}

export function withdrawal(manifest: Manifest | null, path: string, reason: string): readonly Change[] {
  const item = ownedAt(manifest, path);
  if (item?.kind !== 'file' && item?.kind !== 'link') return [];
  return [{ kind: 'remove-owned', path, restores: item.before, reason }];
}

export function removeDirectories(items: readonly OwnedItem[]): readonly Change[] {
  const reason = 'vgpu-agent made it; it is removed if it is empty';
  return items
    .filter(({ kind }) => kind === 'directory')
    .map(({ path }) => ({ kind: 'remove-directory', path, reason }));
}

export function emptiedBy(
  items: readonly OwnedItem[],
  gone: readonly { readonly path: string }[],
): readonly OwnedItem[] {
  const paths = new Set(gone.map(({ path }) => path));
  const inside = (directory: OwnedItem, one: { readonly path: string }): boolean =>
    one.path.startsWith(`${directory.path}/`);
  return items.filter(
    (item) =>
      item.kind === 'directory' &&
      gone.some((one) => inside(item, one)) &&
      !items.some((one) => one.kind !== 'alternative' && !paths.has(one.path) && inside(item, one)),
  );
}

export function itemsOfVersion(items: readonly OwnedItem[], id: string): readonly OwnedItem[] {
  const directory = `${storeRoot}/versions/${id}`;
  return items.filter(
    (item) =>
      item.kind !== 'alternative' && (item.path === directory || item.path.startsWith(`${directory}/`)),
  );
}

function consumersOf(manifest: Manifest | null): readonly Consumer[] {
  return manifest?.consumers ?? [];
}

export function findConsumer(manifest: Manifest | null, unit: string): Consumer | undefined {
  return consumersOf(manifest).find((one) => one.unit === unit);
}

/** The list with `consumer` as it is now: in its place if it is known, else at the end. */
export function withConsumer(manifest: Manifest | null, consumer: Consumer): readonly Consumer[] {
  const known = consumersOf(manifest);
  return known.some((one) => one.unit === consumer.unit)
    ? known.map((one) => (one.unit === consumer.unit ? consumer : one))
    : [...known, consumer];
}

export function withoutConsumer(manifest: Manifest | null, unit: string): readonly Consumer[] {
  return consumersOf(manifest).filter((one) => one.unit !== unit);
}

export function isNoted(manifest: Manifest | null, wanted: Consumer): boolean {
  const noted = findConsumer(manifest, wanted.unit);
  if (noted === undefined || noted.profile !== wanted.profile) return false;
  const links = new Set(noted.links);
  return links.size === wanted.links.length && wanted.links.every((link) => links.has(link));
}

/** Its drop-ins and the links that no other consumer wants, with directories that become empty. */
export function itemsOnlyFor(manifest: Manifest, unit: string): readonly OwnedItem[] {
  const others = new Set(withoutConsumer(manifest, unit).flatMap(({ links }) => links));
  const links = new Set(findConsumer(manifest, unit)?.links.filter((link) => !others.has(link)) ?? []);
  const dropIns = path.dirname(dropInPath(unit));
  const goes = (item: OwnedItem): boolean => {
    switch (item.kind) {
      case 'alternative':
        return false;
      case 'directory':
        return item.path === dropIns;
      default:
        return links.has(item.path) || item.path.startsWith(`${dropIns}/`);
    }
  };
  const gone = manifest.items.filter(goes);
  const emptied = emptiedBy(manifest.items, gone);
  return manifest.items.filter((item) => gone.includes(item) || emptied.includes(item));
}
