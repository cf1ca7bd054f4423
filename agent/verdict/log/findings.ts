/** The facts about one start of a consumer from its log, and the verdict on it. */
import type { Device, Evidence, LogVerdict, Reason } from '../../contracts/verdict.js';
import type { CompiledGrammar, DeviceLine } from './grammar.js';
import { allLoads, type LoadFindings, type Loads, loadError, noLoads } from './loads.js';

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
