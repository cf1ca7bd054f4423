/** Causes of a missing GPU, from the probe, the host and the unit. Pure. */

import { type HostWord, type ProbeReport, type ProbeResult, troubleOf } from '../contracts/probe.js';
import type { UnitFacts } from '../contracts/unit.js';
import type { Reason } from '../contracts/verdict.js';
import { isInStore, storeCurrent } from '../lib/paths.js';
import type { OverrideRule } from '../profile/types.js';
import { hostOfUnit, overridesOf } from '../systemd/unit-environment.js';
import { blockedTransport } from '../systemd/unit-sandbox.js';
import type { Observation } from './observation.js';
import { isLibcuda, isOurLibrary, mappedBy, processesThatCount } from './watch-processes.js';

export interface Diagnosis {
  readonly reason: Reason;
  readonly detail: string | null;
}

/** A slower host is too slow: Ollama's discovery tolerates 3 s of initialisation and not 11 (docs/reference/reasons.md). */
export const slowHostMs = 5_000;

export function transportTrouble({ probe, host, unit, endpoint }: Observation): Diagnosis | null {
  if (probe === null || probe.kind === 'not-run') return null;
  if (probe.kind === 'answered' && (probe.report.ok || !mayLackHost(probe.report))) return null;
  const word = probe.kind === 'answered' ? troubleOf(probe.report.host) : null;
  const blocked = unit.kind === 'loaded' ? blockedTransport(endpoint, unit.sandbox) : null;
  if (host?.kind !== 'unreachable' && blocked !== null) {
    return {
      reason: 'transport-blocked-by-sandbox',
      detail: `${blocked.setting}; to allow it, ${blocked.remedy}`,
    };
  }
  if (word !== null) {
    const denied = word.code === 'unreachable' && (word.errno === 'EACCES' || word.errno === 'EPERM');
    const reason = denied && host?.kind === 'answers' ? 'host-refused' : reasonOf(word);
    return { reason, detail: saidOf(word, unit, endpoint) };
  }
  if (host?.kind === 'unreachable') {
    const reason = host.word === null ? 'host-unreachable' : reasonOf(host.word);
    return { reason, detail: `${endpoint}: ${host.message}` };
  }
  if (host?.kind === 'answers' && host.milliseconds > slowHostMs) {
    return { reason: 'host-slow', detail: `${endpoint} took ${seconds(host.milliseconds)} to answer` };
  }
  if (probe.kind === 'timed-out') {
    return { reason: 'host-slow', detail: `no answer to vgpu-probe within ${seconds(probe.milliseconds)}` };
  }
  return null;
}

function reasonOf({ code, errno }: HostWord): Reason {
  switch (code) {
    case 'version':
      return 'host-version';
    case 'foreign':
      return 'host-foreign';
    case 'refused':
      return 'host-refused';
    case 'timeout':
      return 'host-slow';
    case 'unreachable':
      return errno === 'EAFNOSUPPORT' ? 'transport-blocked-by-sandbox' : 'host-unreachable';
    default:
      return 'host-unreachable';
  }
}

function saidOf({ message }: HostWord, unit: UnitFacts, endpoint: string): string {
  const own = unit.kind === 'loaded' ? hostOfUnit(unit, endpoint) : endpoint;
  return own === endpoint ? message : `the unit sets VGPU_HOST=${own}: ${message}`;
}

/** The shim's result for every call after the connection to the host is lost or timed out. */
const hostLost = 'CUDA_ERROR_SYSTEM_NOT_READY';

/** The shim reports every fault of the host as "no device" at first, and as `hostLost` later. */
function mayLackHost({ host, error, devices }: ProbeReport): boolean {
  if (error?.kind === 'timeout') return true;
  if (host !== null) return troubleOf(host) !== null;
  // An older shim, or another library, does not report it.
  if (error === null) return devices.length === 0;
  return error.name === 'CUDA_ERROR_NO_DEVICE' || error.name === hostLost;
}

