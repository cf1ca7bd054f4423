/** The findings of `doctor --trace`, for its check and for the commands that show it. */
import path from 'node:path';
import type { LibraryVendor } from '../../../contracts/facts.js';
import { parseLogfmt } from '../../log/logfmt.js';
import type { LiveProcess } from './traced.js';

export type TraceFacts =
  | { readonly kind: 'not-traced'; readonly why: string; readonly declined: boolean }
  | TracedStart;

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

/** `linked`: the object refers to them itself; `dlsym`: it looked them up; `driver`: by a driver's cuGetProcAddress. */
type Way = 'linked' | 'dlsym' | 'driver';

interface Binding {
  readonly way: Way;
  readonly by: string | null;
  readonly library: string;
  readonly vendor: LibraryVendor | null;
  readonly symbols: number;
  readonly example: string;
}

export interface TracedProcess {
  readonly pid: number;
  readonly program: string | null;
  readonly bindings: readonly Binding[];
  readonly opened: readonly { readonly file: string; readonly vendor: LibraryVendor | null }[];
  /** Objects whose own lookups bypass the tracer. */
  readonly bypassed: readonly string[];
  /** It opened a driver, was linked with one, or looked one of its functions up. */
  readonly asked: boolean;
}

// Lines of libvgpu-trace.so (docs/reference/trace.md). Any process of the service can write such lines.

interface Traced {
  program: string | null;
  readonly bindings: Map<string, Pick<Binding, 'way' | 'by' | 'library'> & { symbols: Set<string> }>;
  readonly opened: Set<string>;
  readonly bypassed: Set<string>;
}

type ReadTrace = ReturnType<typeof readTrace>;

const longestLine = 2048;
/** A service has about ten. */
const mostProcesses = 500;
/** The limit of names of a kind for each process, and of symbols for each binding. */
const mostNames = 100;
const mostSymbols = 5_000;

/**
 * `processes` by their number, in the order of their first lines; `strange` counts lines that the tracer did not write
 * in this form: truncated by a full disk, or written by another program.
 */
export function readTrace(text: string) {
  const processes = new Map<number, Traced>();
  const more = new Set<number>();
  let lines = 0;
  let strange = 0;
  for (let at = 0; at < text.length; ) {
    const end = text.indexOf('\n', at);
    const stop = end === -1 ? text.length : end;
    const event = end === -1 || stop - at > longestLine ? null : eventOf(text.slice(at, stop));
    at = stop + 1;
    lines += 1;
    if (event === null) {
      strange += 1;
      continue;
    }
    const { pid, add } = event;
    const known = processes.get(pid);
    if (known === undefined && processes.size >= mostProcesses) {
      more.add(pid);
      continue;
    }
    const one = known ?? { program: null, bindings: new Map(), opened: new Set(), bypassed: new Set() };
    processes.set(pid, one);
    add(one);
  }
  return { processes, more: more.size, lines, strange };
}

interface TraceEvent {
  readonly pid: number;
  readonly add: (one: Traced) => void;
}

function eventOf(line: string): TraceEvent | null {
  const read = parseLogfmt(line);
  if (read.kind !== 'record' || read.repeated.size > 0) return null;
  const word = (name: string): string | null => {
    const value = read.fields.get(name);
    return value === undefined || value === '-' ? null : value;
  };
  const pid = word('pid') ?? '';
  if (!/^[1-9]\d{0,8}$/.test(pid) || !/^\d+\.\d{6}$/.test(word('time') ?? '')) return null;
  const add = effectOf(word('event'), word);
  return add === null ? null : { pid: Number(pid), add };
}

function effectOf(event: string | null, word: (name: string) => string | null): TraceEvent['add'] | null {
  const [object, file, symbol] = [word('object'), word('file'), word('symbol')];
  const binds = (way: Way, by: string | null) => bindingOf(way, by, symbol, word('library'));
  switch (event) {
    case 'process':
      return (one) => {
        one.program = word('program');
      };
    case 'object':
      return () => {};
    case 'dlopen':
      return file === null ? null : ({ opened }) => (isDriver(file) ? keep(opened, file) : undefined);
    case 'bypassed':
      return object === null ? null : ({ bypassed }) => keep(bypassed, object);
    case 'dlsym':
      return binds('dlsym', word('caller'));
    case 'cuGetProcAddress':
      return binds('driver', null);
    case 'binds':
      return object === null ? null : binds('linked', object);
    default:
      return null;
  }
}

