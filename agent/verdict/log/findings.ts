/** The facts about one start of a consumer from its log, and the verdict on it. */
import type { Device, Evidence, LogVerdict, Reason } from '../../contracts/verdict.js';
import type { LoadRule } from '../../profile/types.js';
import type { CompiledGrammar, DeviceLine } from './grammar.js';

/**
 * - `undecided`: no device (nor CPU) was announced yet
 * - `announced`: a device was announced; more may follow
 * - `decided`: the consumer has finished discovery
 */
export type JudgeState = 'undecided' | 'announced' | 'decided';

export interface LogFindings extends LogVerdict {
  readonly state: JudgeState;
  /** The likeliest reason by lines that are only hints; facts about the machine must support it. */
  readonly hint: Reason | null;
  readonly version: string | null;
  readonly address: string | null;
  readonly load: LoadFindings | null;
  readonly loadError: Quote | null;
  /** Entries seen, and starts told apart. */
  readonly entries: number;
  readonly starts: number;
}

export const simulatedSuffix = ' (simulated)';

export type Quote = Omit<Evidence, 'weight'>;
type Known = Extract<DeviceLine, { kind: 'device' }>;

interface Start {
  invocationId: string | null;
  pid: number | null;
  marks: Set<number>;
  version: string | null;
  address: string | null;
  devices: { rule: number; line: Known; quote: Quote }[];
  matched: Set<number>;
  quotes: Quote[];
  spoilt: Quote[];
  finished: Set<number>;
  loads: Loads;
  /** The running children, by the name at the beginning of their lines. */
  children: Map<string, { readonly name: string; readonly loads: Loads }>;
}

export function newStart(): Start {
  return {
    invocationId: null,
    pid: null,
    marks: new Set(),
    version: null,
    address: null,
    devices: [],
    matched: new Set(),
    quotes: [],
    spoilt: [],
    finished: new Set(),
    loads: noLoads,
    children: new Map(),
  };
}

export function stateOf(start: Start): JudgeState {
  if (start.finished.size > 0) return 'decided';
  return start.devices.length > 0 ? 'announced' : 'undecided';
}

export function findingsOf(start: Start, grammar: CompiledGrammar): Omit<LogFindings, 'entries' | 'starts'> {
  const of = (weight: 'reason' | 'hint' | 'contradicts'): Reason | null => {
    const index = grammar.reasons.findIndex(
      ({ rule }, at) => rule.weight === weight && start.matched.has(at),
    );
    return grammar.reasons[index]?.rule.reason ?? null;
  };
  const lines = start.devices.map(({ line }) => line);
  const has = (what: Known['what']): boolean => lines.some((line) => line.what === what);
  const devices = mergeDevices(start);
  const simulated = devices.some(({ name }) => name.endsWith(simulatedSuffix));
  const load = allLoads([start.loads, ...[...start.children.values()].map(({ loads }) => loads)]);
  const failed = loadError(start.loads);
  const contradicted = of('contradicts');
  const said = contradicted ?? of('reason');
  let hint = of('hint');
  let mode: LogVerdict['mode'];
  let reason: Reason | null;
  if (has('unusable')) {
    mode = 'degraded';
    reason = contradicted;
    hint ??= 'probe-crashed';
  } else if (has('gpu')) {
    reason = contradicted ?? contradictionOf(load);
    mode = reason === null ? 'gpu' : 'degraded';
  } else if (has('other')) {
    mode = 'cpu';
    reason = said ?? 'not-cuda';
  } else if (has('cpu')) {
    mode = 'cpu';
    reason = said;
  } else {
    mode = 'undetermined';
    const old = said === 'unsupported-log-version' || hint === 'unsupported-log-version';
    reason = old ? 'unsupported-log-version' : 'no-discovery-line';
  }
  const evidence: Evidence[] = [
    ...start.devices.map(({ line, quote }) => ({
      ...quote,
      weight: line.what === 'gpu' ? ('for' as const) : ('against' as const),
    })),
    ...start.quotes.map((quote) => ({
      ...quote,
      weight: mode === 'gpu' ? ('neutral' as const) : ('against' as const),
    })),
    ...loadEvidence(start, load),
    ...(failed === null ? [] : [{ ...failed, weight: 'neutral' as const }]),
    ...start.spoilt.map((quote) => ({ ...quote, weight: 'neutral' as const })),
  ];
  const { version, address } = start;
  const found = { mode, simulated, devices, reason, evidence, hint, version, address, load };
  return { ...found, loadError: failed, state: stateOf(start) };
}