/** Where the probe makes a context (shim-src/probe/cuda.c). */
const contextSteps: ReadonlySet<string> = new Set(['cuDevicePrimaryCtxRetain', 'cuCtxSetCurrent']);
const memorySteps: ReadonlySet<string> = new Set([
  'cuMemAlloc',
  'cuMemcpyHtoD',
  'cuMemcpyDtoD',
  'cuMemcpyDtoH',
  'compare',
  'cuMemFree',
]);

export function probeTrouble(probe: ProbeResult | null): Diagnosis | null {
  if (probe === null || probe.kind === 'not-run') return null;
  if (probe.kind === 'timed-out')
    return { reason: 'host-slow', detail: `vgpu-probe gave up after ${seconds(probe.milliseconds)}` };
  if (probe.kind === 'crashed') return { reason: 'probe-crashed', detail: probe.message };
  const { report } = probe;
  const { library, roundTrip } = report;
  if (library !== null && !isOurLibrary(library, probe.inContainer === true)) {
    const where = probe.inContainer === true ? 'the container' : "the unit's environment";
    return { reason: 'foreign-library-loaded', detail: `the loader finds ${library} in ${where}` };
  }
  if (report.error !== null) return errorTrouble(report, report.error);
  if (roundTrip?.ok === false)
    return { reason: 'memory-round-trip-failed', detail: `${roundTrip.bytes} bytes came back changed` };
  if (report.devices.length === 0) return { reason: 'no-device', detail: 'the driver lists no device' };
  return report.ok ? null : { reason: 'driver-init-failed', detail: null };
}

function errorTrouble(report: ProbeReport, error: NonNullable<ProbeReport['error']>): Diagnosis {
  const { kind, message, name, step } = error;
  const detail = name === null ? message : `${step}: ${name}`;
  const computing = report.compute?.ok === false;
  if (kind === 'signal' || kind === 'exit') return { reason: 'probe-crashed', detail };
  if (kind === 'timeout')
    return computing
      ? { reason: 'compute-failed', detail: `${step}: ${message}` }
      : { reason: 'host-slow', detail };
  if (name === hostLost)
    return { reason: 'host-unreachable', detail: `the session was lost during the probe: ${detail}` };
  if (computing) return { reason: 'compute-failed', detail };
  if (report.roundTrip?.ok === false || memorySteps.has(step))
    return { reason: 'memory-round-trip-failed', detail: message };
  if (contextSteps.has(step)) return { reason: 'context-create-failed', detail };
  if (kind === 'library') return { reason: 'library-not-found', detail: message };
  if (kind === 'symbol') return { reason: 'library-symbol-missing', detail: message };
  if (kind === 'no-device' || name === 'CUDA_ERROR_NO_DEVICE') return { reason: 'no-device', detail };
  const mismatch = name === 'CUDA_ERROR_SYSTEM_DRIVER_MISMATCH';
  return { reason: mismatch ? 'driver-library-mismatch' : 'driver-init-failed', detail };
}

/** The consumer's device is another library's, or no longer exists. Null: log and probe agree, or cannot be compared. */
export function otherDevice({ log, probe }: Observation): Diagnosis | null {
  if (probe?.kind !== 'answered') return null;
  const named = log.devices.filter(({ library, name }) => library === 'cuda' && name !== '');
  const found = probe.report.devices.map(({ name }) => name);
  if (named.length === 0 || named.some(({ name }) => found.includes(name))) return null;
  return {
    reason: 'probe-disagrees',
    detail: `it names ${named.map(({ name }) => name).join(', ')}, vgpu-probe finds ${found.join(', ')}`,
  };
}

/**
 * A variable of the unit that keeps it off the GPU, by the profile's rules; `file`: the environment file that sets
 * it. `of`: rules about the devices found at the start (`devices`), about loads (`loads`), or only possible causes.
 */
