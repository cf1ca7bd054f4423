/**
 * Decides the verdict. Pure: uses only the observation.
 *
 * The newest evidence wins, in this order: the host's sessions of the consumer's processes and the models that the
 * consumer reports as loaded; the last load in its log; the devices that its log announced at the start.
 *
 * The verdict is GPU if the host has run kernels for this start's processes, or if all of these hold:
 * - this start's log announced a GPU with a real compute capability;
 * - the maps of the consumer's processes show the shim, other than by LD_PRELOAD, or the probe found it in the
 *   unit's environment;
 * - no evidence contradicts this.
 */
import { type Carrier, carrierCodes } from '../contracts/shim-codes.js';
import type { Device, Mode, Reason, Verdict } from '../contracts/verdict.js';
import { parseEndpoint, splitHosts } from '../guest/vgpu-host/endpoint.js';
import { plural } from '../lib/text.js';
import { hostOfUnit } from '../systemd/unit-environment.js';
import { journalBypass } from '../systemd/unit-facts.js';
import { adviceOn } from './advice.js';
import {
  type Diagnosis,
  mapsTrouble,
  otherDevice,
  overrideTrouble,
  preloadIgnored,
  probeTrouble,
  transportTrouble,
} from './diagnosis.js';
import { evidenceOf } from './evidence.js';
import { partlyText, simulatedSuffix } from './log/findings.js';
import type { Observation } from './observation.js';
import { computing, isIdle, type Present, presentOf, tooLarge, turnedAwayText } from './present.js';
import { isPreloaded, mappedBy, processesThatCount } from './watch-processes.js';

interface Conclusion {
  readonly mode: Mode;
  readonly reason: Reason | null;
  readonly detail: string | null;
}

export function decideVerdict(observation: Observation): Verdict {
  const { profile, log, probe } = observation;
  const conclusion = conclude(observation);
  const devices = conclusion.mode === 'undetermined' ? [] : devicesOf(observation, conclusion);
  const probeSimulated =
    probe?.kind === 'answered' && (probe.report.simulated || probe.report.devices.some(isSimulated));
  const carrier = carrierOf(observation);
  const { summary, next } = adviceOn(observation, conclusion, devices);
  return {
    mode: conclusion.mode,
    simulated:
      (conclusion.mode === 'gpu' || conclusion.mode === 'degraded') &&
      (devices.some(isSimulated) || probeSimulated),
    devices,
    reason: conclusion.reason,
    evidence: evidenceOf(observation),
    profile: profile.name,
    unit: profile.unit,
    invocationId: observation.invocationId,
    consumerVersion: log.version,
    ...(carrier === undefined ? {} : { carrier }),
    ...(observation.look === undefined ? {} : { look: observation.look }),
    ...(conclusion.mode === 'gpu' && isIdle(observation.present) ? { idle: true } : {}),
    summary,
    next,
  };
}

/** The devices that the log names. If it names none and the mode is GPU: the probe's devices. */
function devicesOf({ log, probe }: Observation, { mode }: Conclusion): readonly Device[] {
  if (log.devices.length > 0 || mode !== 'gpu' || probe?.kind !== 'answered') return log.devices;
  return probe.report.devices.map(({ name, compute, pci }) => ({ library: 'cuda', compute, name, pci }));
}

function isSimulated({ name }: Pick<Device, 'name'>): boolean {
  return name.endsWith(simulatedSuffix);
}

function conclude(observation: Observation): Conclusion {
  const { end, log } = observation;
  if (end === 'unit-failed' || end === 'unit-restarting') {
    return { mode: 'undetermined', reason: end, detail: unitState(observation) };
  }
  const now = presentOf(observation);
  // The result of its start holds until the next one: a consumer that found no GPU does not look again.
  if (log.mode === 'cpu') return { mode: 'cpu', ...explainCpu(observation) };
  if (now.kind === 'contradicted') {
    const detail = [now.detail, tooLarge(observation)].filter((one) => one !== null).join('; ');
    const cause = loadOverride(observation) ?? hostTrouble(observation) ?? { reason: now.reason, detail };
    return { mode: now.mode, ...cause };
  }
  if (now.kind === 'loads') {
    // A model that a setting keeps on the CPU will not reach the GPU.
    const forced = log.load?.outcome === 'cpu' ? loadOverride(observation) : null;
    if (forced !== null) return { mode: 'cpu', ...forced };
    return { mode: 'undetermined', reason: 'no-work-yet', detail: now.detail };
  }
  const kept = keptOff(observation, now);
  if (kept !== null) return kept;
  switch (log.mode) {
    case 'gpu':
      return concludeGpu(observation, now);
    case 'degraded':
      // The last model ran on the CPU and is gone. The host confirms that all models loaded now are on the GPU.
      if (
        isContradictedByLoad(log) &&
        now.kind === 'works' &&
        now.loaded &&
        loadOverride(observation) === null
      )
        return concludeGpu(observation, now);
      return concludeDegraded(observation);
    case 'undetermined':
      if (now.kind === 'works') return concludeGpu(observation, now);
      if (now.kind === 'waits') return { mode: 'undetermined', reason: 'no-work-yet', detail: now.detail };
      if (observation.profile.log.devices.length === 0) return concludeWordless(observation);
      return concludeSilent(observation);
  }
}

