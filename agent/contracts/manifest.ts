import {
  anyOf,
  constant,
  type Described,
  firstProblem,
  integer,
  list,
  object,
  oneOf,
  type Schema,
  schemaCheck,
} from '../lib/schema.js';

export const text: Schema<string> = { type: 'string', minLength: 1 };
export const path: Schema<string> = { type: 'string', pattern: '^/[^\\u0000]*$' };
export const hash: Schema<string> = { type: 'string', pattern: '^[0-9a-f]{64}$' };
const mode: Schema<number> = { type: 'integer', minimum: 0, maximum: 0o177777 };
const id: Schema<number> = { type: 'integer', minimum: 0 };

/** Times and owners so that a restore is exact. */
const owned = {
  uid: id,
  gid: id,
  /** Nanoseconds since the epoch, decimal (a bigint does not survive JSON). */
  mtimeNs: { type: 'string', pattern: '^-?[0-9]+$' } as Schema<string>,
};

const states = oneOf(
  'kind',
  object({ kind: constant('absent') }),
  object({ kind: constant('link'), target: text, ...owned }),
  object({ kind: constant('file'), size: id, sha256: hash, mode, ...owned }),
  object({ kind: constant('directory'), empty: { type: 'boolean' } as Schema<boolean>, mode, ...owned }),
  object({ kind: constant('other'), type: anyOf('fifo', 'socket', 'block', 'character'), ...owned }),
);

/** The state of a path, without following a final link. */
export type PathState = Described<typeof states>;

/** One compiled function for all references to `pathState`, because the service keeps it in memory. */
export const definitions = { pathState: states };
export const pathState: Schema<PathState> = { $ref: '#/$defs/pathState' };

/** The content of a path as a reader finds it: enough to know our work from a stranger's. A PathState is one, and so is a file's or link's item. */
export type Content =
  | { readonly kind: 'absent' | 'directory' | 'other' | 'alternative' }
  | { readonly kind: 'link'; readonly target: string }
  | { readonly kind: 'file'; readonly sha256: string };

export function sameContent(a: Content, b: Content): boolean {
  if (a.kind === 'link') return b.kind === 'link' && a.target === b.target;
  if (a.kind === 'file') return b.kind === 'file' && a.sha256 === b.sha256;
  return a.kind === b.kind;
}

export function kindOf(state: PathState): string {
  if (state.kind === 'absent') return 'missing';
  if (state.kind !== 'other') return `a ${state.kind}`;
  const { type } = state;
  return type === 'fifo' ? 'a FIFO' : type === 'socket' ? 'a socket' : `a ${type} device`;
}

/**
 * The name of the copy in the backup directory, never a way out of it; null when nothing was there before.
 */
export const backup: Schema<string | null> = {
  type: ['string', 'null'],
  pattern: '^(?!\\.{1,2}$)[^/\\u0000]+$',
};
const before = { before: pathState, backup };
export const groupBefore = object({
  status: anyOf('auto', 'manual'),
  value: { type: 'string' } as Schema<string>,
});

const item = oneOf(
  'kind',
  object({ kind: constant('file'), path, sha256: hash, mode, ...before }),
  object({ kind: constant('link'), path, target: text, ...before }),
  object({ kind: constant('directory'), path, mode }),
  object({ kind: constant('alternative'), group: text, path, priority: integer, before: groupBefore }),
);
export type OwnedItem = Described<typeof item>;
/** In the order in which they were made; uninstall goes backwards. */
export const items = list(item);

const consumer = object({
  profile: text,
  unit: { type: 'string', pattern: '^[A-Za-z0-9:_.\\\\@-]+\\.service$' } as Schema<string>,
  /** Public links that its profile wants. Another profile may want the same link: it stays as long as one does. */
  links: list(path),
});
/** A service that was given the GPU. Its drop-ins are its own; all else is shared, and goes with the last consumer. */
export type Consumer = Described<typeof consumer>;

const manifest = object({
  schema: constant(2),
  agent: text,
  storeId: text,
  endpoint: text,
  /** In the order in which they were installed; never empty. */
  consumers: { ...list(consumer), minItems: 1 },
  items,
});
/** `/var/lib/vgpu-agent/manifest.json`: everything we own, and nothing else is ours. */
export type Manifest = Described<typeof manifest>;
export const manifestSchema = { ...manifest, $defs: definitions };

type ManifestResult =
  | { readonly kind: 'ok'; readonly manifest: Manifest }
  | { readonly kind: 'bad'; readonly problem: string };

export function checkManifest(value: unknown): ManifestResult {
  const schema = typeof value === 'object' && value !== null ? Reflect.get(value, 'schema') : undefined;
  if (schema === undefined) return { kind: 'bad', problem: 'it has no schema' };
  if (schema !== 2) {
    return { kind: 'bad', problem: `its schema is ${JSON.stringify(schema)}, this agent knows 2` };
  }
  const checked = schemaCheck(manifestSchema)(value);
  return checked.kind === 'fits'
    ? { kind: 'ok', manifest: checked.value }
    : { kind: 'bad', problem: firstProblem(checked.errors) };
}
