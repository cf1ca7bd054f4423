/** Parts that the schemas of the manifest and of the transaction log share. */
import { firstProblem, object, schemaCheck } from '../lib/schema.js';
import type { Manifest } from './manifest.js';

export const text = { type: 'string', minLength: 1 } as const;
export const path = { type: 'string', pattern: '^/[^\\u0000]*$' } as const;
const mode = { type: 'integer', minimum: 0, maximum: 0o177777 } as const;
export const hash = { type: 'string', pattern: '^[0-9a-f]{64}$' } as const;

export function oneOf(name: 'kind' | 'type', ...alternatives: readonly object[]): object {
  return {
    type: 'object',
    discriminator: { propertyName: name },
    required: [name],
    properties: { [name]: { type: 'string' } },
    oneOf: alternatives,
  };
}

const owned = {
  uid: { type: 'integer', minimum: 0 },
  gid: { type: 'integer', minimum: 0 },
  mtimeNs: { type: 'string', pattern: '^-?[0-9]+$' },
} as const;

/** `PathState`, as `#/$defs/pathState`: one function for all who refer to it, and the service keeps it in memory. */
export const definitions = {
  pathState: oneOf(
    'kind',
    object({ kind: { const: 'absent' } }),
    object({ kind: { const: 'link' }, target: text, ...owned }),
    object({ kind: { const: 'file' }, size: { type: 'integer', minimum: 0 }, sha256: hash, mode, ...owned }),
    object({ kind: { const: 'directory' }, empty: { type: 'boolean' }, mode, ...owned }),
    object({ kind: { const: 'other' }, type: { enum: ['fifo', 'socket', 'block', 'character'] }, ...owned }),
  ),
};
export const pathState = { $ref: '#/$defs/pathState' } as const;

/** A name in the backup directory, never a way out of it. */
export const backup = { type: ['string', 'null'], pattern: '^(?!\\.{1,2}$)[^/\\u0000]+$' } as const;
const before = { before: pathState, backup } as const;
export const groupBefore = object({ status: { enum: ['auto', 'manual'] }, value: { type: 'string' } });

export const items = {
  type: 'array',
  items: oneOf(
    'kind',
    object({ kind: { const: 'file' }, path, sha256: hash, mode, ...before }),
    object({ kind: { const: 'link' }, path, target: text, ...before }),
    object({ kind: { const: 'directory' }, path, mode }),
    object({
      kind: { const: 'alternative' },
      group: text,
      path,
      priority: { type: 'integer' },
      before: groupBefore,
    }),
  ),
} as const;

const unit = { type: 'string', pattern: '^[A-Za-z0-9:_.\\\\@-]+\\.service$' } as const;

export const manifestSchema = {
  ...object({
    schema: { const: 2 },
    agent: text,
    storeId: text,
    endpoint: text,
    consumers: {
      type: 'array',
      minItems: 1,
      items: object({ profile: text, unit, links: { type: 'array', items: path } }),
    },
    items,
  }),
  $defs: definitions,
};

type ManifestResult =
  | { readonly kind: 'ok'; readonly manifest: Manifest }
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
