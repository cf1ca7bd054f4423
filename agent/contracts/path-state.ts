/** The state of a path: what is recorded and restored. */

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

export interface Ownership {
  readonly uid: number;
  readonly gid: number;
  /** Nanoseconds since the epoch, decimal (a bigint does not survive JSON). */
  readonly mtimeNs: string;
}

/** The state in words, after `is`: `a directory`, `a FIFO`, `missing`. */
export function kindOf(state: PathState): string {
  if (state.kind === 'absent') return 'missing';
  if (state.kind !== 'other') return `a ${state.kind}`;
  const { type } = state;
  return type === 'fifo' ? 'a FIFO' : type === 'socket' ? 'a socket' : `a ${type} device`;
}