function loadOverride(observation: Observation): Diagnosis | null {
  return overrideTrouble(observation, 'loads');
}

/**
 * The conclusion if a variable keeps models off the GPU and the log does not show the newest model there. A model in main
 * memory may run some kernels: those of its cache, or of long prompts.
 */
function keptOff(observation: Observation, now: Present): Conclusion | null {
  const { load } = observation.log;
  if ((now.kind !== 'waits' && now.kind !== 'works') || load?.outcome === 'gpu') return null;
  const forced = loadOverride(observation);
  return forced === null ? null : { mode: now.kind === 'waits' ? 'cpu' : 'degraded', ...forced };
}

function concludeWordless(observation: Observation): Conclusion {
  const transport = transportTrouble(observation);
  if (transport !== null) return { mode: 'cpu', ...transport };
  const override = overrideTrouble(observation, 'devices');
  if (override !== null) return { mode: 'cpu', ...override };
  const trouble = mapsTrouble(observation) ?? probeTrouble(observation.probe);
  if (trouble !== null) return degraded(trouble);
  const { sessions } = observation.present;
  const detail =
    sessions.kind === 'unknown' ? `the host does not report its sessions: ${sessions.message}` : null;
  return { mode: 'undetermined', reason: 'no-session', detail };
}

function concludeSilent(observation: Observation): Conclusion {
  const { profile, probe, readiness } = observation;
  // A consumer that answers requests has opened the GPU already, so the probe's failure is its failure too.
  if (profile.evidence.sessions === 'when-ready' && readiness.kind === 'answered') {
    const trouble = mapsTrouble(observation) ?? transportTrouble(observation) ?? probeTrouble(probe);
    if (trouble !== null) return degraded(trouble);
  }
  return { mode: 'undetermined', ...explainSilence(observation) };
}

function isContradictedByLoad({ load, reason }: Observation['log']): boolean {
  const onCpu = load !== null && load.outcome !== 'gpu';
  return onCpu && (reason === 'model-on-cpu' || reason === 'layers-not-offloaded');
}

/** Does the host refuse new sessions because its limit is reached? The probe is then refused too. */
function isFull({ present }: Observation): boolean {
  return present.sessions.kind === 'told' && present.sessions.turnedAway?.status === 'busy';
}

function hostTrouble(observation: Observation): Diagnosis | null {
  const { sessions } = observation.present;
  if (sessions.kind === 'told' && sessions.turnedAway !== null)
    return { reason: 'host-refused', detail: turnedAwayText(sessions.turnedAway) };
  return transportTrouble(observation);
}

function unitState({ unit, restarts }: Observation): string {
  if (unit.kind === 'absent') return 'there is no such unit';
  if (unit.kind !== 'loaded') return `the unit is ${unit.kind}`;
  const again = restarts > 0 ? `, started ${restarts + 1} times during the check` : '';
  return `${unit.activeState} (${unit.subState}), result ${unit.result || 'none'}${again}`;
}

const degraded = (diagnosis: Diagnosis): Conclusion => ({ mode: 'degraded', ...diagnosis });

