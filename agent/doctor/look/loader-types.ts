/** What the simulation of the dynamic loader is given, and what it says. */

/** A library as one process would open it. */
export interface LoadableFile {
  /** The file that the path leads to, links followed. */
  readonly realPath: string;
  /** Device and inode: the loader takes two names of one file for one library. */
  readonly identity: string;
  readonly soname: string | null;
  readonly needed: readonly string[];
  readonly rpath: string | null;
  readonly runpath: string | null;
  readonly noDefaultDirectories: boolean;
  readonly interpreter: string | null;
  readonly setUserId: boolean;
}

/** What the loader meets at a path. */
export type Opened =
  | { readonly kind: 'absent' }
  /** It goes on looking: another class or machine, or it may not be read. */
  | { readonly kind: 'passed-over'; readonly reason: string }
  /** It gives up: a file is there that is no library. */
  | { readonly kind: 'refused'; readonly reason: string }
  | { readonly kind: 'library'; readonly file: LoadableFile };

/** The file system as the process sees it. Paths are absolute. */
export interface LoaderView {
  open(path: string): Opened;
  /** Text of /etc/ld.so.preload; null when there is none. */
  readonly preloadFile: string | null;
  /** The path that /etc/ld.so.cache has for a name, by the runtime's hwcaps; null when it has none. */
  cached(name: string): string | null;
}

export interface LoadingProcess {
  /** Path of the program. */
  readonly executable: string;
  /** LD_PRELOAD and LD_LIBRARY_PATH as they were when it started. */
  readonly environment: Readonly<Record<string, string>>;
  readonly directory: string;
  /** AT_SECURE: set-user-ID, file capabilities. The loader then trusts the environment with nothing. */
  readonly secure: boolean;
}

export interface LoaderStep {
  /** `LD_LIBRARY_PATH`, `RUNPATH of /x/libggml-cuda.so`, `ld.so.cache`, `a default directory`. */
  readonly by: string;
  readonly path: string;
  readonly outcome: 'taken' | 'absent' | 'passed-over' | 'refused';
  /** Null for `taken` and `absent`. */
  readonly reason: string | null;
}

export interface LoadedObject {
  /** The path by which it was found. */
  readonly path: string;
  readonly file: LoadableFile;
  /** What led to it: `LD_PRELOAD`, `RUNPATH of ...`, `the program`. */
  readonly by: string;
}

export type LoadResult =
  | {
      readonly kind: 'found';
      readonly object: LoadedObject;
      /** It had been loaded before by another request and answers to this name too. */
      readonly already: boolean;
      readonly steps: readonly LoaderStep[];
    }
  | { readonly kind: 'not-found'; readonly steps: readonly LoaderStep[] }
  /** The search met a file that is no library: the request fails although others may follow. */
  | {
      readonly kind: 'refused';
      readonly path: string;
      readonly reason: string;
      readonly steps: readonly LoaderStep[];
    };

/** A library that could not be had. */
export interface LoaderTrouble {
  readonly name: string;
  /** Path of the object that needs it, or `LD_PRELOAD`. */
  readonly neededBy: string;
  readonly result: LoadResult;
}

export interface OpenResult {
  /** Of the search for the name itself. */
  readonly result: LoadResult;
  /** What came into the process with it; nothing of it stays when something is missing. */
  readonly mapped: readonly LoadedObject[];
  /** Empty: dlopen() succeeds if `result` is `found`. */
  readonly missing: readonly LoaderTrouble[];
}

export interface SimulatedLoader {
  /** The process after its start: its program, the preloads and everything that they need. */
  readonly objects: readonly LoadedObject[];
  /** Of the start: preloads, about which the loader only prints a line; without the others it does not start. */
  readonly troubles: readonly LoaderTrouble[];
  /** dlopen() of `name` by the object at `caller` (a path; default: the program), with all that it needs. */
  open(name: string, caller?: string): OpenResult;
  /** What answers to a name now; null when nothing does. */
  loaded(name: string): LoadedObject | null;
}
