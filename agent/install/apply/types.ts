/** The results of apply/. */
import type { JobResult } from '../../systemd/types.js';

/** How the restart went. It comes after the commit: a service that fails to start undoes nothing by itself. */
export type RestartOutcome =
  | { readonly kind: 'not-planned' }
  | { readonly kind: 'restarted'; readonly job: JobResult }
  | { readonly kind: 'failed'; readonly message: string };

/** The result of `apply` when the plan is carried out. */
export interface Applied {
  /** Number of changes carried out; 0 when the plan was empty. */
  readonly changes: number;
  readonly restart: RestartOutcome;
  /** The undo log is kept: call `rollback` or `settle` (only with `keepUndo`). */
  readonly undoKept: boolean;
}

/** The result of `recover`. */
export type Recovery =
  | { readonly kind: 'nothing' }
  /** Cut short before its commit: taken back. */
  | { readonly kind: 'rolled-back'; readonly intent: 'install' | 'uninstall' }
  /** Cut short after its commit: the cleaning up was finished. */
  | { readonly kind: 'finished'; readonly intent: 'install' | 'uninstall' };
