/** The manifest as a JSON Schema. `dist/` has it compiled (scripts/compile-schemas.ts). */
import { definitions, items, object, path, text } from './schema-parts.js';

const unit = { type: 'string', pattern: '^[A-Za-z0-9:_.\\\\@-]+\\.service$' } as const;

function withStates(properties: Readonly<Record<string, object>>): object {
  return { ...object(properties), $defs: definitions };
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
