/** The models that a consumer has loaded, by its own account: the list of the profile's `serving`. Pure. */
import { member } from '../lib/own.js';
import type { ServingRule } from '../profile/types.js';

export interface LoadedModel {
  readonly name: string;
  /** Bytes of memory in all, and of these on GPUs. */
  readonly bytes: number;
  readonly gpuBytes: number;
}

export type LoadedSeen =
  | { readonly kind: 'told'; readonly url: string; readonly models: readonly LoadedModel[] }
  /** It was asked and did not say. */
  | { readonly kind: 'silent'; readonly url: string; readonly message: string }
  /** The profile names no such list. */
  | { readonly kind: 'unasked' };

const maxNameLength = 100;

/** Reads the body of an answer; null: it is not the document that the rule describes. */
export function loadedModels(rule: ServingRule, body: string): readonly LoadedModel[] | null {
  const { sizes } = rule;
  if (sizes === undefined) return null;
  let value: unknown;
  try {
    value = JSON.parse(body);
  } catch {
    return null;
  }
  const list = member(value, rule.list);
  // Go writes an empty list that was never filled as null.
  if (list === null) return [];
  if (!Array.isArray(list)) return null;
  const items: readonly unknown[] = list;
  const models = items.map((item) => {
    const bytes = member(item, sizes.all);
    const gpuBytes = member(item, sizes.gpu) ?? 0;
    if (!isSize(bytes) || !isSize(gpuBytes)) return null;
    const name = member(item, sizes.name);
    return { name: typeof name === 'string' ? name.slice(0, maxNameLength) : '?', bytes, gpuBytes };
  });
  return models.includes(null) ? null : models.filter((one) => one !== null);
}

function isSize(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0;
}
