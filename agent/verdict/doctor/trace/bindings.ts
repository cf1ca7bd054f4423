/** The findings of `doctor --trace`, for its check and for the commands that show it. */
import path from 'node:path';
import type { LibraryVendor } from '../../../contracts/facts.js';
import { parseLogfmt } from '../../log/logfmt.js';
import type { LiveProcess } from './traced.js';

export type TraceFacts =
  /** `why`: a clause without a full stop. `declined`: a person did not want it. */
  { readonly kind: 'not-traced'; readonly why: string; readonly declined: boolean } | TracedStart;

export interface TracedStart {
  readonly kind: 'traced';
  readonly processes: readonly TracedProcess[];
  readonly more: number;
  /** Those that lived when discovery was over. */
  readonly live: readonly LiveProcess[];
  readonly lines: number;
  readonly strange: number;
  /** The trace had reached its limit: what came later is missing. */
  readonly cut: boolean;
  /** Discovery was over when we stopped looking. */
  readonly complete: boolean;
}

// Lines of libvgpu-trace.so (docs/reference/trace.md). Any process of the service may write what it likes there.

type TraceEvent = { readonly pid: number } & (
  | { readonly kind: 'process'; readonly program: string | null }
  | { readonly kind: 'object' }
  | { readonly kind: 'dlopen'; readonly file: string }
  /** `library`: where it was found; null: nowhere, or not known. */
  | {
      readonly kind: 'dlsym';
      readonly caller: string | null;
      readonly symbol: string;
      readonly library: string | null;
    }
  | { readonly kind: 'cuGetProcAddress'; readonly symbol: string; readonly library: string | null }
  /** `library` is null while it is not bound. */
  | {
      readonly kind: 'binds';
      readonly object: string;
      readonly symbol: string;
      readonly library: string | null;
    }
  | { readonly kind: 'bypassed'; readonly object: string }
);

interface ReadTrace {
  readonly events: readonly TraceEvent[];
  /** Lines that the tracer did not write in this form: truncated by a full disk, or written by another program. */
  readonly strange: number;
}

/** The tracer's lines are shorter (VGPU_TRACE_LINE). */
const longestLine = 2048;
const mostEvents = 300_000;

/** Time and memory are linear in the text; a line that is not whole is counted and passed over. */
export function readTrace(text: string): ReadTrace {
  const events: TraceEvent[] = [];
  let strange = 0;
  for (let at = 0; at < text.length; ) {
    const end = text.indexOf('\n', at);
    const stop = end === -1 ? text.length : end;
    const event = end === -1 || stop - at > longestLine ? null : eventOf(text.slice(at, stop));
    if (event === null || events.length >= mostEvents) strange += 1;
    else events.push(event);
    at = stop + 1;
  }
  return { events, strange };
}

function eventOf(line: string): TraceEvent | null {
  const read = parseLogfmt(line);
  if (read.kind !== 'record' || read.repeated.size > 0) return null;
  const { fields } = read;
  const word = (name: string): string | null => {
    const value = fields.get(name);
    return value === undefined || value === '-' ? null : value;
  };
  const number = word('pid') ?? '';
  if (!/^[1-9]\d{0,8}$/.test(number) || !/^\d+\.\d{6}$/.test(word('time') ?? '')) return null;
  const pid = Number(number);
  const symbol = word('symbol');
  const object = word('object');
  const file = word('file');
  const library = word('library');
  switch (word('event')) {
    case 'process':
      return { pid, kind: 'process', program: word('program') };
    case 'object':
      return { pid, kind: 'object' };
    case 'dlopen':
      return file === null ? null : { pid, kind: 'dlopen', file };
    case 'dlsym':
      return symbol === null ? null : { pid, kind: 'dlsym', caller: word('caller'), symbol, library };
    case 'cuGetProcAddress':
      return symbol === null ? null : { pid, kind: 'cuGetProcAddress', symbol, library };
    case 'binds':
      return object === null || symbol === null ? null : { pid, kind: 'binds', object, symbol, library };
    case 'bypassed':
      return object === null ? null : { pid, kind: 'bypassed', object };
    default:
      return null;
  }
}

// Events of a trace, gathered for each process: which library its CUDA and NVML symbols were bound to. Pure.

