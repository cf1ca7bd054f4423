/**
 * Evidence to verdict. Pure: what it is not told it does not know.
 *
 * The newest evidence decides. Where the consumer works now (the host's sessions of its processes, what it says that it
 * has loaded) comes before where the last model went (its log), and that before what it found when it started.
 *
 * GPU is said if the host has run kernels for this start's processes; or if this start's log found a GPU with a
 * real compute capability *and* our shim was seen where the work is done (maps of the right processes, where
 * LD_PRELOAD did not put it) or answered in the unit's environment (probe), *and* nothing speaks against it.
 * Everything else is named for what it is.
 */
import { type Carrier, carrierCodes } from '../contracts/shim-codes.js';
import type { Device, Mode, Reason, Verdict } from '../contracts/verdict.js';
import { parseEndpoint, splitHosts } from '../guest/vgpu-host/endpoint.js';
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

export function combine(observation: Observation): Verdict {
  const { profile, log, probe } = observation;
  const conclusion = conclude(observation);
  const devices = conclusion.mode === 'undetermined' ? [] : devicesOf(observation, conclusion);
  const probeSimulated =
    probe?.kind === 'answered' && (probe.report.simulated || probe.report.devices.some(isSimulated));
  const carrier = carrierOf(observation);
  const { summary, next } = adviceOn(observation, conclusion, devices);
  return {
    mode: conclusion.mode,
    // Said of a GPU only: where none is claimed there is nothing to take for a real one.
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

/** As its log names them; of a consumer that names none, on the GPU, those that our probe finds in its place. */
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
    // With a setting that keeps it off the GPU it is not on its way there.
    const forced = log.load?.outcome === 'cpu' ? loadOverride(observation) : null;
    if (forced !== null) return { mode: 'cpu', ...forced };
    return { mode: 'undetermined', reason: 'no-work-yet', detail: now.detail };
  }
  switch (log.mode) {
    case 'gpu':
      return concludeGpu(observation, now);
    case 'degraded':
      // The last model went to the CPU and is gone: what is loaded now is all on the GPU, by the host's word too.
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

/** A variable that keeps what it loads off the GPU. */
function loadOverride(observation: Observation): Diagnosis | null {
  const found = overrideTrouble(observation, 'loads');
  return found === null ? null : { reason: found.reason, detail: found.detail };
}

/** Its log is not read, and the host has run nothing for it: what keeps it from the GPU, if anything does. */
function concludeWordless(observation: Observation): Conclusion {
  const transport = transportTrouble(observation);
  if (transport !== null) return { mode: 'cpu', ...transport };
  const override = overrideTrouble(observation, 'devices');
  if (override !== null) return { mode: 'cpu', reason: override.reason, detail: override.detail };
  const trouble = mapsTrouble(observation) ?? probeTrouble(observation.probe);
  if (trouble !== null) return degraded(trouble);
  const { sessions } = observation.present;
  const detail =
    sessions.kind === 'unknown' ? `the host does not report its sessions: ${sessions.message}` : null;
  return { mode: 'undetermined', reason: 'no-session', detail };
}

/** Its log names no device, and the host does not say that it works: what is in the way now, if anything is. */
function concludeSilent(observation: Observation): Conclusion {
  const { profile, probe, readiness } = observation;
  // It is ready, and would have opened the GPU by now: what the probe meets, it meets too.
  if (profile.evidence.sessions === 'when-ready' && readiness.kind === 'answered') {
    const trouble = mapsTrouble(observation) ?? transportTrouble(observation) ?? probeTrouble(probe);
    if (trouble !== null) return degraded(trouble);
  }
  return { mode: 'undetermined', ...explainSilence(observation) };
}

/** Is a model on the CPU all that its log has against the GPU? */
function isContradictedByLoad({ load, reason }: Observation['log']): boolean {
  const onCpu = load !== null && load.outcome !== 'gpu';
  return onCpu && (reason === 'model-on-cpu' || reason === 'layers-not-offloaded');
}

/** Has the host as many sessions as it allows? Then a probe finds no place beside those that are there. */
function isFull({ present }: Observation): boolean {
  return present.sessions.kind === 'told' && present.sessions.turnedAway?.status === 'busy';
}

/** Why the host did not serve one of its processes; null: nothing is known of that. */
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

/** The log says GPU. Does it come through the shim, and does nothing contradict it? */
function concludeGpu(observation: Observation, now: Present): Conclusion {
  const { profile, probe, readiness } = observation;
  const counted = processesThatCount(observation)
    .filter(({ facts }) => !isPreloaded(facts))
    .map(({ facts }) => mappedBy(facts));
  const mapsTroubled = mapsTrouble(observation);
  if (mapsTroubled?.reason === 'foreign-library-loaded') return degraded(mapsTroubled);
  const works = now.kind === 'works';
  const seen = works || counted.includes('shim');
  // A process that lacks our variables, but has our shim by the system's links, is as it should be.
  if (mapsTroubled !== null && !seen) return degraded(mapsTroubled);
  const probed = probeTrouble(probe);
  const trouble = probed === null ? null : (transportTrouble(observation) ?? probed);
  // A host that is full serves those it has. Only a refusal is explained by that: it may have been full hours ago.
  const noPlace = works && isFull(observation) && trouble?.reason === 'host-refused';
  if (trouble !== null && !noPlace) {
    // The consumer found a GPU, but what it needs is not there now: the reason is what the probe met.
    return degraded(
      trouble.reason === 'no-device' ? { reason: 'probe-disagrees', detail: trouble.detail } : trouble,
    );
  }
  const other = probed === null ? otherDevice(observation) : null;
  if (other !== null) return degraded(other);
  // A consumer that is ready has its model loaded; if that lay on the GPU, the host would have memory for it.
  const empty = now.kind === 'waits' && now.held === 0 && profile.evidence.sessions === 'when-ready';
  if (empty && readiness.kind === 'answered')
    return { mode: 'undetermined', reason: 'no-work-yet', detail: now.detail };
  const answered = probe?.kind === 'answered';
  const logAlone = profile.evidence.mapsOf === 'none' && !profile.evidence.probe;
  if (!seen && !answered && !logAlone) {
    return { mode: 'undetermined', reason: 'shim-not-loaded', detail: whyUnproven(observation) };
  }
  if (readiness.kind === 'silent') {
    return degraded({ reason: 'readiness-timeout', detail: `${readiness.url}: ${readiness.lastError}` });
  }
  if (observation.computeAsked === true && !(answered && probe.report.compute?.ok === true)) {
    // Asked for and not had: what is claimed then must not be more than what is known.
    const why = probe?.kind === 'not-run' ? probe.message : 'vgpu-probe did not get that far';
    return {
      mode: 'undetermined',
      reason: 'compute-failed',
      detail: `the test kernels were not run: ${why}`,
    };
  }
  return { mode: 'gpu', reason: null, detail: null };
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

/** Reasons that a consumer also gives when the true one is that the host is not there. */
const vague: ReadonlySet<Reason> = new Set(['no-device', 'discovery-timeout', 'driver-init-failed']);
/** Hints that name a setting, not a symptom. */
const settings: ReadonlySet<Reason> = new Set(['library-forced-to-cpu', 'devices-hidden-by-environment']);

/** The consumer is on the CPU: the nearest cause first. */
function explainCpu(observation: Observation): { reason: Reason | null; detail: string | null } {
  const { log, probe } = observation;
  const override = overrideTrouble(observation, 'devices');
  const said =
    log.reason === null
      ? null
      : // The unit shows which variable it is.
        { reason: log.reason, detail: override?.reason === log.reason ? override.detail : null };
  if (said !== null && !vague.has(said.reason) && said.reason !== 'not-cuda') return said;
  if (override !== null) return override;
  if (log.hint !== null && settings.has(log.hint)) return { reason: log.hint, detail: null };
  const loaded = mapsTrouble(observation);
  if (loaded?.reason === 'foreign-library-loaded') return loaded;
  const transport = transportTrouble(observation);
  if (transport !== null) return transport;
  const probed = probeTrouble(probe);
  // The probe has the unit's variables: a device that one of them hides is hidden from it too.
  const blind = probed === null || probed.reason === 'no-device';
  const doubtful = blind ? overrideTrouble(observation, 'doubtful') : null;
  if (doubtful !== null) return { reason: doubtful.reason, detail: doubtful.detail };
  if (probed !== null) return said !== null && probed.reason === 'no-device' ? said : probed;
  // The probe finds a device where the consumer found none: the reason code has no details.
  const none = said?.reason === 'no-device' && probe?.kind === 'answered';
  if (said !== null && !none) return said;
  if (loaded !== null) return loaded;
  const ignored = preloadIgnored(observation);
  if (ignored !== null) return { reason: 'preload-ignored', detail: ignored };
  // The probe may find a GPU where the consumer found none: what the consumer hints at comes first.
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

/** Were the processes seen that would have loaded the shim? Children are gone soon after discovery. */
function looksWhereItWorks(observation: Observation): boolean {
  const { profile } = observation;
  const roles = new Set(processesThatCount(observation).map(({ role }) => role));
  const preloaded = profile.environment.some(({ name }) => name === 'LD_PRELOAD');
  return preloaded ? roles.has('main') : !profile.evidence.childrenMayExit || roles.has('child');
}

/** Nothing was announced: why there is nothing to read. */
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
      log.entries === 0 ? 'no entry of this start is there' : `${log.entries} later entries are there`;
    return { reason: 'journal-cut', detail: `${left}; older ones were removed, or journald stores none` };
  }
  const detail = log.entries === 0 ? 'the journal has no entry of this start' : null;
  return { reason: 'no-discovery-line', detail };
}

// The transport that carries the consumer's calls. Pure.

/**
 * The host's word on the sessions of its processes comes before that of the probe, which is a process more and may find
 * less room: of several sessions that which takes the most time. NVML's carry no work and never have rings.
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

/** A monitor may turn vsock into a unix socket on the way. */
function asSeenHere(carrier: Carrier, { unit, endpoint }: Pick<Observation, 'unit' | 'endpoint'>): Carrier {
  if (carrier !== 'unix') return carrier;
  const [first = ''] = splitHosts(unit.kind === 'loaded' ? hostOfUnit(unit, endpoint) : endpoint);
  const { kind } = parseEndpoint(first);
  return kind === 'bad' ? carrier : kind;
}
