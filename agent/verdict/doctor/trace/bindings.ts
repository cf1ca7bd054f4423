/** Events of a trace, gathered for each process: which library its CUDA and NVML symbols were bound to. Pure. */
import path from 'node:path';
import type { LibraryVendor } from '../../../contracts/facts.js';
import type { TraceEvent } from './events.js';
import type { LiveProcess } from './traced.js';

/** `linked`: the object refers to them itself; `dlsym`: it looked them up; `driver`: by a driver's cuGetProcAddress. */
export type Way = 'linked' | 'dlsym' | 'driver';

export interface Binding {
  readonly way: Way;
  /** The object that refers to them or looked them up; null: not known. */
  readonly by: string | null;
  readonly library: string;
  /** Null: it could not be read. */
  readonly vendor: LibraryVendor | null;
  /** How many different ones. */
  readonly symbols: number;
  readonly example: string;
}

export interface TracedProcess {
  readonly pid: number;
  readonly program: string | null;
  readonly bindings: readonly Binding[];
  /** The driver names for which it asked the loader, each once. */
  readonly opened: readonly { readonly file: string; readonly vendor: LibraryVendor | null }[];
  /** Objects whose own lookups do not come by the tracer. */
  readonly bypassed: readonly string[];
  /** It opened a driver, was linked with one, or looked one of its functions up. */
  readonly asked: boolean;
}

/** A service has some ten; others are only counted. */
const mostProcesses = 500;

export interface GatheredTrace {
  /** In the order in which they were heard of first. */
  readonly processes: readonly TracedProcess[];
  /** Processes beyond those. */
  readonly more: number;
}

/** Paths whose owners have to be known. */
export function librariesOf(events: readonly TraceEvent[]): ReadonlySet<string> {
  const files = new Set<string>();
  for (const event of events) {
    if (event.kind === 'dlopen' && isDriver(event.file) && path.isAbsolute(event.file)) files.add(event.file);
    else if ('library' in event && event.library !== null) files.add(event.library);
  }
  return files;
}

export function gatherTrace(
  events: readonly TraceEvent[],
  vendors: ReadonlyMap<string, LibraryVendor>,
  live: readonly LiveProcess[],
): GatheredTrace {
  const found = new Map<number, Collected>();
  const rest = new Set<number>();
  for (const event of events) {
    let one = found.get(event.pid);
    if (one === undefined) {
      if (found.size >= mostProcesses) {
        rest.add(event.pid);
        continue;
      }
      one = { program: null, bindings: new Map(), opened: new Set(), bypassed: new Set() };
      found.set(event.pid, one);
    }
    collect(one, event);
  }
  const processes = [...found].map(([pid, one]) => processOf(pid, one, vendors));
  // A process that loaded the tracer but never called it wrote nothing at all.
  const silent = live
    .filter(({ pid, traced }) => traced === true && !found.has(pid))
    .map(({ pid, program }) => ({ pid, program, bindings: [], opened: [], bypassed: [], asked: false }));
  return { processes: [...processes, ...silent], more: rest.size };
}

interface Collected {
  program: string | null;
  readonly bindings: Map<string, { binding: Omit<Binding, 'vendor' | 'symbols'>; symbols: Set<string> }>;
  readonly opened: Set<string>;
  readonly bypassed: Set<string>;
}

/** Names that come from the process are remembered no more often than this. */
const mostNames = 100;

function collect(one: Collected, event: TraceEvent): void {
  switch (event.kind) {
    case 'process':
      one.program = event.program;
      return;
    case 'object':
      return;
    case 'dlopen':
      if (isDriver(event.file) && one.opened.size < mostNames) one.opened.add(event.file);
      return;
    case 'dlsym':
      // A lookup of a library in itself says nothing about other libraries.
      if (event.caller !== event.library) bind(one, 'dlsym', event.caller, event);
      return;
    case 'cuGetProcAddress':
      bind(one, 'driver', null, event);
      return;
    case 'binds':
      // A driver's references to what it defines itself.
      if (event.object !== event.library) bind(one, 'linked', event.object, event);
      return;
    case 'bypassed':
      if (one.bypassed.size < mostNames) one.bypassed.add(event.object);
      return;
  }
}

function bind(
  one: Collected,
  way: Way,
  by: string | null,
  { symbol, library }: { readonly symbol: string; readonly library: string | null },
): void {
  if (library === null) return;
  const key = JSON.stringify([way, by, library]);
  let group = one.bindings.get(key);
  if (group === undefined) {
    if (one.bindings.size >= mostNames) return;
    group = { binding: { way, by, library, example: symbol }, symbols: new Set() };
    one.bindings.set(key, group);
  }
  group.symbols.add(symbol);
}

function processOf(
  pid: number,
  { program, bindings, opened, bypassed }: Collected,
  vendors: ReadonlyMap<string, LibraryVendor>,
): TracedProcess {
  return {
    pid,
    program,
    bindings: [...bindings.values()].map(({ binding, symbols }) => ({
      ...binding,
      vendor: vendors.get(binding.library) ?? null,
      symbols: symbols.size,
    })),
    opened: [...opened].map((file) => ({ file, vendor: vendors.get(file) ?? null })),
    bypassed: [...bypassed],
    asked: bindings.size > 0 || opened.size > 0,
  };
}

function isDriver(file: string): boolean {
  return /^lib(?:cuda|nvidia-ml)\.so(?:\.|$)/.test(path.basename(file));
}
