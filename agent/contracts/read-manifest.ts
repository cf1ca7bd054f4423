/** From JSON to a manifest: checked, and brought to the present form. Pure. */

import { type Checked, firstProblem, schemaCheck } from '../lib/schema.js';
import type { Consumer, Manifest, OwnedItem } from './manifest.js';
import { formerManifestSchema, manifestSchema } from './manifest-schema.js';

export type ManifestResult =
  | { readonly kind: 'ok'; readonly manifest: Manifest }
  /** A clause without a full stop. */
  | { readonly kind: 'bad'; readonly problem: string };

/** The name of the profile that an installed drop-in was written for; null: not known. */
export type ProfileOfDropIn = (path: string) => string | null;

/** Schema 1: the latest of its consumers alone was named. */
interface FormerManifest {
  readonly schema: 1;
  readonly agent: string;
  readonly profile: string;
  readonly unit: string;
  readonly storeId: string;
  readonly endpoint: string;
  readonly items: readonly OwnedItem[];
}

/** Checks a manifest; one of schema 1 is converted. `profileOf` is asked only for such a one. */
export function checkManifest(value: unknown, profileOf: ProfileOfDropIn): ManifestResult {
  const schema = schemaOf(value);
  switch (schema) {
    case 2:
      return resultOf(schemaCheck<Manifest>(manifestSchema)(value), (manifest) => manifest);
    case 1:
      return resultOf(schemaCheck<FormerManifest>(formerManifestSchema)(value), (former) =>
        converted(former, profileOf),
      );
    case undefined:
      return { kind: 'bad', problem: 'it has no schema' };
    default:
      return { kind: 'bad', problem: `its schema is ${JSON.stringify(schema)}, this agent knows 1 and 2` };
  }
}

function schemaOf(value: unknown): unknown {
  return typeof value === 'object' && value !== null ? Reflect.get(value, 'schema') : undefined;
}

function resultOf<T>(checked: Checked<T>, manifestOf: (value: T) => Manifest): ManifestResult {
  if (checked.kind === 'fits') return { kind: 'ok', manifest: manifestOf(checked.value) };
  return { kind: 'bad', problem: firstProblem(checked.errors) };
}

/**
 * Schema 1 named one consumer, though several may have been installed: each has its drop-in among the items. Which
 * links are whose it did not say, so every consumer is noted to want all of them.
 */
function converted(former: FormerManifest, profileOf: ProfileOfDropIn): Manifest {
  const { agent, storeId, endpoint, items } = former;
  const links = items.flatMap((item) =>
    item.kind === 'link' && /^\/(?!opt\/vgpu\/).*\/lib(?:cuda|nvidia-ml)\.so[^/]*$/.test(item.path)
      ? [item.path]
      : [],
  );
  const others = firstDropIns(items).flatMap(({ path, unit }): readonly Consumer[] => {
    const profile = unit === former.unit ? null : profileOf(path);
    return profile === null ? [] : [{ profile, unit, links }];
  });
  const consumers = [...others, { profile: former.profile, unit: former.unit, links }];
  return { schema: 2, agent, storeId, endpoint, consumers, items };
}

/** First drop-ins that a manifest of schema 1 lists; none of another schema. The value need not be checked yet. */
export function formerDropIns(value: unknown): readonly string[] {
  // The service reads a manifest with every look: what is for former ones only is not loaded for the others.
  if (schemaOf(value) !== 1) return [];
  const checked = schemaCheck<FormerManifest>(formerManifestSchema)(value);
  return checked.kind === 'wrong' ? [] : firstDropIns(checked.value.items).map(({ path }) => path);
}

function firstDropIns(
  items: readonly OwnedItem[],
): readonly { readonly path: string; readonly unit: string }[] {
  return items.flatMap((item) => {
    if (item.kind !== 'file') return [];
    const unit = /^\/etc\/systemd\/system\/([^/]+)\.d\/50-vgpu\.conf$/.exec(item.path)?.[1];
    return unit === undefined ? [] : [{ path: item.path, unit }];
  });
}
