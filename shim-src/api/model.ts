/**
 * The description of entry points: what a line means. See the head of cuda.api for the notation.
 */

/** A scalar or pointer as in a signature. */
export interface Parameter {
  readonly name: string;
  readonly type: string;
}

/** A fixed-size field of a frame's body. */
export interface WireField {
  readonly name: string;
  readonly type: WireType;
}

export type WireType = 'u64' | 'i64' | 'u32' | 'i32' | 'f32' | 'f64';

export interface WireBody {
  readonly fields: readonly WireField[];
  /** Bytes of any length follow the body. */
  readonly bulk: boolean;
  /** They are only copied, never looked at: they may lie where the other end can change them meanwhile. */
  readonly raw: boolean;
}

/**
 * The earlier one-way calls that must have ended at the host (they free memory, code or contexts) before this call:
 * none, those of the calling thread, or those of all threads of the session.
 */
export type Awaits = 'nothing' | 'own' | 'all';

export type Carriage =
  | { readonly kind: 'refused' }
  | { readonly kind: 'void' }
  | { readonly kind: 'data'; readonly bytes: number }
  | { readonly kind: 'local' }
  | { readonly kind: 'query' }
  | { readonly kind: 'none' }
  | { readonly kind: 'forward'; readonly target: string }
  | { readonly kind: 'oneway'; readonly send: WireBody; readonly common: boolean }
  | {
      readonly kind: 'waiting';
      readonly send: WireBody;
      readonly reply: WireBody;
      readonly auto: boolean;
      readonly common: boolean;
      readonly awaits: Awaits;
    };

/** How cuGetProcAddress finds the symbol. */
export interface ProcName {
  readonly base: string;
  /** CUDA version as the API counts: 12050 is 12.5. */
  readonly version: number;
  readonly perThread: boolean;
}

export interface EntryPoint {
  /** Low 16 bits of its opcode; permanent. */
  readonly number: number;
  readonly symbol: string;
  readonly proc: ProcName | undefined;
  /** A call of our own between guest and host: nothing of that name is exported. */
  readonly own?: true;
  readonly carriage: Carriage;
  /** Undefined: the public headers do not declare it. */
  readonly parameters: readonly Parameter[] | undefined;
}

export interface Library {
  /** "cuda" or "nvml"; part of generated names. */
  readonly name: 'cuda' | 'nvml';
  readonly soname: string;
  /** The return value of a refused entry point. */
  readonly refusal: number;
  readonly entries: readonly EntryPoint[];
}

/** Those that a real library exports too. */
export function exported(library: Library): readonly EntryPoint[] {
  return library.entries.filter(({ own }) => own === undefined);
}

export interface ErrorName {
  readonly value: number;
  readonly name: string;
  readonly text: string;
}
