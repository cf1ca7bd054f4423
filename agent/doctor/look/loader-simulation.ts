/**
 * Which file the loader of glibc takes for a name in a given process, and why: the search of
 * _dl_map_object (elf/dl-load.c) step by step, over a read-only view, without running anything.
 */
import path from 'node:path';
import {
  absolute,
  expandTokens,
  type PathContext,
  preloadFileNames,
  preloadNames,
  searchDirectories,
} from './loader-paths.js';
import type { LoaderRuntime } from './loader-runtime.js';
import type {
  LoadableFile,
  LoadedObject,
  LoaderStep,
  LoaderTrouble,
  LoaderView,
  LoadingProcess,
  LoadResult,
  OpenResult,
  SimulatedLoader,
} from './loader-types.js';

/** An object in the process, as the loader's link map has it. */
interface Loaded extends LoadedObject {
  /** Every name it answers to beside its SONAME. */
  readonly names: Set<string>;
  /** Who needs it; DT_RPATH is inherited along this chain. Null after dlopen(). */
  readonly loader: Loaded | null;
}

/**
 * Starts the process: program, LD_PRELOAD, /etc/ld.so.preload, and what they need. Null when the program
 * cannot be opened or is no dynamic one.
 */
export function simulateLoader(
  view: LoaderView,
  runtime: LoaderRuntime,
  started: LoadingProcess,
): SimulatedLoader | null {
  const program = view.open(started.executable);
  if (program.kind !== 'library' || program.file.interpreter === null) return null;
  return new Simulation(view, runtime, started, program.file);
}

class Simulation implements SimulatedLoader {
  readonly #view: LoaderView;
  readonly #runtime: LoaderRuntime;
  readonly #process: LoadingProcess;
  readonly #main: Loaded;
  readonly #objects: Loaded[] = [];
  readonly #troubles: LoaderTrouble[] = [];

  constructor(view: LoaderView, runtime: LoaderRuntime, started: LoadingProcess, program: LoadableFile) {
    this.#view = view;
    this.#runtime = runtime;
    this.#process = started;
    this.#main = this.#add(started.executable, started.executable, program, 'the program', null);
    this.#addInterpreter(program.interpreter ?? '');
    const { environment, secure } = started;
    const first = [this.#main];
    for (const [list, from] of [
      [preloadNames(environment['LD_PRELOAD'] ?? '', secure), 'LD_PRELOAD'],
      [preloadFileNames(view.preloadFile ?? ''), '/etc/ld.so.preload'],
    ] as const) {
      for (const name of list) {
        const object = this.#preload(name, from);
        if (object !== null) first.push(object);
      }
    }
    this.#loadNeeded(first);
  }

  get objects(): readonly LoadedObject[] {
    return this.#objects;
  }

  get troubles(): readonly LoaderTrouble[] {
    return this.#troubles;
  }

  open(name: string, caller?: string): OpenResult {
    const from = this.#objects.find((one) => one.path === caller) ?? this.#main;
    const [objects, troubles] = [this.#objects.length, this.#troubles.length];
    const result = this.#find(name, from, 'dlopen');
    const added = this.#objects.slice(objects);
    this.#loadNeeded(added);
    const mapped = this.#objects.slice(objects);
    const missing = this.#troubles.splice(troubles);
    // A library that lacks one of those that it needs is let go again with all that came with it.
    if (missing.length > 0) this.#objects.length = objects;
    return { result, mapped, missing };
  }

  loaded(name: string): LoadedObject | null {
    return this.#known(name);
  }

  #preload(name: string, from: string): Loaded | null {
    const before = this.#objects.length;
    const result = this.#find(name, this.#main, from);
    if (result.kind !== 'found') this.#troubles.push({ name, neededBy: from, result });
    // In a secure process only what its owner marked set-user-ID may be preloaded.
    return this.#objects[before] ?? null;
  }

  /** Breadth first, as _dl_map_object_deps. */
  #loadNeeded(first: readonly Loaded[]): void {
    const queue = [...first];
    for (let object = queue.shift(); object !== undefined; object = queue.shift()) {
      for (const name of object.file.needed) {
        const before = this.#objects.length;
        const result = this.#find(name, object, 'needed');
        if (result.kind !== 'found') this.#troubles.push({ name, neededBy: object.path, result });
        queue.push(...this.#objects.slice(before));
      }
    }
  }

  #addInterpreter(interpreter: string): void {
    const opened = this.#view.open(interpreter);
    if (opened.kind === 'library') {
      this.#add(interpreter, interpreter, opened.file, 'the program interpreter', null);
    }
  }

