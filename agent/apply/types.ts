/** What apply/ keeps on disk, and what it answers. */

import type { PathState } from '../machine/types.js';
import type { JobResult } from '../systemd/types.js';

/** One thing of ours on this machine, and what stood in its place. */
export type OwnedItem =
  | {
      readonly kind: 'file';
      readonly path: string;
      readonly sha256: string;
      readonly mode: number;
      readonly before: PathState;
      /** Name inside the backup directory when `before` was anything; null when it was absent. */
      readonly backup: string | null;
      readonly ownerPackage: string | null;
    }
  | {
      readonly kind: 'link';
      readonly path: string;
      readonly target: string;
      readonly before: PathState;
      readonly backup: string | null;
      readonly ownerPackage: string | null;
    }
  | { readonly kind: 'directory'; readonly path: string; readonly mode: number }
  | {
      readonly kind: 'alternative';
      readonly group: string;
      readonly path: string;
      readonly priority: number;
      /** Status and value of the group before, to go back to. */
      readonly before: { readonly status: 'auto' | 'manual'; readonly value: string };
    };

/** `/var/lib/vgpu-agent/manifest.json`: everything we own, and nothing else is ours. */
export interface Manifest {
  readonly schema: 1;
  /** Version of the agent that wrote it. */
  readonly agent: string;
  readonly profile: string;
  readonly unit: string;
  readonly storeId: string;
  readonly endpoint: string;
  /** In the order in which they were made; uninstall goes backwards. */
  readonly items: readonly OwnedItem[];
}

/** How the restart went. It comes after the commit: a service that fails to start undoes nothing by itself. */
export type RestartOutcome =
  | { readonly kind: 'not-planned' }
  | { readonly kind: 'restarted'; readonly job: JobResult }
  | { readonly kind: 'failed'; readonly message: string };

/** What `apply` answers when the plan is carried out. */
export interface Applied {
  /** Number of changes carried out; 0 when the plan was empty. */
  readonly changes: number;
  readonly restart: RestartOutcome;
  /** The undo log is kept: call `rollback` or `settle` (only with `keepUndo`). */
  readonly undoKept: boolean;
}

/** What `recover` found and did. */
export type Recovery =
  | { readonly kind: 'nothing' }
  /** Cut short before its commit: taken back. */
  | { readonly kind: 'rolled-back'; readonly intent: 'install' | 'uninstall' }
  /** Cut short after its commit: the cleaning up was finished. */
  | { readonly kind: 'finished'; readonly intent: 'install' | 'uninstall' };
