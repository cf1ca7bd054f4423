/** The state of a path, without following a final link. Times and owners so that a restore is exact. */
export type PathState =
  | { readonly kind: 'absent' }
  | ({ readonly kind: 'link'; readonly target: string } & Ownership)
  | ({
      readonly kind: 'file';
      readonly size: number;
      readonly sha256: string;
      readonly mode: number;
    } & Ownership)
  | ({ readonly kind: 'directory'; readonly empty: boolean; readonly mode: number } & Ownership)
  | ({ readonly kind: 'other'; readonly type: 'fifo' | 'socket' | 'block' | 'character' } & Ownership);

interface Ownership {
  readonly uid: number;
  readonly gid: number;
  /** Nanoseconds since the epoch, decimal (a bigint does not survive JSON). */
  readonly mtimeNs: string;
}

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

export type OwnedItem =
  | {
      readonly kind: 'file';
      readonly path: string;
      readonly sha256: string;
      readonly mode: number;
      readonly before: PathState;
      /** Name inside the backup directory when `before` was anything; null when it was absent. */
      readonly backup: string | null;
    }
  | {
      readonly kind: 'link';
      readonly path: string;
      readonly target: string;
      readonly before: PathState;
      readonly backup: string | null;
    }
  | { readonly kind: 'directory'; readonly path: string; readonly mode: number }
  | {
      readonly kind: 'alternative';
      readonly group: string;
      readonly path: string;
      readonly priority: number;
      readonly before: { readonly status: 'auto' | 'manual'; readonly value: string };
    };

/** A service that was given the GPU. Its drop-ins are its own; all else is shared, and goes with the last consumer. */
export interface Consumer {
  readonly profile: string;
  readonly unit: string;
  /** Public links that its profile wants. Another profile may want the same link: it stays as long as one does. */
  readonly links: readonly string[];
}

/** `/var/lib/vgpu-agent/manifest.json`: everything we own, and nothing else is ours. */
export interface Manifest {
  readonly schema: 2;
  readonly agent: string;
  readonly storeId: string;
  readonly endpoint: string;
  /** In the order in which they were installed; never empty. */
  readonly consumers: readonly Consumer[];
  /** In the order in which they were made; uninstall goes backwards. */
  readonly items: readonly OwnedItem[];
}
