/** The manifest as a JSON Schema. `dist/` has it compiled (scripts/compile-schemas.ts). */

const text = { type: 'string', minLength: 1 } as const;
const textOrNull = { type: ['string', 'null'] } as const;
const path = { type: 'string', pattern: '^/[^\\u0000]*$' } as const;
const unit = { type: 'string', pattern: '^[A-Za-z0-9:_.\\\\@-]+\\.service$' } as const;
const mode = { type: 'integer', minimum: 0, maximum: 0o177777 } as const;
const hash = { type: 'string', pattern: '^[0-9a-f]{64}$' } as const;

/** One of these, told apart by `kind`. */
function oneKind(...kinds: readonly object[]): object {
  return {
    type: 'object',
    discriminator: { propertyName: 'kind' },
    required: ['kind'],
    properties: { kind: { type: 'string' } },
    oneOf: kinds,
  };
}

function object(properties: Readonly<Record<string, object>>): object {
  return { type: 'object', required: Object.keys(properties), properties };
}

const owned = {
  uid: { type: 'integer', minimum: 0 },
  gid: { type: 'integer', minimum: 0 },
  mtimeNs: { type: 'string', pattern: '^-?[0-9]+$' },
} as const;

/** `PathState`. */
const pathState = oneKind(
  object({ kind: { const: 'absent' } }),
  object({ kind: { const: 'link' }, target: text, ...owned }),
  object({ kind: { const: 'file' }, size: { type: 'integer', minimum: 0 }, sha256: hash, mode, ...owned }),
  object({ kind: { const: 'directory' }, empty: { type: 'boolean' }, mode, ...owned }),
  object({ kind: { const: 'other' }, type: { enum: ['fifo', 'socket', 'block', 'character'] }, ...owned }),
);

/** A name in the backup directory, never a way out of it. */
const backup = { type: ['string', 'null'], pattern: '^(?!\\.{1,2}$)[^/\\u0000]+$' } as const;
/** One function for all of them: the service keeps the compiled schema in memory. */
const before = { before: { $ref: '#/$defs/pathState' }, backup, ownerPackage: textOrNull } as const;

const items = {
  type: 'array',
  items: oneKind(
    object({ kind: { const: 'file' }, path, sha256: hash, mode, ...before }),
    object({ kind: { const: 'link' }, path, target: text, ...before }),
    object({ kind: { const: 'directory' }, path, mode }),
    object({
      kind: { const: 'alternative' },
      group: text,
      path,
      priority: { type: 'integer' },
      before: object({ status: { enum: ['auto', 'manual'] }, value: { type: 'string' } }),
    }),
  ),
} as const;

function withStates(properties: Readonly<Record<string, object>>): object {
  return { ...object(properties), $defs: { pathState } };
}

/** `Manifest`. */
export const manifestSchema = withStates({
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
});

/** As versions up to 0.1.0 wrote it: for one consumer. */
export const formerManifestSchema = withStates({
  schema: { const: 1 },
  agent: text,
  profile: text,
  unit,
  storeId: text,
  endpoint: text,
  items,
});