/** The log or the host's sessions say GPU. Looks for proof that it is the shim's, and for contradictions. */
function concludeGpu(observation: Observation, now: Present): Conclusion {
  const { profile, probe, readiness } = observation;
  const counted = processesThatCount(observation)
    .filter(({ facts }) => !isPreloaded(facts))
    .map(({ facts }) => mappedBy(facts));
  const mapsTroubled = mapsTrouble(observation);
  if (mapsTroubled?.reason === 'foreign-library-loaded') return degraded(mapsTroubled);
  const works = now.kind === 'works';
  const seen = works || counted.includes('shim');
  // A process without our variables is fine if it loaded the shim through the public links.
  if (mapsTroubled !== null && !seen) return degraded(mapsTroubled);
  const probed = probeTrouble(probe);
  const trouble = probed === null ? null : (transportTrouble(observation) ?? probed);
  // A full host refuses the probe but still serves the consumer. It explains no other trouble.
  const noPlace = works && isFull(observation) && trouble?.reason === 'host-refused';
  if (trouble !== null && !noPlace) {
    // The consumer found a GPU at its start, so "no device" now is a disagreement, not the cause.
    return degraded(
      trouble.reason === 'no-device' ? { reason: 'probe-disagrees', detail: trouble.detail } : trouble,
    );
  }
  const other = probed === null ? otherDevice(observation) : null;
  if (other !== null) return degraded(other);
  // A ready consumer has loaded its model. If the model were on the GPU, the host would report its memory.
  const empty = now.kind === 'waits' && now.held === 0 && profile.evidence.sessions === 'when-ready';
  if (empty && readiness.kind === 'answered')
    return { mode: 'undetermined', reason: 'no-work-yet', detail: now.detail };
  const answered = probe?.kind === 'answered';
  const logAlone = profile.evidence.mapsOf === 'none' && !profile.evidence.probe;
  if (!seen && !answered && !logAlone) {
    return { mode: 'undetermined', reason: 'shim-not-loaded', detail: whyUnproven(observation) };
  }
  if (readiness.kind === 'silent' && !(works && isElsewhere(observation))) {
    return degraded({ reason: 'readiness-timeout', detail: `${readiness.url}: ${readiness.lastError}` });
  }
  if (observation.computeAsked === true && !(answered && probe.report.compute?.ok === true)) {
    const why = probe?.kind === 'not-run' ? probe.message : 'vgpu-probe did not get that far';
    return {
      mode: 'undetermined',
      reason: 'compute-failed',
      detail: `the test kernels were not run: ${why}`,
    };
  }
  return { mode: 'gpu', reason: null, detail: null };
}

/** True if nothing listens at the default address, and the log that would name another address bypasses the journal. */
function isElsewhere({ readiness, log, unit, profile }: Observation): boolean {
  if (readiness.kind !== 'silent' || profile.readiness.kind !== 'http') return false;
  if (unit.kind !== 'loaded' || log.address !== null || journalBypass(unit) === null) return false;
  const { addressVariable } = profile.readiness;
  const configured = addressVariable !== null && addressVariable in unit.environment;
  return !configured && readiness.lastError === 'ECONNREFUSED';
}

function whyUnproven(observation: Observation): string {
  const { probe } = observation;
  const processes = processesThatCount(observation);
  const looked =
    processes.length === 0
      ? 'no process could be inspected'
      : processes.some(({ facts }) => isPreloaded(facts) && mappedBy(facts) === 'shim')
        ? 'it is loaded only because LD_PRELOAD loads it into every process'
        : 'no process had it loaded when they were inspected';
  return probe?.kind === 'not-run' ? `${looked}, and vgpu-probe could not be run: ${probe.message}` : looked;
}

function concludeDegraded(observation: Observation): Conclusion {
  const { log } = observation;
  const foreign = mapsTrouble(observation);
  if (foreign?.reason === 'foreign-library-loaded') return degraded(foreign);
  const cause = isContradictedByLoad(log) ? (loadOverride(observation) ?? hostTrouble(observation)) : null;
  if (cause !== null) return degraded(cause);
  const detail = log.load === null ? null : partlyText(log.load);
  return degraded({ reason: log.reason ?? log.hint ?? 'probe-crashed', detail });
}

/** Reasons that a consumer also gives when the host cannot be reached. */
const vague: ReadonlySet<Reason> = new Set(['no-device', 'discovery-timeout', 'driver-init-failed']);
/** Hints that name a setting, not a symptom. */
const settings: ReadonlySet<Reason> = new Set(['library-forced-to-cpu', 'devices-hidden-by-environment']);

