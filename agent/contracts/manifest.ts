import {
  anyOf,
  boolean,
  constant,
  type Described,
  describing,
  integer,
  list,
  object,
  oneOf,
  text,
} from '../lib/schema.js';

export const nonEmpty = describing<string>({ type: 'string', minLength: 1 });
export const path = describing<string>({ type: 'string', pattern: '^/[^\\u0000]*$' });
export const hash = describing<string>({ type: 'string', pattern: '^[0-9a-f]{64}$' });
const mode = describing<number>({ type: 'integer', minimum: 0, maximum: 0o177777 });
const id = describing<number>({ type: 'integer', minimum: 0 });

/** Times and owners so that a restore is exact. */
const owned = {
  uid: id,
  gid: id,
  /** Nanoseconds since the epoch, decimal (a bigint does not survive JSON). */
  mtimeNs: describing<string>({ type: 'string', pattern: '^-?[0-9]+$' }),
};

const states = oneOf(
  'kind',
  object({ kind: constant('absent') }),
  object({ kind: constant('link'), target: nonEmpty, ...owned }),
  object({ kind: constant('file'), size: id, sha256: hash, mode, ...owned }),
  object({ kind: constant('directory'), empty: boolean, mode, ...owned }),
  object({ kind: constant('other'), type: anyOf('fifo', 'socket', 'block', 'character'), ...owned }),
);

/** The state of a path, without following a final link. */
export type PathState = Described<typeof states>;

/** One compiled function for all references to `pathState`, because the service keeps it in memory. */
export const definitions = { pathState: states };
export const pathState = describing<PathState>({ $ref: '#/$defs/pathState' });

/** The content of a path as a reader finds it: enough to know our work from a stranger's. Modes may have changed since. */
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
export const backup = describing<string | null>({
  type: ['string', 'null'],
  pattern: '^(?!\\.{1,2}$)[^/\\u0000]+$',
});
const before = { before: pathState, backup };
export const groupBefore = object({
  status: anyOf('auto', 'manual'),
  value: text,
});

const item = oneOf(
  'kind',
  object({ kind: constant('file'), path, sha256: hash, mode, ...before }),
  object({ kind: constant('link'), path, target: nonEmpty, ...before }),
  object({ kind: constant('directory'), path, mode }),
  object({ kind: constant('alternative'), group: nonEmpty, path, priority: integer, before: groupBefore }),
);
export type OwnedItem = Described<typeof item>;
/** In the order in which they were made; uninstall goes backwards. */
export const items = list(item);

const consumer = object({
  profile: nonEmpty,
  unit: describing<string>({ type: 'string', pattern: '^[A-Za-z0-9:_.\\\\@-]+\\.service$' }),
  /** Public links that its profile wants. Another profile may want the same link: it stays as long as one does. */
  links: list(path),
});
/** A service that was given the GPU. Its drop-ins are its own; all else is shared, and goes with the last consumer. */
export type Consumer = Described<typeof consumer>;

const manifest = object({
  schema: constant(2),
  agent: nonEmpty,
  storeId: nonEmpty,
  endpoint: nonEmpty,
  /** In the order in which they were installed; never empty. */
  consumers: { ...list(consumer), minItems: 1 },
  items,
});
/** `/var/lib/vgpu-agent/manifest.json`: everything we own, and nothing else is ours. */
export type Manifest = Described<typeof manifest>;
export const manifestSchema = { ...manifest, $defs: definitions };