/** `library` is null if the symbol was not found or is not bound yet. */
function bindingOf(
  way: Way,
  by: string | null,
  symbol: string | null,
  library: string | null,
): TraceEvent['add'] | null {
  if (symbol === null) return null;
  return ({ bindings }) => {
    // A library's use of its own symbols shows nothing about other libraries.
    if (library === null || library === by) return;
    const key = JSON.stringify([way, by, library]);
    const known = bindings.get(key);
    if (known === undefined && bindings.size >= mostNames) return;
    const group = known ?? { way, by, library, symbols: new Set<string>() };
    bindings.set(key, group);
    if (group.symbols.size < mostSymbols) group.symbols.add(symbol);
  };
}

function keep(names: Set<string>, name: string): void {
  if (names.size < mostNames) names.add(name);
}

function isDriver(file: string): boolean {
  return /^lib(?:cuda|nvidia-ml)\.so(?:\.|$)/.test(path.basename(file));
}

export function librariesOf({ processes }: ReadTrace): ReadonlySet<string> {
  const all = [...processes.values()].flatMap(({ opened, bindings }) => [
    ...[...opened].filter((file) => path.isAbsolute(file)),
    ...[...bindings.values()].map(({ library }) => library),
  ]);
  return new Set(all);
}

export function tracedProcesses(
  { processes }: ReadTrace,
  vendors: ReadonlyMap<string, LibraryVendor>,
  live: readonly LiveProcess[],
): readonly TracedProcess[] {
  const vendorOf = (file: string): LibraryVendor | null => vendors.get(file) ?? null;
  const heard = [...processes].map(([pid, { program, bindings, opened, bypassed }]) => ({
    pid,
    program,
    bindings: [...bindings.values()].map(({ way, by, library, symbols }) => {
      const [example = ''] = symbols;
      return { way, by, library, example, vendor: vendorOf(library), symbols: symbols.size };
    }),
    opened: [...opened].map((file) => ({ file, vendor: vendorOf(file) })),
    bypassed: [...bypassed],
    asked: bindings.size > 0 || opened.size > 0,
  }));
  // A process that has loaded the tracer and never called it writes no line.
  const silent = live
    .filter(({ pid, traced }) => traced === true && !processes.has(pid))
    .map(({ pid, program }) => ({ pid, program, bindings: [], opened: [], bypassed: [], asked: false }));
  return [...heard, ...silent];
}

interface TraceLine {
  readonly text: string;
  readonly foreign: boolean;
}

/** Processes of one program for which the trace shows the same. */
export function groupsOf({
  processes,
  live,
}: Pick<TracedStart, 'processes' | 'live'>): readonly { who: string; lines: readonly TraceLine[] }[] {
  const groups = new Map<string, { readonly same: TracedProcess[]; readonly lines: readonly TraceLine[] }>();
  for (const one of processes) {
    const lines = linesOf(one, processes);
    const key = JSON.stringify([one.program, lines]);
    const group = groups.get(key) ?? { same: [], lines };
    group.same.push(one);
    groups.set(key, group);
  }
  const untraced = live.filter(({ traced }) => traced === false);
  return [
    ...[...groups.values()].map(({ same, lines }) => ({ who: processNames(same), lines })),
    ...untraced.map((one) => ({
      who: processNames([one]),
      lines: [{ text: 'is not traced', foreign: false }],
    })),
  ];
}

/** `ollama (process 612)`, `llama-server (8 processes)`. */
export function processNames(processes: readonly Pick<TracedProcess, 'pid' | 'program'>[]): string {
  const program = processes[0]?.program ?? null;
  const numbers = processes.map(({ pid }) => pid).join(', ');
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

function bindingText(binding: Binding): string {
  const { symbols, example, way, by } = binding;
  const what = symbols === 1 ? `the symbol ${example}` : `${symbols} symbols`;
  const name = by === null ? 'an unknown object' : by === 'program' ? 'the program' : path.basename(by);
  const how = { linked: `of ${name}`, dlsym: `that ${name} looked up`, driver: 'by cuGetProcAddress' }[way];
  return `${what} ${how} -> ${libraryText(binding)}`;
}

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
