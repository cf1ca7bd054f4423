/**
 * The consumer's present state: compares the models that it reports as loaded with the host's sessions of its processes.
 * Newer than the evidence of its start. Pure.
 */
import type {
  HostSession,
  MemoryTold,
  RefusedKernels,
  RefusedMemory,
  TurnedAway,
} from '../contracts/sessions.js';
import { statusCodes } from '../contracts/shim-codes.js';
import type { Mode, Reason } from '../contracts/verdict.js';
import { jsonIn, member } from '../lib/json.js';
import type { ServingRule } from '../profile/types.js';
import type { LoadedModel, Observation, PresentSeen } from './observation.js';

export type Present =
  /** The host has run kernels for it, and nothing that it has loaded lies elsewhere. */
  | { readonly kind: 'works'; readonly loaded: boolean }
  /** The consumer reports that all its models are on the GPU. */
  | { readonly kind: 'fits' }
  /** The consumer has opened the GPU and launched no kernel yet. */
  | { readonly kind: 'waits'; readonly held: number; readonly detail: string }
  /** The consumer reports a model on the GPU, one of its processes is young, and the host has no memory for it yet. */
  | { readonly kind: 'loads'; readonly detail: string }
  | {
      readonly kind: 'contradicted';
      readonly mode: Extract<Mode, 'cpu' | 'degraded'>;
      readonly reason: Reason;
      readonly detail: string;
    }
  | { readonly kind: 'nothing' };

export function computing(sessions: readonly HostSession[]): readonly HostSession[] {
  return sessions.filter(({ claimed }) => claimed.library !== 'libnvidia-ml');
}

export function isIdle({ loaded, sessions }: PresentSeen): boolean {
  const none = loaded.kind === 'told' && loaded.models.length === 0;
  return none && (sessions.kind !== 'told' || computing(sessions.own).every(({ memory }) => memory === 0));
}

export function loadFails({ log, present: { loaded } }: Pick<Observation, 'log' | 'present'>): boolean {
  return log.loadError !== null && (loaded.kind !== 'told' || loaded.models.length === 0);
}

export function liveSessions({ sessions }: PresentSeen): readonly HostSession[] | null {
  if (sessions.kind !== 'told') return null;
  return computing(sessions.own).filter(({ memory, launches }) => memory > 0 || launches > 0);
}

type PresentFacts = Pick<Observation, 'profile' | 'log' | 'readiness' | 'present'>;

/** A younger process may not have made its first allocation yet. */
const loadSeconds = 120;
const unsizedLoadSeconds = 20;

export function presentOf(observation: PresentFacts): Present {
  const { loaded, sessions } = observation.present;
  const models = loaded.kind === 'told' ? loaded.models : [];
  const own = sessions.kind === 'told' ? computing(sessions.own) : null;
  if (models.length > 0) {
    // Each model has its own process beside the main one. A listed model without a process is on no device: Ollama
    // lists a model whose process has crashed until the model expires.
    const serving =
      sessions.kind === 'told' ? Math.max(sessions.processes - 1, own?.length ?? 0) : models.length;
    const served = Math.min(models.length, serving);
    if (served < 1) return { kind: 'nothing' };
    // A refused session will not get any memory.
    const loading = sessions.kind === 'told' && sessions.turnedAway === null;
    const youngest = loading ? (sessions.youngest ?? null) : null;
    return ofLoaded(observation, models, own, served, youngest);
  }
  if (own === null) return { kind: 'nothing' };
  if (own.some(({ launches }) => launches > 0)) return { kind: 'works', loaded: false };
  if (own.length > 0) {
    const held = own.reduce((sum, { memory }) => sum + memory, 0);
    const refused = sessions.kind === 'told' ? sessions.refusedKernels : null;
    const asked = own.some(({ claimed }) => claimed.program === refused?.program);
    const none = `${processes(own)}, ${inWords(held)} of device memory, no kernel so far`;
    if (refused === null || !asked) return { kind: 'waits', held, detail: none };
    const kernels = refused.count === 1 ? 'a kernel' : `${refused.count} kernels`;
    const detail = `${none}; the host could not run ${kernels} of this guest, the last for ${refused.program}`;
    return { kind: 'waits', held, detail };
  }
  const { profile, readiness } = observation;
  if (profile.evidence.sessions === 'when-ready' && readiness.kind === 'answered') {
    const detail = 'it is ready, and the host has no session of its processes';
    return { kind: 'contradicted', mode: 'cpu', reason: 'no-session', detail };
  }
  return { kind: 'nothing' };
}

