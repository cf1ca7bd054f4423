/** The consumers in the manifest, and which installed files belong to which of them. Pure. */
import type { Consumer, Manifest, OwnedItem } from '../../contracts/manifest.js';
import { dropInPath } from '../../lib/paths.js';

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

/** Does the manifest say the same of it? Another order of links is no difference. */
export function isNoted(manifest: Manifest | null, wanted: Consumer): boolean {
  const noted = findConsumer(manifest, wanted.unit);
  if (noted === undefined || noted.profile !== wanted.profile) return false;
  const links = new Set(noted.links);
  return links.size === wanted.links.length && wanted.links.every((link) => links.has(link));
}

/**
 * The files of this consumer alone: its drop-ins with their directory, and links that no other one wants, with
 * directories that would be left empty.
 */
export function itemsOnlyFor(manifest: Manifest, unit: string): readonly OwnedItem[] {
  const others = new Set(withoutConsumer(manifest, unit).flatMap(({ links }) => links));
  const links = new Set(findConsumer(manifest, unit)?.links.filter((link) => !others.has(link)) ?? []);
  const dropIns = directoryOf(dropInPath(unit));
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
  const stays = manifest.items.filter((item) => !goes(item));
  const emptied = stays.filter(
    (item) =>
      item.kind === 'directory' &&
      gone.some((one) => one.path.startsWith(`${item.path}/`)) &&
      !stays.some((one) => one.path.startsWith(`${item.path}/`)),
  );
  return manifest.items.filter((item) => gone.includes(item) || emptied.includes(item));
}

function directoryOf(path: string): string {
  return path.slice(0, path.lastIndexOf('/'));
}
