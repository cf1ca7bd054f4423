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
    return known.has(short) ? [] : [{ kind: 'log-line', text: short, weight: 'neutral', source }];
  });
}

function unitEvidence(observation: Observation): readonly Evidence[] {
  const { unit, restarts, journalError, logFile, endpoint } = observation;
  const items: Evidence[] = [];
  const say = (text: string, weight: Evidence['weight']): void => {
    items.push({ kind: 'unit', text, weight, source: observation.profile.unit });
  };
  if (unit.kind !== 'loaded') {
    say(unit.kind === 'absent' ? 'systemd knows no such unit' : `the unit is ${unit.kind}`, 'against');
    return items;
  }
  if (unit.activeState !== 'active')
    say(`${unit.activeState} (${unit.subState}), result ${unit.result || 'none'}`, 'against');
  if (restarts > 0) say(`it was started again ${restarts} time(s) during the check`, 'against');
  if (journalError !== null) say(`the journal cannot be read: ${journalError}`, 'neutral');
  const bypass = journalBypass(unit);
  if (bypass !== null) say(`${bypass.setting}: its output does not reach the journal`, 'neutral');
  if (logFile !== null) say(`its output was read from ${logFile}`, 'neutral');
  const blocked = blockedTransport(endpoint, unit.sandbox);
  if (blocked !== null) say(`${blocked.setting} keeps it from ${endpoint}`, 'against');
  return items;
}

function readinessEvidence({ readiness, elapsedMs }: Observation): readonly Evidence[] {
  switch (readiness.kind) {
    case 'answered': {
      const after = (readiness.afterMs / 1000).toFixed(1);
      return [
        {
          kind: 'readiness',
          text: `it answers requests, ${after} s after the first request`,
          weight: 'neutral',
          source: readiness.url,
        },
      ];
    }
    case 'silent': {
      const after = (elapsedMs / 1000).toFixed(1);
      return [
        {
          kind: 'readiness',
          text: `no answer in ${after} s: ${readiness.lastError}`,
          weight: 'against',
          source: readiness.url,
        },
      ];
    }
    case 'unasked':
      return [];
  }
}

function loadedEvidence(observation: Observation): readonly Evidence[] {
  const { loaded } = observation.present;
  const twice = countedTwice(observation);
  if (loaded.kind === 'unasked') return [];
  const { url } = loaded;
  if (loaded.kind === 'silent')
    return [
      { kind: 'loaded', text: `it does not report it: ${loaded.message}`, weight: 'neutral', source: url },
    ];
  return loaded.models.map(({ name, bytes, gpuBytes }) => ({
    kind: 'loaded',
    text:
      bytes === 0
        ? `${name}: it reports no size`
        : `${name}: ${inWords(gpuBytes)} of ${inWords(bytes)} on the GPU${twice ? ', with mapped weights counted twice' : ''}`,
    weight: bytes === 0 || twice ? 'neutral' : gpuBytes < bytes ? 'against' : 'for',
    source: url,
  }));
}

function sessionsEvidence(observation: Observation): readonly Evidence[] {
  const { sessions, loaded } = observation.present;
  if (sessions.kind === 'unasked') return [];
  const { unit, endpoint } = observation;
  const host = unit.kind === 'loaded' ? hostOfUnit(unit, endpoint) : endpoint;
  const source = `${host}, its list of this guest's sessions`;
  if (sessions.kind === 'unknown')
    return [
      {
        kind: 'sessions',
        text: `the host does not report them: ${sessions.message}`,
        weight: 'neutral',
        source,
      },
    ];
  const own = computing(sessions.own);
  const items: Evidence[] = own.map(({ claimed, memory, launches, age }) => ({
    kind: 'sessions',
    text: `${claimed.program} (process ${claimed.pid}) for ${(age / 1000).toFixed(0)} s: ${inWords(memory)} of device memory, ${launches} kernel${launches === 1 ? '' : 's'} launched`,
    weight: launches > 0 ? 'for' : 'neutral',
    source,
  }));
  if (own.length === 0) {
    const missed = loaded.kind === 'told' && loaded.models.length > 0;
    items.push({
      kind: 'sessions',
      text: missed
        ? 'no process of it has a session'
        : 'no process of it has a session: nothing is loaded on the GPU',
      weight: missed ? 'against' : 'neutral',
      source,
    });
  }
  if (sessions.turnedAway !== null)
    items.push({ kind: 'sessions', text: turnedAwayText(sessions.turnedAway), weight: 'neutral', source });
  if (sessions.refusedKernels !== null) {
    const text = refusedKernelsText(sessions.refusedKernels);
    items.push({ kind: 'sessions', text, weight: 'neutral', source });
  }
  if (sessions.memory?.refused) {
    const text = refusedMemoryText(sessions.memory.refused, sessions.memory.line);
    items.push({ kind: 'sessions', text, weight: 'neutral', source });
  }
  const large = tooLarge(observation);
  if (large !== null) items.push({ kind: 'sessions', text: large, weight: 'neutral', source });
  return items;
}

