/** A record of the transaction log as a JSON Schema. `dist/` has it compiled (scripts/compile-schemas.ts). */
import {
  backup,
  definitions,
  groupBefore,
  hash,
  items,
  object,
  oneOf,
  path,
  pathState,
  text,
} from '../../contracts/manifest-schema.js';

const aim = oneOf(
  'kind',
  object({ kind: { const: 'absent' } }),
  object({ kind: { const: 'link' }, target: text }),
  object({ kind: { const: 'file' }, sha256: hash }),
  object({ kind: { const: 'directory' } }),
);

const slave = object({ link: path, name: text, path });
const alternative = {
  ...object({
    group: text,
    link: path,
    path,
    priority: { type: 'integer' },
    slaves: { type: 'array', items: slave },
  }),
  type: ['object', 'null'],
};

export const recordSchema = {
  ...oneOf(
    'type',
    object({
      type: { const: 'begin' },
      schema: { const: 1 },
      id: { type: 'string', pattern: '^[0-9a-f]{8}$' },
      intent: { enum: ['install', 'uninstall'] },
      manifest: { ...object({ items }), type: ['object', 'null'] },
      retire: { type: 'array', items: text },
    }),
    object({ type: { const: 'path' }, path, from: pathState, backup, to: aim }),
    object({
      type: { const: 'alternative' },
      group: text,
      path,
      previous: alternative,
      before: groupBefore,
    }),
    object({ type: { const: 'ldconfig' } }),
    object({ type: { const: 'daemon-reload' } }),
    object({ type: { const: 'commit' } }),
    object({ type: { const: 'rollback' } }),
  ),
  $defs: definitions,
};