/** A model that was loaded elsewhere is newer than the line that found the GPU. */
function contradictionOf(load: LoadFindings | null): Reason | null {
  if (load === null || load.outcome === 'gpu') return null;
  const { layers, failed, cacheOnCpu } = load;
  const some = layers !== null && layers.gpu < layers.all;
  return !failed && (some || (load.outcome === 'partly' && cacheOnCpu))
    ? 'layers-not-offloaded'
    : 'model-on-cpu';
}

function loadEvidence({ quotes }: Start, load: LoadFindings | null): readonly Evidence[] {
  if (load === null) return [];
  const known = new Set(quotes.map(({ source, text }) => `${source}\n${text}`));
  const weight = load.outcome === 'gpu' ? ('for' as const) : ('against' as const);
  const lines = load.quotes
    .filter(({ source, text }) => !known.has(`${source}\n${text}`))
    .map((quote) => ({ ...quote, weight }));
  const text = partlyText(load);
  return text === null ? lines : [...lines, { kind: 'loaded', text, weight: 'against', source: null }];
}

/** The part that is not on the GPU, if lines about the layers do not show it; else null. */
export function partlyText({ outcome, children, cacheOnCpu }: LoadFindings): string | null {
  if (outcome !== 'partly') return null;
  if (children !== undefined) {
    const verb = children.gpu === 1 ? 'is' : 'are';
    return `mixed: ${children.gpu} of ${children.all} loaded models ${verb} wholly on the GPU`;
  }
  return cacheOnCpu ? 'the KV cache is on the CPU' : null;
}

/**
 * The devices of a start. When several rules match lines about the same devices (one line has the compute capability,
 * another the PCI address), their values are merged by position.
 */
function mergeDevices(start: Start): readonly Device[] {
  const lists = new Map<string, Device[]>();
  for (const { rule, line } of start.devices) {
    if (line.what === 'cpu') continue;
    const key = `${line.device.library} ${rule}`;
    lists.set(key, [...(lists.get(key) ?? []), line.device]);
  }
  const merged = new Map<string, Device[]>();
  for (const list of lists.values()) {
    const library = list[0]?.library ?? '';
    const base = merged.get(library);
    if (base === undefined) merged.set(library, list);
    else merged.set(library, fill(list.length > base.length ? [list, base] : [base, list]));
  }
  return [...merged.values()].flat();
}

function fill([base, other]: readonly [Device[], Device[]]): Device[] {
  return base.map((device, index) => {
    const same = other[index];
    if (same === undefined || same.name !== device.name) return device;
    return { ...device, compute: device.compute || same.compute, pci: device.pci ?? same.pci };
  });
}

// The consumer's loads after discovery, from its log. Pure.

type LoadOutcome = 'gpu' | 'partly' | 'cpu';

interface Load {
  readonly layers: { readonly gpu: number; readonly all: number } | null;
  readonly gpu: boolean;
  readonly cpu: boolean;
  readonly cacheOnCpu: boolean;
  readonly failed: boolean;
  readonly short: Quote | null;
  readonly error: Quote | null;
  readonly quotes: readonly Quote[];
}

export interface LoadFindings {
  readonly outcome: LoadOutcome;
  readonly layers: { readonly gpu: number; readonly all: number } | null;
  readonly cacheOnCpu: boolean;
  readonly failed: boolean;
  /** The line that says that not all of it fits into the free device memory; null: none. */
  readonly short: Quote | null;
  readonly quotes: readonly Quote[];
  /** With several children: the number that have a model loaded, and the number with all of it on a GPU. */
  readonly children?: { readonly all: number; readonly gpu: number };
}

export interface Loads {
  readonly present: Load | null;
  readonly former: LoadFindings | null;
}