  #add(name: string, at: string, file: LoadableFile, by: string, loader: Loaded | null): Loaded {
    const object: Loaded = { path: at, file, by, loader, names: new Set([name, at]) };
    this.#objects.push(object);
    return object;
  }

  /** _dl_name_match_p and the SONAME. */
  #known(name: string): Loaded | null {
    return this.#objects.find((one) => one.names.has(name) || one.file.soname === name) ?? null;
  }

  #find(name: string, loader: Loaded, asked: string): LoadResult {
    const steps: LoaderStep[] = [];
    const known = this.#known(name);
    if (known !== null) {
      known.names.add(name);
      return { kind: 'found', object: known, already: true, steps };
    }
    const isPreload = asked === 'LD_PRELOAD' || asked === '/etc/ld.so.preload';
    for (const place of name.includes('/') ? this.#named(name, loader, asked) : this.#places(name, loader)) {
      const opened = this.#view.open(place.path);
      const reason = opened.kind === 'passed-over' || opened.kind === 'refused' ? opened.reason : null;
      if (opened.kind === 'refused') {
        steps.push({ ...place, outcome: 'refused', reason });
        return { kind: 'refused', path: place.path, reason: opened.reason, steps };
      }
      if (opened.kind !== 'library') {
        steps.push({ ...place, outcome: opened.kind, reason });
        continue;
      }
      if (isPreload && this.#process.secure && !name.includes('/') && !opened.file.setUserId) {
        steps.push({ ...place, outcome: 'passed-over', reason: 'it is not set-user-ID' });
        continue;
      }
      steps.push({ ...place, outcome: 'taken', reason: null });
      const same = this.#objects.find((one) => one.file.identity === opened.file.identity);
      if (same !== undefined) {
        same.names.add(name);
        return { kind: 'found', object: same, already: true, steps };
      }
      const by = isPreload ? asked : place.by;
      // What dlopen() loads inherits no DT_RPATH from its caller, only from the program.
      const inherits = asked === 'dlopen' ? null : loader;
      const object = this.#add(name, place.path, opened.file, by, inherits);
      return { kind: 'found', object, already: false, steps };
    }
    return { kind: 'not-found', steps };
  }

  *#named(name: string, loader: Loaded, asked: string): Generator<{ by: string; path: string }> {
    const expanded = expandTokens(name, this.#context(loader));
    if (expanded !== null) yield { by: asked, path: absolute(expanded, this.#process.directory) };
  }

  /** Every file that is tried for a name without a slash, in order. */
  *#places(name: string, loader: Loaded): Generator<{ by: string; path: string }> {
    const { secure, environment } = this.#process;
    if (loader.file.runpath === null) {
      for (const object of this.#chain(loader)) {
        const list = object.file.runpath === null ? object.file.rpath : null;
        if (list === null) continue;
        const directories = searchDirectories(list, /:/, this.#context(object));
        yield* this.#within(directories, name, `DT_RPATH of ${object.path}`);
      }
    }
    const listed = secure ? '' : (environment['LD_LIBRARY_PATH'] ?? '');
    const byEnvironment = searchDirectories(listed, /[:;]/, this.#context(this.#main));
    yield* this.#within(byEnvironment, name, 'LD_LIBRARY_PATH');
    if (loader.file.runpath !== null) {
      const directories = searchDirectories(loader.file.runpath, /:/, this.#context(loader));
      yield* this.#within(directories, name, `DT_RUNPATH of ${loader.path}`);
    }
    const cached = this.#view.cached(name);
    const skipsDefaults = loader.file.noDefaultDirectories;
    if (cached !== null && !(skipsDefaults && this.#isDefault(cached))) {
      yield { by: 'ld.so.cache', path: cached };
    }
    if (!skipsDefaults) yield* this.#within(this.#runtime.systemDirectories, name, 'a default directory');
  }

  /** The object, whoever loaded it, and on up; the program last even when it did not. */
  #chain(from: Loaded): readonly Loaded[] {
    const chain: Loaded[] = [];
    for (let at: Loaded | null = from; at !== null; at = at.loader) chain.push(at);
    return chain.includes(this.#main) ? chain : [...chain, this.#main];
  }

  *#within(
    directories: readonly string[],
    name: string,
    by: string,
  ): Generator<{ by: string; path: string }> {
    for (const directory of directories) {
      for (const below of [...this.#runtime.subdirectories, '']) {
        // Not joined: `..` after a link leads elsewhere than it looks.
        yield { by, path: [directory, below, name].filter((part) => part !== '').join('/') };
      }
    }
  }

  #isDefault(file: string): boolean {
    return this.#runtime.systemDirectories.some((directory) => file.startsWith(`${directory}/`));
  }

  #context(object: Loaded): PathContext {
    return {
      runtime: this.#runtime,
      origin: path.posix.dirname(object.path),
      directory: this.#process.directory,
      secure: this.#process.secure,
    };
  }
}
