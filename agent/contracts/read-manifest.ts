/** From JSON to a manifest: checked against its schema. Pure. */
import { firstProblem, schemaCheck } from '../lib/schema.js';
import type { Manifest } from './manifest.js';
import { manifestSchema } from './manifest-schema.js';

export type ManifestResult =
  | { readonly kind: 'ok'; readonly manifest: Manifest }
  /** A clause without a full stop. */
  | { readonly kind: 'bad'; readonly problem: string };

export function checkManifest(value: unknown): ManifestResult {
  const schema = typeof value === 'object' && value !== null ? Reflect.get(value, 'schema') : undefined;
  if (schema === undefined) return { kind: 'bad', problem: 'it has no schema' };
  if (schema !== 2) {
    return { kind: 'bad', problem: `its schema is ${JSON.stringify(schema)}, this agent knows 2` };
  }
  const checked = schemaCheck<Manifest>(manifestSchema)(value);
  return checked.kind === 'fits'
    ? { kind: 'ok', manifest: checked.value }
    : { kind: 'bad', problem: firstProblem(checked.errors) };
}