/**
 * Some versions of Ollama count mapped weights twice (https://github.com/ollama/ollama/issues/16637). All layers of the
 * only model are on the GPU according to the log, and the host holds the reported memory: then the model is on the GPU.
 */
export function countedTwice({ log, present }: Pick<Observation, 'log' | 'present'>): boolean {
  const { loaded, sessions } = present;
  const [model, another] = loaded.kind === 'told' ? loaded.models : [];
  const { load } = log;
  if (model === undefined || another !== undefined || load?.outcome !== 'gpu' || load.layers === null)
    return false;
  const held =
    sessions.kind === 'told' ? computing(sessions.own).reduce((sum, { memory }) => sum + memory, 0) : 0;
  return model.gpuBytes > 0 && model.gpuBytes < model.bytes && held >= model.gpuBytes * 0.9;
}

function ofLoaded(
  observation: PresentFacts,
  models: readonly LoadedModel[],
  own: readonly HostSession[] | null,
  served: number,
  youngest: number | null,
): Present {
  const holding = own?.filter(({ memory, launches }) => memory > 0 || launches > 0) ?? null;
  const names = models.map(({ name }) => name).join(', ');
  const { log } = observation;
  const elsewhere = countedTwice(observation) ? [] : models.filter(({ bytes, gpuBytes }) => gpuBytes < bytes);
  // Ollama lists a model before its runner has allocated memory, while it reads gigabytes from a disk.
  const fewer = holding !== null && holding.length < served;
  const patience = models.some(({ bytes }) => bytes > 0) ? loadSeconds : unsizedLoadSeconds;
  if (fewer && elsewhere.length === 0 && youngest !== null && youngest < patience) {
    return {
      kind: 'loads',
      detail: `${names}: a process of it started ${youngest} s ago and may be loading`,
    };
  }
  if (holding?.length === 0) {
    return onCpu(`${names}: loaded, and the host has no session of its processes that holds memory`);
  }
  const wholly = elsewhere.filter(({ gpuBytes }) => gpuBytes === 0);
  const placed = elsewhere.map(
    ({ name, bytes, gpuBytes }) => `${name}: ${inWords(gpuBytes)} of ${inWords(bytes)} on the GPU`,
  );
  if (wholly.length === models.length) return onCpu(placed.join('; '));
  // The consumer counts memory of accelerators in the processor (AMX) as a GPU's; its log does not.
  const lastOnCpu = log.load?.outcome === 'cpu';
  if (models.length === 1 && elsewhere.length === 1 && lastOnCpu) return onCpu(placed.join('; '));
  if (elsewhere.length > 0) {
    const reason = wholly.length > 0 || lastOnCpu ? 'model-on-cpu' : 'layers-not-offloaded';
    return { kind: 'contradicted', mode: 'degraded', reason, detail: placed.join('; ') };
  }
  if (holding !== null && holding.length < served) {
    const detail = `${names}: the host should have sessions of ${served} of its processes, and has ${holding.length}`;
    return { kind: 'contradicted', mode: 'degraded', reason: 'model-on-cpu', detail };
  }
  if (holding?.some(({ launches }) => launches > 0) === true) return { kind: 'works', loaded: true };
  // A size of 0 means unknown.
  return models.some(({ bytes }) => bytes > 0) ? { kind: 'fits' } : { kind: 'nothing' };
}

function onCpu(detail: string): Present {
  return { kind: 'contradicted', mode: 'cpu', reason: 'model-on-cpu', detail };
}

function processes(sessions: readonly HostSession[]): string {
  return sessions.map(({ claimed }) => `${claimed.program} (process ${claimed.pid})`).join(', ');
}