function explainCpu(observation: Observation): { reason: Reason | null; detail: string | null } {
  const { log, probe } = observation;
  const override = overrideTrouble(observation, 'devices');
  const said =
    log.reason === null
      ? null
      : // The unit shows the variable.
        { reason: log.reason, detail: override?.reason === log.reason ? override.detail : null };
  if (said !== null && !vague.has(said.reason) && said.reason !== 'not-cuda') return said;
  if (override !== null) return override;
  if (log.hint !== null && settings.has(log.hint)) return { reason: log.hint, detail: null };
  const loaded = mapsTrouble(observation);
  if (loaded?.reason === 'foreign-library-loaded') return loaded;
  const transport = transportTrouble(observation);
  if (transport !== null) return transport;
  const probed = probeTrouble(probe);
  // The probe runs with the unit's variables, so a variable that hides the device hides it from the probe too.
  const blind = probed === null || probed.reason === 'no-device';
  const doubtful = blind ? overrideTrouble(observation, 'doubtful') : null;
  if (doubtful !== null) return doubtful;
  if (probed !== null) return said !== null && probed.reason === 'no-device' ? said : probed;
  const none = said?.reason === 'no-device' && probe?.kind === 'answered';
  if (said !== null && !none) return said;
  if (loaded !== null) return loaded;
  const ignored = preloadIgnored(observation);
  if (ignored !== null) return { reason: 'preload-ignored', detail: ignored };
  // If the probe finds a GPU and the consumer did not, the consumer's hint is the better explanation.
  if (log.hint !== null) return { reason: log.hint, detail: null };
  const counted = processesThatCount(observation);
  const unloaded = counted.length > 0 && counted.every(({ facts }) => mappedBy(facts) === 'none');
  if (unloaded && looksWhereItWorks(observation)) {
    return { reason: 'shim-not-loaded', detail: 'none of its processes had a libcuda loaded' };
  }
  return probe?.kind === 'answered'
    ? { reason: 'probe-disagrees', detail: 'vgpu-probe finds a GPU now' }
    : { reason: null, detail: null };
}

/** Were the processes inspected that would have loaded the shim? Children may exit soon after discovery. */
function looksWhereItWorks(observation: Observation): boolean {
  const { profile } = observation;
  const roles = new Set(processesThatCount(observation).map(({ role }) => role));
  const preloaded = profile.environment.some(({ name }) => name === 'LD_PRELOAD');
  return preloaded ? roles.has('main') : !profile.evidence.childrenMayExit || roles.has('child');
}

function explainSilence(observation: Observation): { reason: Reason; detail: string | null } {
  const { log, journalError, logFile, readiness, end, unit } = observation;
  if (log.reason === 'unsupported-log-version') return { reason: log.reason, detail: null };
  if (journalError !== null && logFile === null)
    return { reason: 'journal-unavailable', detail: journalError };
  const bypass = journalBypass(unit);
  if (bypass !== null && logFile === null)
    return {
      reason: 'output-bypasses-journal',
      detail: `${bypass.setting}; ${bypass.repair} under [Service]`,
    };
  if (end === 'timed-out' && readiness.kind === 'silent') {
    return { reason: 'readiness-timeout', detail: `${readiness.url}: ${readiness.lastError}` };
  }
  const { journalCut = false } = observation;
  if (journalCut && logFile === null) {
    const left =
      log.entries === 0
        ? 'the journal has no line of this start'
        : `the journal has ${plural(log.entries, 'line')} of this start, but not the first ones`;
    const why =
      'journald removed the older ones, or stores none: SystemMaxUse= and Storage= in journald.conf';
    return { reason: 'journal-cut', detail: `${left}; ${why}` };
  }
  const detail = log.entries === 0 ? 'the journal has no entry of this start' : null;
  return { reason: 'no-discovery-line', detail };
}

/**
 * The transport of the consumer's calls: of its sessions, the slowest. NVML sessions do not count, because they never
 * have rings. Without a session: the probe's transport.
 */
export function carrierOf(
  observation: Pick<Observation, 'present' | 'probe' | 'unit' | 'endpoint'>,
): Carrier | undefined {
  const { present, probe } = observation;
  const own = present.sessions.kind === 'told' ? computing(present.sessions.own) : [];
  const carriers = own.map(({ carrier }) => carrier);
  const slowest = carrierCodes.findLast(({ code }) => carriers.includes(code))?.code ?? 'none';
  if (slowest !== 'none') return asSeenHere(slowest, observation);
  return probe?.kind === 'answered' ? probe.report.host?.carrier : undefined;
}

/** A VM monitor may forward vsock to a unix socket of the host. */
function asSeenHere(carrier: Carrier, { unit, endpoint }: Pick<Observation, 'unit' | 'endpoint'>): Carrier {
  if (carrier !== 'unix') return carrier;
  const [first = ''] = splitHosts(unit.kind === 'loaded' ? hostOfUnit(unit, endpoint) : endpoint);
  const { kind } = parseEndpoint(first);
  return kind === 'bad' ? carrier : kind;
}
