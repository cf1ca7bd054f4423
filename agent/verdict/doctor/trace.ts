/** The findings of `doctor --trace`, for its check and for the commands that show it. */

import fs from 'node:fs';
import path from 'node:path';
import type { LibraryVendor, ProcessFacts } from '../../contracts/facts.js';
import { type ContentCache, contentAt } from '../../guest/files/content.js';
import { openRegular, Root } from '../../guest/files/root.js';
import { parseMaps, textOf } from '../../guest/unit/processes.js';
import { traceFile, tracerName } from '../../lib/paths.js';
import { vendorText } from '../../lib/text.js';
import { readUpTo } from '../../lib/trust/files.js';
import { parseLogfmt } from '../log/logfmt.js';

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

type Group = Pick<Binding, 'way' | 'by' | 'library'> & { readonly symbols: Set<string> };

interface Traced {
  program: string | null;
  readonly bindings: Map<string, Group>;
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
  const lines = text.split('\n');
  const cut = lines.pop() === '' ? 0 : 1;
  let strange = cut;
  for (const line of lines) {
    const event = line.length > longestLine ? null : eventOf(line);
    if (event === null) {
      strange += 1;
    } else if (processes.size >= mostProcesses && !processes.has(event.pid)) {
      more.add(event.pid);
    } else {
      const fresh = {
        program: null,
        bindings: new Map(),
        opened: new Set<string>(),
        bypassed: new Set<string>(),
      };
      const one = processes.get(event.pid) ?? fresh;
      processes.set(event.pid, one);
      event.add(one);
    }
  }
  return { processes, more: more.size, lines: lines.length + cut, strange };
}

function eventOf(line: string): { readonly pid: number; readonly add: (one: Traced) => void } | null {
  const read = parseLogfmt(line);
  if (read.kind !== 'record' || read.repeated.size > 0) return null;
  const word = (name: string): string | null => {
    const value = read.fields.get(name) ?? '-';
    return value === '-' ? null : value;
  };
  const pid = word('pid') ?? '';
  if (!/^[1-9]\d{0,8}$/.test(pid) || !/^\d+\.\d{6}$/.test(word('time') ?? '')) return null;
  const event = (add: (one: Traced) => void) => ({ pid: Number(pid), add });
  const [object, file, symbol, library] = [word('object'), word('file'), word('symbol'), word('library')];
  const binds = (way: Way, by: string | null) =>
    symbol === null ? null : event((one) => bind(one, { way, by, library }, symbol));
  switch (word('event')) {
    case 'process':
      return event((one) => {
        one.program = word('program');
      });
    case 'object':
      return event(() => {});
    case 'dlopen':
      return file === null
        ? null
        : event(({ opened }) => (isDriver(file) ? keep(opened, file, mostNames) : undefined));
    case 'bypassed':
      return object === null ? null : event(({ bypassed }) => keep(bypassed, object, mostNames));
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
function bind(
  { bindings }: Traced,
  { way, by, library }: Pick<Binding, 'way' | 'by'> & { readonly library: string | null },
  symbol: string,
): void {
  // A library's use of its own symbols shows nothing about other libraries.
  if (library === null || library === by) return;
  const key = JSON.stringify([way, by, library]);
  if (!bindings.has(key) && bindings.size >= mostNames) return;
  const group = bindings.get(key) ?? { way, by, library, symbols: new Set<string>() };
  bindings.set(key, group);
  keep(group.symbols, symbol, mostSymbols);
}

function keep(names: Set<string>, name: string, most: number): void {
  if (names.size < most) names.add(name);
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
    groups.set(key, { same: [...(groups.get(key)?.same ?? []), one], lines });
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
  if (vendor === 'vgpu') return `vgpu-agent's ${path.basename(library)}`;
  if (vendor === null) return `${library}, which cannot be read`;
  return `${library}, ${vendorText(vendor)}`;
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

// A traced start of a service, read from its trace: events, processes, and the owner of each library.

export interface LiveProcess {
  readonly pid: number;
  readonly program: string;
  readonly traced: boolean | null;
}

export function liveProcess({
  pid,
  executable,
  name,
}: Pick<ProcessFacts, 'pid' | 'executable' | 'name'>): LiveProcess {
  return { pid, program: executable ?? name, traced: hasTracer(pid) };
}

function hasTracer(pid: number): boolean | null {
  const maps = textOf(`/proc/${pid}/maps`);
  return maps === '' ? null : parseMaps(maps).some((one) => path.basename(one.path) === tracerName);
}

/** The output of the processes, at most `limit` bytes; empty when there is none. No link is followed. */
export function readTraceFile(limit: number, file = traceFile): { text: string; cut: boolean } {
  const descriptor = openRegular(file, file);
  if (descriptor === null) return { text: '', cut: false };
  try {
    const { bytes } = readUpTo(descriptor, limit);
    return { text: bytes.toString('utf8'), cut: bytes.length === limit };
  } finally {
    fs.closeSync(descriptor);
  }
}

/** More than a service loads; the names come from its processes, which may name what they like. */
const mostLibraries = 40;

/** The vendor of each library, by content; a file that cannot be read, or no longer exists, is left out. */
export async function whoseLibraries(
  files: Iterable<string>,
  contents: ContentCache,
): Promise<ReadonlyMap<string, LibraryVendor>> {
  const root = new Root('/');
  const found = new Map<string, LibraryVendor>();
  for (const file of [...files].filter((one) => path.isAbsolute(one)).slice(0, mostLibraries)) {
    const content = await contentAt(root, file, contents).catch(() => null);
    if (content !== null) found.set(file, content.vendor);
  }
  return found;
}