export function overrideTrouble(
  { profile, unit }: Pick<Observation, 'profile' | 'unit'>,
  of: 'devices' | NonNullable<OverrideRule['scope']>,
): (Diagnosis & { readonly variable: string; readonly file: string | null }) | null {
  if (unit.kind !== 'loaded') return null;
  const [hit] = overridesOf(
    unit,
    profile.overrides.filter(({ scope = 'devices' }) => scope === of),
  );
  if (hit === undefined) return null;
  const { variable, reason, why } = hit.rule;
  const { value, file } = hit.found;
  const from = file === null ? '' : ` in ${file}`;
  return { reason, detail: `${variable}=${value}${from}: ${why}`, variable, file };
}

export function mapsTrouble(observation: Observation): Diagnosis | null {
  const counted = processesThatCount(observation).map(({ facts }) => ({ facts, mapped: mappedBy(facts) }));
  const foreign = counted.find(({ mapped }) => mapped === 'foreign' || mapped === 'mixed');
  if (foreign !== undefined) {
    const file = foreign.facts.libraries.find(({ vendor }) => vendor === 'nvidia' || vendor === 'foreign');
    return {
      reason: 'foreign-library-loaded',
      detail: `process ${foreign.facts.pid} (${foreign.facts.name}) has ${file?.path ?? 'a foreign libcuda'} loaded`,
    };
  }
  const stale = counted.find(({ mapped }) => mapped === 'stale');
  if (stale !== undefined && !counted.some(({ mapped }) => mapped === 'shim')) {
    return {
      reason: 'consumer-not-restarted',
      detail: `process ${stale.facts.pid} (${stale.facts.name}) still has an older shim loaded`,
    };
  }
  const missing = environmentMissing(observation);
  if (missing === null) return null;
  return isTakenAway(observation)
    ? { reason: 'environment-removed', detail: `${missing}; ${takenAway}` }
    : { reason: 'consumer-not-restarted', detail: missing };
}

/** Why a process lacks variables that its unit sets. */
export const takenAway = 'something removes it, such as UnsetEnvironment= or a wrapper script';

export function isTakenAway({ restarted, processes }: Pick<Observation, 'restarted' | 'processes'>): boolean {
  return (
    restarted || processes.some(({ role, facts }) => role === 'main' && facts.environmentCleared === true)
  );
}

export function environmentMissing({ profile, processes, unit }: Observation): string | null {
  const main = processes.find(({ role }) => role === 'main')?.facts;
  if (main === undefined || unit.kind !== 'loaded' || main.unreadable?.includes('environ') === true)
    return null;
  for (const { name, entries } of profile.environment) {
    if (name !== 'LD_PRELOAD' && name !== 'LD_LIBRARY_PATH') continue;
    const wanted = unit.environment[name];
    if (wanted === undefined || entries.length === 0) continue;
    if (main.loaderEnvironment[name] !== wanted) {
      return `process ${main.pid} (${main.name}) lacks the unit's ${name}`;
    }
  }
  return null;
}

/**
 * The main process has the shim in LD_PRELOAD and not in its maps. The loader prints an error only if the file
 * cannot be opened, not for a program with file capabilities or a set-user-ID bit (ld.so(8)).
 */
export function preloadIgnored({ processes, probe }: Observation): string | null {
  const main = processes.find(({ role }) => role === 'main')?.facts;
  if (main === undefined || (main.unreadable ?? []).length > 0) return null;
  const preload = main.loaderEnvironment['LD_PRELOAD'] ?? '';
  const wanted = preload.split(/[: ]/).some((file) => isInStore(file) && isLibcuda(file));
  if (!wanted || mappedBy(main) !== 'none') return null;
  const what = `process ${main.pid} (${main.name}) has it in LD_PRELOAD, but not loaded`;
  // The probe is in the same directory: if it cannot be started either, the store is at fault.
  if (probe?.kind === 'not-run')
    return `${what}; vgpu-probe beside it could not be run either, so see whether ${storeCurrent} exists and is readable`;
  return (
    `${what}; ` +
    `the loader ignores LD_PRELOAD for a program that gains privileges when it is started: ` +
    `\`getcap ${main.executable ?? `/proc/${main.pid}/exe`}\` shows its file capabilities, \`ls -l\` a set-user-ID bit`
  );
}

function seconds(milliseconds: number): string {
  return `${(milliseconds / 1000).toFixed(1)} s`;
}
