/** The observations as a list for the user, each with its source. */

import { isContainer } from '../containers/container-unit.js';
import { troubleOf } from '../contracts/probe.js';
import type { Evidence } from '../contracts/verdict.js';
import { hostOfUnit } from '../systemd/unit-environment.js';
import { journalBypass } from '../systemd/unit-facts.js';
import { blockedTransport } from '../systemd/unit-sandbox.js';
import { environmentMissing, isTakenAway, preloadIgnored, probeTrouble, takenAway } from './diagnosis.js';
import type { Observation, SeenProcess } from './observation.js';
import {
  computing,
  countedTwice,
  inWords,
  refusedKernelsText,
  refusedMemoryText,
  tooLarge,
  turnedAwayText,
} from './present.js';
import { isPreloaded, libcudaPaths, type Mapped, mappedBy } from './watch-processes.js';

type Weight = Evidence['weight'];
type Say = (text: string, weight?: Weight) => Evidence;

function from(kind: Evidence['kind'], source: string): Say {
  return (text, weight = 'neutral') => ({ kind, text, weight, source });
}

export function evidenceOf(observation: Observation): readonly Evidence[] {
  return [
    ...observation.log.evidence,
    ...lastWords(observation),
    ...unitEvidence(observation),
    ...readinessEvidence(observation),
    ...loadedEvidence(observation),
    ...sessionsEvidence(observation),
    ...observation.processes.map(mapsEvidence),
    ...environmentEvidence(observation),
    ...probeEvidence(observation),
    ...computeEvidence(observation),
    ...hostEvidence(observation),
  ];
}

const maxWordsLength = 400;

/** The last output of a unit that ended is the best available reason. */
function lastWords({ end, log, lastWords: words }: Observation): readonly Evidence[] {
  if (end !== 'unit-failed' && end !== 'unit-restarting') return [];
  const known = new Set(log.evidence.map(({ text }) => text));
  return words.flatMap(({ text, source }) => {
    const short = text.length > maxWordsLength ? `${text.slice(0, maxWordsLength)}...` : text;
    return known.has(short) ? [] : [from('log-line', source)(short)];
  });
}

function unitEvidence(observation: Observation): readonly Evidence[] {
  const { unit, restarts, journalError, logFile, endpoint } = observation;
  const say = from('unit', observation.profile.unit);
  if (unit.kind !== 'loaded')
    return [
      say(
        unit.kind === 'absent' ? 'systemd has no unit of this name' : `the unit is ${unit.kind}`,
        'against',
      ),
    ];
  const { activeState, subState, result } = unit;
  const bypass = journalBypass(unit);
  const blocked = blockedTransport(endpoint, unit.sandbox);
  return [
    ...(activeState === 'active'
      ? []
      : [say(`${activeState} (${subState}), result ${result || 'none'}`, 'against')]),
    ...(restarts > 0 ? [say(`it was started again ${restarts} time(s) during the check`, 'against')] : []),
    ...(journalError === null ? [] : [say(`the journal cannot be read: ${journalError}`)]),
    ...(bypass === null ? [] : [say(`${bypass.setting}: its output does not reach the journal`)]),
    ...(logFile === null ? [] : [say(`its output was read from ${logFile}`)]),
    ...(blocked === null ? [] : [say(`${blocked.setting} keeps it from ${endpoint}`, 'against')]),
  ];
}

function readinessEvidence({ readiness, elapsedMs }: Observation): readonly Evidence[] {
  if (readiness.kind === 'unasked') return [];
  const say = from('readiness', readiness.url);
  const seconds = (milliseconds: number): string => `${(milliseconds / 1000).toFixed(1)} s`;
  return readiness.kind === 'answered'
    ? [say(`it answers requests, ${seconds(readiness.afterMs)} after the first request`)]
    : [say(`no answer in ${seconds(elapsedMs)}: ${readiness.lastError}`, 'against')];
}

function loadedEvidence(observation: Observation): readonly Evidence[] {
  const { loaded } = observation.present;
  if (loaded.kind === 'unasked') return [];
  const say = from('loaded', loaded.url);
  if (loaded.kind === 'silent') return [say(`it does not report its models: ${loaded.message}`)];
  const twice = countedTwice(observation);
  return loaded.models.map(({ name, bytes, gpuBytes }) => {
    if (bytes === 0) return say(`${name}: it reports no size`);
    const text = `${name}: ${inWords(gpuBytes)} of ${inWords(bytes)} on the GPU`;
    if (twice) return say(`${text}, with mapped weights counted twice`);
    return say(text, gpuBytes < bytes ? 'against' : 'for');
  });
}

function sessionsEvidence(observation: Observation): readonly Evidence[] {
  const { sessions, loaded } = observation.present;
  if (sessions.kind === 'unasked') return [];
  const { unit, endpoint, profile } = observation;
  const host = unit.kind === 'loaded' ? hostOfUnit(unit, endpoint) : endpoint;
  const say = from('sessions', `${host}, its list of this guest's sessions`);
  if (sessions.kind === 'unknown') return [say(`the host does not report its sessions: ${sessions.message}`)];
  const { turnedAway, refusedKernels, memory } = sessions;
  const own = computing(sessions.own).map(({ claimed, memory: held, launches, age }) => {
    const who = `${claimed.program} (process ${claimed.pid}) for ${(age / 1000).toFixed(0)} s`;
    const kernels = `${launches} kernel${launches === 1 ? '' : 's'} launched`;
    return say(`${who}: ${inWords(held)} of device memory, ${kernels}`, launches > 0 ? 'for' : 'neutral');
  });
  const missed = loaded.kind === 'told' && loaded.models.length > 0;
  const none = missed
    ? say(`no process of ${profile.unit} has a session`, 'against')
    : say(`no process of ${profile.unit} has a session: nothing is loaded on the GPU`);
  const more = [
    turnedAway === null ? null : turnedAwayText(turnedAway),
    refusedKernels === null ? null : refusedKernelsText(refusedKernels),
    memory?.refused ? refusedMemoryText(memory.refused, memory.line) : null,
    tooLarge(observation),
  ];
  return [
    ...(own.length === 0 ? [none] : own),
    ...more.filter((text) => text !== null).map((text) => say(text)),
  ];
}