const mappedTexts: Readonly<Record<Mapped, { readonly text: string; readonly weight: Evidence['weight'] }>> =
  {
    shim: { text: 'has the libcuda of vgpu-agent loaded', weight: 'for' },
    stale: { text: 'has an older libcuda of vgpu-agent loaded, whose file is gone', weight: 'against' },
    foreign: { text: 'has another libcuda loaded than that of vgpu-agent', weight: 'against' },
    mixed: {
      text: 'has two libraries named libcuda loaded: that of vgpu-agent and another one',
      weight: 'against',
    },
    none: { text: 'has no libcuda loaded', weight: 'neutral' },
    unknown: { text: 'could not be examined', weight: 'neutral' },
  };

function mapsEvidence({ role, facts }: SeenProcess): Evidence {
  const mapped = mappedBy(facts);
  const said = mappedTexts[mapped];
  const preloaded = mapped === 'shim' && isPreloaded(facts);
  const text = preloaded ? `${said.text}, because LD_PRELOAD loads it into every process` : said.text;
  const weight = preloaded ? 'neutral' : said.weight;
  const paths = libcudaPaths(facts);
  const who = role === 'main' ? `the main process (${facts.name})` : `its child ${facts.name}`;
  return {
    kind: 'maps',
    text: `${who} ${text}${paths === '' ? '' : `: ${paths}`}`,
    weight,
    source: `/proc/${facts.pid}/maps`,
  };
}

function environmentEvidence(observation: Observation): readonly Evidence[] {
  const main = observation.processes.find(({ role }) => role === 'main')?.facts;
  if (main === undefined) return [];
  const source = `/proc/${main.pid}/environ`;
  const missing = environmentMissing(observation);
  if (missing !== null) {
    const why = isTakenAway(observation) ? takenAway : `it was started before that was set, or ${takenAway}`;
    return [{ kind: 'environment', text: `${missing}: ${why}`, weight: 'against', source }];
  }
  const set = Object.entries(main.loaderEnvironment).map(([name, value]) => `${name}=${value}`);
  if (set.length === 0) return [];
  const items: Evidence[] = [{ kind: 'environment', text: set.join(' '), weight: 'neutral', source }];
  const ignored = preloadIgnored(observation);
  if (ignored !== null)
    items.push({ kind: 'environment', text: ignored, weight: 'against', source: `/proc/${main.pid}/maps` });
  return items;
}

function probeEvidence({ probe, unit }: Observation): readonly Evidence[] {
  if (probe === null) return [];
  const where = probePlace(unit) ?? "as the service's user in the unit's environment";
  const item = (text: string, weight: Evidence['weight']): readonly Evidence[] => [
    { kind: 'probe', text, weight, source: `vgpu-probe, ${where}` },
  ];
  if (probe.kind === 'not-run') return item(`could not be run: ${probe.message}`, 'neutral');
  const trouble = probeTrouble(probe);
  if (probe.kind !== 'answered') return item(trouble?.detail ?? 'no answer', 'against');
  const { report } = probe;
  const noHost = troubleOf(report.host);
  // A device that computes wrong numbers was found; the item of the kernels reports the fault.
  if (trouble !== null && trouble.reason !== 'compute-failed') {
    const host = noHost === null ? '' : ` (no host: ${noHost.message})`;
    return item(`${trouble.detail ?? 'it found no working GPU'}${host}`, 'against');
  }
  const devices = report.devices.map(({ name, compute }) => `${name} (compute ${compute})`).join(', ');
  const trip = report.roundTrip;
  const memory =
    trip === null ? '' : `; ${trip.bytes} bytes were written and read back in ${trip.microseconds} us`;
  return item(`${devices} through ${report.library ?? 'libcuda.so.1'}${memory}`, 'for');
}

function probePlace(unit: Observation['unit']): string | null {
  return isContainer(unit) ? 'in the container' : null;
}

function computeEvidence({ probe, computeAsked, unit }: Observation): readonly Evidence[] {
  if (computeAsked !== true) return [];
  const source = `vgpu-probe --compute, ${probePlace(unit) ?? "as the service's user"}`;
  const item = (text: string, weight: Evidence['weight']): readonly Evidence[] => [
    { kind: 'compute', text, weight, source },
  ];
  if (probe?.kind !== 'answered') return item('the test kernels were not run', 'neutral');
  const { compute, error } = probe.report;
  if (compute === undefined) return item('vgpu-probe did not get as far as the test kernels', 'neutral');
  if (compute.ok) {
    const { values, microseconds } = compute;
    return item(
      `the test kernels ran there: ${values} numbers, each the same as on the CPU, in ${microseconds} us`,
      'for',
    );
  }
  const how = error === null ? '' : error.message.includes(error.step) ? '' : `${error.step}: `;
  return item(
    `the test kernels failed or computed wrong numbers: ${how}${error?.message ?? 'no reason given'}`,
    'against',
  );
}

function hostEvidence({ host, endpoint }: Observation): readonly Evidence[] {
  if (host === null || host.kind === 'unasked') return [];
  if (host.kind === 'unreachable') {
    return [{ kind: 'host', text: `does not answer: ${host.message}`, weight: 'against', source: endpoint }];
  }
  const time = `${host.milliseconds} ms`;
  return [{ kind: 'host', text: `answers in ${time}: ${host.device}`, weight: 'neutral', source: endpoint }];
}