export const noLoads: Loads = { present: null, former: null };

const nothingSaid: Load = {
  layers: null,
  gpu: false,
  cpu: false,
  cacheOnCpu: false,
  failed: false,
  short: null,
  error: null,
  quotes: [],
};
const maxQuotes = 4;

export function afterLine(
  loads: Loads,
  says: LoadRule['says'],
  groups: Readonly<Record<string, string | undefined>>,
  quote: Quote,
): Loads {
  const layers = says === 'layers' ? layersOf(groups) : null;
  if (says === 'layers' && layers === null) return loads;
  const load = begins(loads.present, says) ? nothingSaid : (loads.present ?? nothingSaid);
  const former = load === loads.present ? loads.former : (findingsOfLoad(loads.present) ?? loads.former);
  // These lines do not show a place.
  const quotes =
    says === 'begin' || says === 'short' || says === 'error'
      ? load.quotes
      : [...load.quotes, quote].slice(-maxQuotes);
  return {
    former,
    present: {
      layers: layers ?? load.layers,
      gpu: load.gpu || says === 'gpu',
      cpu: load.cpu || says === 'cpu',
      cacheOnCpu: load.cacheOnCpu || says === 'cache-cpu',
      failed: load.failed || says === 'failed',
      short: says === 'short' ? quote : load.short,
      error: says === 'error' ? quote : load.error,
      quotes,
    },
  };
}

export function newestLoad({ present, former }: Loads): LoadFindings | null {
  return findingsOfLoad(present) ?? former;
}

export function loadError({ present }: Loads): Quote | null {
  return present?.error ?? null;
}

/**
 * Combines the loads of a consumer and its children: `cpu` if no part is on a GPU. The lines are those of loads that
 * are not completely on a GPU.
 */
function allLoads(all: readonly Loads[]): LoadFindings | null {
  const found = all.map(newestLoad).filter((load) => load !== null);
  const off = found.filter(({ outcome }) => outcome !== 'gpu');
  const [first = found.at(-1) ?? null] = off;
  if (first === null || found.length === 1) return first;
  const onCpu = found.every(({ outcome }) => outcome === 'cpu');
  return {
    ...first,
    outcome: off.length === 0 ? 'gpu' : onCpu ? 'cpu' : 'partly',
    quotes: (off.length === 0 ? found : off).flatMap(({ quotes }) => quotes).slice(-maxQuotes),
    children: { all: found.length, gpu: found.length - off.length },
  };
}

/** Is this line the first of another load? CUDA is started, and memory counted, before the model's parts are named. */
function begins(load: Load | null, says: LoadRule['says']): boolean {
  if (load === null) return true;
  if (load.error !== null || says === 'error') return says !== 'error';
  const placed = load.gpu || load.cpu || load.layers !== null;
  if (says === 'begin') return placed || !(load.failed || load.short !== null);
  if (says === 'failed' || says === 'short') return placed;
  return says === 'layers' && load.layers !== null;
}

function layersOf(groups: Readonly<Record<string, string | undefined>>): Load['layers'] {
  const gpu = Number(groups['gpu'] ?? '');
  const all = Number(groups['all'] ?? '');
  return groups['gpu'] === undefined || !(all > 0) || !(gpu <= all) ? null : { gpu, all };
}

function findingsOfLoad(load: Load | null): LoadFindings | null {
  const outcome = load === null ? null : outcomeOf(load);
  if (load === null || outcome === null) return null;
  const { layers, cacheOnCpu, failed, short, quotes } = load;
  return { outcome, layers, cacheOnCpu, failed, short, quotes };
}

function outcomeOf({ layers, gpu, cpu, cacheOnCpu, failed }: Load): LoadOutcome | null {
  if (layers !== null && layers.gpu < layers.all) return layers.gpu === 0 ? 'cpu' : 'partly';
  // A model on the GPU keeps a part of itself (its first layer) in main memory, too. One whose tensors are all there
  // (--override-tensor, --device none) counts its layers as offloaded all the same.
  if (gpu || (layers !== null && !cpu)) return cacheOnCpu ? 'partly' : 'gpu';
  return cpu || failed ? 'cpu' : null;
}
