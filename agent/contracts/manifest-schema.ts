/** The manifest as a JSON Schema. `dist/` has it compiled (scripts/compile-schemas.ts). */
import { definitions, items, object, path, text } from './schema-parts.js';

const unit = { type: 'string', pattern: '^[A-Za-z0-9:_.\\\\@-]+\\.service$' } as const;

/** `Manifest`. */
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