/** `linked`: the object refers to them itself; `dlsym`: it looked them up; `driver`: by a driver's cuGetProcAddress. */
type Way = 'linked' | 'dlsym' | 'driver';

interface Binding {
  readonly way: Way;
  /** The object that refers to them or looked them up; null: not known. */
  readonly by: string | null;
  readonly library: string;
  /** Null: it could not be read. */
  readonly vendor: LibraryVendor | null;
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
  readonly more: number;
}

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

// The words for what a trace shows: for evidence and for the list that a person reads. Pure.

interface TraceLine {
  readonly text: string;
  /** It is about a driver other than the shim. */
  readonly foreign: boolean;
}

/** Processes of one program for which the trace shows the same. */
interface TraceGroup {
  readonly who: string;
  readonly lines: readonly TraceLine[];
}

export function groupsOf({
  processes,
  live,
}: Pick<TracedStart, 'processes' | 'live'>): readonly TraceGroup[] {
  const groups = new Map<string, { readonly same: TracedProcess[]; readonly lines: readonly TraceLine[] }>();
  for (const one of processes) {
    const lines = linesOf(one, processes);
    const key = JSON.stringify([one.program, lines]);
    const group = groups.get(key) ?? { same: [], lines };
    group.same.push(one);
    groups.set(key, group);
  }
  return [
    ...[...groups.values()].map(({ same, lines }) => ({ who: processNames(same), lines })),
    ...live
      .filter(({ traced }) => traced === false)
      .map((one) => ({ who: processNames([one]), lines: [{ text: 'is not traced', foreign: false }] })),
  ];
}

/** `ollama (process 612)`, `llama-server (8 processes)`. */
export function processNames(processes: readonly Pick<TracedProcess, 'pid' | 'program'>[]): string {
  const program = processes[0]?.program ?? null;
  const numbers = processes.map(({ pid }) => pid).join(', ');
  // Few numbers say which; many only how many.
  const which =
    processes.length > 4
      ? `${processes.length} processes`
      : `process${processes.length === 1 ? '' : 'es'} ${numbers}`;
  return program === null ? `an unknown program (${which})` : `${path.basename(program)} (${which})`;
}

function linesOf(one: TracedProcess, all: readonly TracedProcess[]): readonly TraceLine[] {
  const lines = [
    ...one.bindings.map((binding) => ({ text: bindingText(binding), foreign: isForeign(binding) })),
    ...one.opened.filter(isForeign).map(({ file, vendor }) => ({
      text: `opened ${libraryText({ library: file, vendor })}`,
      foreign: true,
    })),
    ...one.bypassed.map((object) => ({
      text: `lookups of ${object} are not traced: RTLD_DEEPBIND, or it is bound to itself`,
      foreign: false,
    })),
  ];
  return lines.length > 0 ? lines : [{ text: silence(one, all), foreign: false }];
}

/** `11 symbols of libggml-cuda.so -> vgpu-agent's libcuda.so.1`. */
function bindingText(binding: Binding): string {
  const { symbols, example, way, by } = binding;
  const what = symbols === 1 ? `the symbol ${example}` : `${symbols} symbols`;
  const name = by === null ? 'an unknown object' : by === 'program' ? 'the program' : path.basename(by);
  const how = { linked: `of ${name}`, dlsym: `that ${name} looked up`, driver: 'by cuGetProcAddress' }[way];
  return `${what} ${how} -> ${libraryText(binding)}`;
}

/** Ours in short: where it lies is known. */
export function libraryText({ library, vendor }: Pick<Binding, 'library' | 'vendor'>): string {
  switch (vendor) {
    case 'vgpu':
      return `vgpu-agent's ${path.basename(library)}`;
    case 'nvidia':
      return `${library}, NVIDIA's`;
    case 'foreign':
      return `${library}, neither of vgpu-agent nor of NVIDIA`;
    case null:
      return `${library}, which cannot be read`;
  }
}

export function isForeign({ vendor }: Pick<Binding, 'vendor'>): boolean {
  return vendor === 'nvidia' || vendor === 'foreign';
}

/** For a process without bindings. Lookups that bypass the tracer are not known. */
function silence({ asked }: TracedProcess, all: readonly TracedProcess[]): string {
  if (asked) return 'called no function of a driver';
  return all.some(({ bypassed }) => bypassed.length > 0)
    ? 'opened no driver in the trace'
    : 'never opened libcuda';
}