export function turnedAwayText({ count, status, age }: TurnedAway): string {
  const sessions = count === 1 ? 'a session' : `${count} sessions`;
  const why =
    statusCodes.find(({ code }) => code === status)?.text ?? 'for a reason that this version does not know';
  return `the host refused ${sessions} of this guest, the last ${age} s ago: ${why}`;
}

export function refusedKernelsText({ count, age, program, kernel }: RefusedKernels): string {
  const kernels = count === 1 ? 'a kernel' : `${count} kernels`;
  return `the host could not run ${kernels} of this guest, the last ${age} s ago for ${program}: ${kernel}`;
}

export function memoryLimitText({ limit, by, line }: Pick<MemoryTold, 'limit' | 'by' | 'line'>): string {
  const where = line === 0 ? 'hostd.conf' : `line ${line} of hostd.conf`;
  return by === 'session'
    ? `a session of this guest may hold ${inWords(limit)} of device memory (--session-memory of vgpu-hostd)`
    : `all sessions of this guest may hold ${inWords(limit)} of device memory together (memory= in ${where} on the host)`;
}

export function refusedMemoryText(
  { count, age, program, bytes, limit, free, by }: RefusedMemory,
  line: MemoryTold['line'],
): string {
  const why =
    by === 'device' || by === 'none'
      ? `its device has ${inWords(limit)}`
      : memoryLimitText({ limit, by, line });
  const often = count === 1 ? '' : `, ${count} times so far`;
  return `the host refused ${program} ${inWords(bytes)} of device memory ${age} s ago${often}: ${why}, and ${inWords(free)} were free`;
}

export function tooLarge({ present: { loaded, sessions } }: Pick<Observation, 'present'>): string | null {
  if (sessions.kind !== 'told' || sessions.memory === null || sessions.memory.limit === 0) return null;
  const models = loaded.kind === 'told' ? loaded.models : [];
  const needed = models.reduce((sum, { bytes }) => sum + bytes, 0);
  if (needed <= sessions.memory.limit) return null;
  return `${memoryLimitText(sessions.memory)}, and what is loaded needs ${inWords(needed)}`;
}

/** The host refused memory, or has too little, or the consumer found too little before the load. */
export function memoryShort(observation: Pick<Observation, 'present' | 'log'>): boolean {
  const { sessions } = observation.present;
  const refused = sessions.kind === 'told' && sessions.memory !== null && sessions.memory.refused !== null;
  const { load } = observation.log;
  return (
    refused ||
    tooLarge(observation) !== null ||
    (load !== null && load.outcome !== 'gpu' && load.short !== null)
  );
}

/** The newest load requested no layer on the GPU (num_gpu, --gpu-layers): no failure, and enough memory. */
export function chosenCpu({ log: { load }, present }: Pick<Observation, 'present' | 'log'>): boolean {
  const { sessions } = present;
  const refused = sessions.kind === 'told' && sessions.turnedAway !== null;
  return load?.layers?.gpu === 0 && !load.failed && load.short === null && !refused;
}

const units = ['bytes', 'KiB', 'MiB', 'GiB', 'TiB'];

export function inWords(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? value : value.toFixed(1)} ${units[unit]}`;
}

const maxNameLength = 100;

export function loadedModels(rule: ServingRule, body: string): readonly LoadedModel[] | null {
  const { sizes } = rule;
  if (sizes === undefined) return null;
  const list = member(jsonIn(body), rule.list);
  // Go writes an empty list that was never filled as null.
  if (list === null) return [];
  if (!Array.isArray(list)) return null;
  const items: readonly unknown[] = list;
  const models = items.map((item) => {
    const bytes = member(item, sizes.all);
    const gpuBytes = member(item, sizes.gpu) ?? 0;
    if (!isSize(bytes) || !isSize(gpuBytes)) return null;
    const name = member(item, sizes.name);
    return { name: typeof name === 'string' ? name.slice(0, maxNameLength) : '?', bytes, gpuBytes };
  });
  return models.includes(null) ? null : models.filter((one) => one !== null);
}

function isSize(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0;
}