const mappedTexts: Readonly<Record<Mapped, readonly [text: string, weight: Weight]>> = {
  shim: ['has the libcuda of vgpu-agent loaded', 'for'],
  stale: ['has an older libcuda of vgpu-agent loaded, whose file is gone', 'against'],
  foreign: ["has loaded another libcuda than vgpu-agent's", 'against'],
  mixed: ["has loaded two libraries named libcuda: vgpu-agent's and another one", 'against'],
  none: ['has no libcuda loaded', 'neutral'],
  unknown: ['could not be examined', 'neutral'],
};

function mapsEvidence({ role, facts }: SeenProcess): Evidence {
  const mapped = mappedBy(facts);
  const [said, weight] = mappedTexts[mapped];
  const preloaded = mapped === 'shim' && isPreloaded(facts);
  const why = preloaded ? ', because LD_PRELOAD loads it into every process' : '';
  const paths = libcudaPaths(facts);
  const who = role === 'main' ? `the main process (${facts.name})` : `its child ${facts.name}`;
  const text = `${who} ${said}${why}${paths === '' ? '' : `: ${paths}`}`;
  return from('maps', `/proc/${facts.pid}/maps`)(text, preloaded ? 'neutral' : weight);
}

function environmentEvidence(observation: Observation): readonly Evidence[] {
  const main = observation.processes.find(({ role }) => role === 'main')?.facts;
  if (main === undefined) return [];
  const say = from('environment', `/proc/${main.pid}/environ`);
  const missing = environmentMissing(observation);
  if (missing !== null) {
    const why = isTakenAway(observation) ? takenAway : `it was started before that was set, or ${takenAway}`;
    return [say(`${missing}: ${why}`, 'against')];
  }
  const set = Object.entries(main.loaderEnvironment).map(([name, value]) => `${name}=${value}`);
  if (set.length === 0) return [];
  const ignored = preloadIgnored(observation);
  const inMaps = from('environment', `/proc/${main.pid}/maps`);
  return [say(set.join(' ')), ...(ignored === null ? [] : [inMaps(ignored, 'against')])];
}

function probeEvidence({ probe, unit }: Observation): readonly Evidence[] {
  if (probe === null) return [];
  const where = isContainer(unit) ? 'in the container' : "as the service's user in the unit's environment";
  const say = from('probe', `vgpu-probe, ${where}`);
  if (probe.kind === 'not-run') return [say(`could not be run: ${probe.message}`)];
  const trouble = probeTrouble(probe);
  if (probe.kind !== 'answered') return [say(trouble?.detail ?? 'no answer', 'against')];
  const { report } = probe;
  const noHost = troubleOf(report.host);
  // A device that computes wrong numbers was found; the item of the kernels reports the fault.
  if (trouble !== null && trouble.reason !== 'compute-failed') {
    const host = noHost === null ? '' : ` (no host: ${noHost.message})`;
    return [say(`${trouble.detail ?? 'it found no working GPU'}${host}`, 'against')];
  }
  const devices = report.devices.map(({ name, compute }) => `${name} (compute ${compute})`).join(', ');
  const trip = report.roundTrip;
  const memory =
    trip === null ? '' : `; ${trip.bytes} bytes were written and read back in ${trip.microseconds} us`;
  return [say(`${devices} through ${report.library ?? 'libcuda.so.1'}${memory}`, 'for')];
}

function computeEvidence({ probe, computeAsked, unit }: Observation): readonly Evidence[] {
  if (computeAsked !== true) return [];
  const where = isContainer(unit) ? 'in the container' : "as the service's user";
  const say = from('compute', `vgpu-probe --compute, ${where}`);
  if (probe?.kind !== 'answered') return [say('the test kernels were not run')];
  const { compute, error } = probe.report;
  if (compute === undefined) return [say('vgpu-probe did not get as far as the test kernels')];
  if (compute.ok) {
    const took = `in ${compute.microseconds} us`;
    return [
      say(
        `the test kernels ran there: ${compute.values} numbers, each the same as on the CPU, ${took}`,
        'for',
      ),
    ];
  }
  const step = error === null || error.message.includes(error.step) ? '' : `${error.step}: `;
  const why = `${step}${error?.message ?? 'no reason given'}`;
  return [say(`the test kernels failed or computed wrong numbers: ${why}`, 'against')];
}

function hostEvidence({ host, endpoint }: Observation): readonly Evidence[] {
  if (host === null || host.kind === 'unasked') return [];
  const say = from('host', endpoint);
  return host.kind === 'unreachable'
    ? [say(`does not answer: ${host.message}`, 'against')]
    : [say(`answers in ${host.milliseconds} ms: ${host.device}`)];
}
