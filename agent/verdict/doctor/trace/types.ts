/** The findings of `doctor --trace`, for its check and for the commands that show it. */

import type { TracedProcess } from './bindings.js';
import type { LiveProcess } from './traced.js';

export type TraceFacts =
  /** `why`: a clause without a full stop. `declined`: a person did not want it. */
  { readonly kind: 'not-traced'; readonly why: string; readonly declined: boolean } | TracedStart;

export interface TracedStart {
  readonly kind: 'traced';
  readonly processes: readonly TracedProcess[];
  /** Processes that were only counted. */
  readonly more: number;
  /** Those that lived when discovery was over. */
  readonly live: readonly LiveProcess[];
  readonly lines: number;
  /** Lines that are none of the tracer's. */
  readonly strange: number;
  /** The trace had reached its limit: what came later is missing. */
  readonly cut: boolean;
  /** Discovery was over when we stopped looking. */
  readonly complete: boolean;
}
