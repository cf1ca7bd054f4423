/**
 * The live confirmation: observes one start of a consumer until its device is known. Uses only the effects passed in,
 * and changes nothing.
 */
import { type ProbeResult, type ProbeRun, parseProbeReport } from '../contracts/probe.js';
import type { UnitFacts } from '../contracts/unit.js';
import type { Verdict } from '../contracts/verdict.js';
import { messageOf, VgpuError } from '../lib/errors.js';
import { choiceOf } from '../profile/instance.js';
import { journalBypass } from '../systemd/unit-facts.js';
import type {
  ConfirmEffects,
  ConfirmOptions,
  End,
  Observation,
  PresentSeen,
  ReadinessSeen,
} from './observation.js';
import { presentOf } from './present.js';
import { watchLog } from './watch-log.js';
import { askAnswering, lookAtPresent, type PresentEffects } from './watch-present.js';
import { watchProcesses } from './watch-processes.js';
import { watchReadiness } from './watch-readiness.js';
import { watchUnit } from './watch-unit.js';

const settleMs = 1_500;
const mayOweMs = 5_000;
const readinessGraceMs = 10_000;
const turnMs = 10;
/** Pause before the journal of a ready consumer without an announcement is read again; doubled each time. */
const catchUpMs = 100;
const tellEveryMs = 1_000;
/** Number of, and pauses between, checks of a contradiction: a model may just be loading. */
const looksAtContradiction = 2;
const contradictionPauseMs = 700;
/** A load that takes longer is reported as loading, never as on the CPU. */
const looksWhileLoading = 20;

/** Time that a consumer has to answer, if the time for its start has passed. */
const runningMs = 15_000;
/** Time for a start whose first lines the journal has lost, counted from the start: it began some time ago. */
const cutStartMs = 30_000;

/**
 * Limit of our own work (reading the journal, running the probe), which a busy machine delays, unless `timeoutMs` is
 * given. The consumer gets extra time after it.
 */
const ownWorkMs = 60_000;
const afterOwnWorkMs = 1_000;
/** With `patienceMs`, the limit if the start has more journal entries than `longJournal`. */
const longJournalMs = 5_000;
const longJournal = 20_000;

/** Pause between two queries to the host while a consumer has not announced its device. */
const askPresentEveryMs = 1_000;

export function confirmLimitMs(options: ConfirmOptions): number {
  const { profile, timeoutMs, patienceMs, libraryDirectories, ageMs } = options;
  const { baseSeconds, perLibraryDirectorySeconds } = profile.timeouts;
  const granted = (baseSeconds + perLibraryDirectorySeconds * libraryDirectories) * 1000;
  return timeoutMs ?? patienceMs ?? Math.min(granted, Math.max(runningMs, granted - (ageMs ?? 0)));
}

/**
 * Observes this start of the consumer; `decideVerdict` makes the verdict. Throws a VgpuError of kind `interrupted` when
 * `options.signal` aborts. Faults of the consumer, the journal or the host are part of the observation, not errors.
 */
export async function observe(options: ConfirmOptions, effects: ConfirmEffects): Promise<Observation> {
  const { profile } = options;
  const { clock } = effects;
  stopIfAsked(options);
  const limitMs = confirmLimitMs(options);
  const start = clock.now();
  const first = await effects.unit();
  const running = first.kind === 'loaded' ? first.invocationId : null;
  const invocationId = options.invocationId ?? running;

  const closing = new AbortController();
  const signal = AbortSignal.any([closing.signal, options.signal]);
  const log = watchLog(options, effects, invocationId, signal);
  const processes = options.looking ?? watchProcesses(effects, signal);
  const begin = (id: string): void => {
    log.begin(id);
    processes.forget();
    readiness.forget();
    catchUp = { at: 0, pauseMs: catchUpMs };
    present = { ...present, nextAt: 0, works: false };
  };
  let catchUp = { at: 0, pauseMs: catchUpMs };
  /** The journal has all lines of a consumer that answers, but the follower may not have received them yet. */
  const catchUpWhenReady = (now: number): void => {
    if (readiness.answeredAt() === null || log.state() !== 'undecided' || now < catchUp.at) return;
    log.catchUp();
    catchUp = { at: now + catchUp.pauseMs, pauseMs: catchUp.pauseMs * 2 };
  };
  const readiness = watchReadiness(
    profile,
    effects,
    {
      unit: () => unit.unit(),
      address: () => log.findings().address,
      announced: () => log.announcedAt() !== null,
    },
    signal,
  );
  const unit = watchUnit(effects, first, { invocationId, restarts: options.restarts }, begin, signal);
  const mainPid = (): number => {
    const now = unit.unit();
    return now.kind === 'loaded' ? now.mainPid : 0;
  };
  const computeAsked = options.compute === true;
  const wantsProbe = profile.evidence.probe || computeAsked;
  let probe: ProbeResult | null = null;
  const probing = wantsProbe && first.kind === 'loaded' ? runProbe(effects, signal) : Promise.resolve(null);
  let probeOver = false;
  const probeDone = probing.then((result) => {
    probe = result;
    probeOver = true;
  });
  const watches = Promise.all([log.done, processes.done, readiness.done, unit.done, probeDone]);
  watches.catch(() => {});

  const wordless = profile.log.devices.length === 0;
  let present: { readonly nextAt: number; readonly works: boolean; readonly asking: Promise<void> | null } = {
    nextAt: 0,
    works: false,
    asking: null,
  };
  const askPresent = (now: number): void => {
    // Only when the whole log has been read is a line known to be missing; after days, reading takes a second.
    const said = !log.caughtUp() || log.state() !== 'undecided';
    const mute = wordless || (readiness.answeredAt() !== null && !said);
    if (!mute || present.works || present.asking !== null || now < present.nextAt) return;
    const question = { profile, unit: unit.unit(), address: log.findings().address };
    const asking = lookAtPresent(question, effects, signal).then((seen) => {
      const known = { profile, log: log.findings(), readiness: readiness.seen(), present: seen };
      const works = presentOf(known).kind === 'works';
      present = { nextAt: clock.now() + askPresentEveryMs, works, asking: null };
    });
    present = { ...present, asking };
  };
  const silent = (): boolean => {
    const answered = readiness.answeredAt();
    // Do not wait for output that bypasses the journal.
    const patience = journalBypass(unit.unit()) !== null && options.outputFile === null ? 0 : mayOweMs;
    return answered !== null && log.caughtUp() && clock.now() - answered >= patience;
  };
  const logOver = (): boolean => {
    if (log.state() === 'decided' || present.works) return true;
    // After a restart the consumer gets time to begin; a consumer that has been running is judged now.
    if (wordless) return options.cursor === null;
    const announced = log.announcedAt();
    if (announced === null) return silent();
    return readiness.answeredAt() !== null || clock.now() - announced >= settleMs;
  };
  let over: { readonly at: number; looked: boolean } | null = null;
  const settled = (): boolean => {
    if (!logOver()) {
      over = null;
      return false;
    }
    over ??= overNow();
    // A consumer that has announced its device may still be loading a model; otherwise it answers immediately.
    const late = log.state() === 'decided' && clock.now() - over.at >= readinessGraceMs;
    const ready = readiness.seen().kind !== 'silent' || late;
    return ready && over.looked && probeOver;
  };
  /** Waits for a whole inspection of the processes after the announcement; the current one may have begun earlier. */
  const overNow = (): { readonly at: number; looked: boolean } => {
    const now = { at: clock.now(), looked: false };
    processes.look().then(() => {
      now.looked = true;
    });
    return now;
  };

  let ownWorkAt = start;
  const limitNow = (): number => {
    const { ageMs, timeoutMs } = options;
    if (!log.cut() || typeof ageMs !== 'number' || timeoutMs !== null) return limitMs;
    return Math.min(limitMs, Math.max(runningMs, cutStartMs - ageMs));
  };
  const isLate = (now: number): boolean => {
    const elapsed = now - start;
    const working = !log.caughtUp() || !probeOver || over?.looked === false;
    if (working) ownWorkAt = now;
    const limit = limitNow();
    if (elapsed < limit || options.timeoutMs !== null) return elapsed >= limit;
    const isLong = !log.caughtUp() && log.entriesRead() >= longJournal;
    if (isLong && elapsed >= longJournalMs && typeof options.patienceMs === 'number') return true;
    return elapsed >= ownWorkMs || now - ownWorkAt >= afterOwnWorkMs;
  };

  let end: End | null = null;
  let told = start;
  try {
    while (end === null) {
      stopIfAsked(options);
      const now = clock.now();
      catchUpWhenReady(now);
      askPresent(now);
      const trouble = unit.trouble();
      if (trouble !== null) end = trouble === 'failed' ? 'unit-failed' : 'unit-restarting';
      else if (settled()) {
        // The start that settled may have just ended: the unit's state decides.
        await unit.look();
        if (unit.trouble() === null && isUp(unit.unit()) && settled()) end = 'settled';
      }
      if (end === null && isLate(now)) end = endAtLimit(unit.unit());
      if (end === null) {
        if (now - told >= tellEveryMs) {
          told = now;
          effects.emit({ kind: 'waiting', text: waitingFor(), elapsedMs: now - start, limitMs: limitNow() });
        }
        await clock.sleep(turnMs, signal);
      }
    }
    stopIfAsked(options);
    if (!probeOver) probe = { kind: 'timed-out', milliseconds: clock.now() - start };
    const host = await askHost(effects, probe, log.findings().mode, signal);
    stopIfAsked(options);
    const seen = {
      profile,
      unit: (end === 'unit-restarting' ? unit.lastFailure() : null) ?? unit.unit(),
      invocationId: unit.invocationId(),
      restarted: options.cursor !== null || options.restarted === true,
      end,
      elapsedMs: clock.now() - start,
      restarts: unit.restarts(),
      log: log.findings(),
      lastWords: log.lastWords(),
      journalError: log.error(),
      journalCut: log.cut(),
      logFile: options.outputFile?.path ?? null,
      readiness: readiness.seen(),
      processes: processes.seen(profile, mainPid()),
      probe,
      computeAsked,
      host,
      endpoint: options.endpoint,
      ...(options.hosts === undefined ? {} : { hosts: options.hosts }),
    };
    const last = await settledPresent(seen, effects, signal);
    await unit.look();
    stopIfAsked(options);
    // The observed start may have ended during the last queries.
    const gone = unit.invocationId() !== seen.invocationId || !isUp(unit.unit());
    return gone && end === 'settled'
      ? { ...seen, ...last, unit: unit.unit(), end: endAtLimit(unit.unit(), 'unit-restarting') }
      : { ...seen, ...last };
  } finally {
    closing.abort();
    processes.stop();
    await watches;
    await present.asking;
  }

  function waitingFor(): string {
    if (log.state() === 'undecided') return `${profile.name} to say which device it uses`;
    if (!probeOver) return 'vgpu-probe';
    return readiness.seen().kind === 'silent'
      ? `${profile.name} to answer requests`
      : `${profile.name} to settle`;
  }
}

const nothingSeen: PresentSeen = { loaded: { kind: 'unasked' }, sessions: { kind: 'unasked' } };

/** The present state, read last. Evidence that contradicts the rest is checked again before it counts. */
async function settledPresent(
  seen: Omit<Observation, 'present' | 'look'>,
  effects: PresentEffects & Pick<ConfirmEffects, 'clock' | 'stamp'>,
  signal: AbortSignal,
  whileLoading = looksWhileLoading,
): Promise<Pick<Observation, 'present' | 'look'>> {
  const { profile, unit, log, end } = seen;
  let look = effects.stamp();
  if (end === 'unit-failed' || end === 'unit-restarting') return { present: nothingSeen, look };
  const question = { profile, unit, address: log.address };
  let present = await lookAtPresent(question, effects, signal);
  for (let again = 0; !signal.aborted; again += 1) {
    const { kind } = presentOf({ ...seen, present });
    if (again >= (kind === 'contradicted' ? looksAtContradiction : kind === 'loads' ? whileLoading : 0))
      break;
    await effects.clock.sleep(contradictionPauseMs, signal);
    look = effects.stamp();
    present = await lookAtPresent(question, effects, signal);
  }
  return { present, look };
}

function isUp(unit: UnitFacts): boolean {
  return unit.kind === 'loaded' && ['active', 'reloading', 'refreshing'].includes(unit.activeState);
}

function endAtLimit(unit: UnitFacts, other: End = 'timed-out'): End {
  if (unit.kind !== 'loaded' || unit.activeState === 'failed' || unit.activeState === 'inactive')
    return 'unit-failed';
  return unit.subState.startsWith('auto-restart') ? 'unit-restarting' : other;
}

async function runProbe(effects: ConfirmEffects, signal: AbortSignal): Promise<ProbeResult> {
  try {
    return probeResult(await effects.probe(signal));
  } catch (error) {
    return { kind: 'not-run', message: messageOf(error) };
  }
}

/** Queries the host only to explain a fault, because a query takes one of its sessions. */
async function askHost(
  effects: ConfirmEffects,
  probe: ProbeResult | null,
  mode: Verdict['mode'],
  signal: AbortSignal,
): Promise<Observation['host']> {
  const fine = probe?.kind === 'answered' && probe.report.ok;
  if (fine || (probe === null && mode === 'gpu')) return null;
  try {
    return (await effects.host(signal)).answer;
  } catch (error) {
    const message = messageOf(error);
    return { kind: 'unreachable', message, word: null };
  }
}

function stopIfAsked({ signal, profile }: ConfirmOptions): void {
  if (!signal.aborted) return;
  throw new VgpuError('stopped while waiting for the verdict', {
    kind: 'interrupted',
    operation: 'confirm',
    path: profile.unit,
    remedy: `vgpu-agent verify ${choiceOf(profile)} asks again`,
  });
}

// Updates an observation: the loaded models, readiness, and the host's sessions of the consumer's processes.

/** A busy consumer may miss one request. */
const silentMs = 4_000;

export interface Watched {
  readonly observation: Observation;
  /** Monotonic time since which the consumer does not answer; null: it answers, or is not queried. */
  readonly silentSince: number | null;
}

/**
 * The observation, with the earlier log of this start if its first entries were removed from the journal since. If the
 * journal has a newer load, the earlier log does not apply.
 */
export function withKnownLog(now: Observation, before: Observation | null): Observation {
  if (before === null || now.journalCut !== true || before.journalCut === true) return now;
  if (before.invocationId !== now.invocationId || before.journalError !== null) return now;
  if (now.log.load !== null && now.log.load.outcome !== before.log.load?.outcome) return now;
  return { ...now, log: { ...before.log, loadError: now.log.loadError }, journalCut: false };
}

function kernelsOf({ sessions }: PresentSeen): number {
  return sessions.kind === 'told' ? sessions.own.reduce((sum, { launches }) => sum + launches, 0) : 0;
}

export type LookEffects = PresentEffects & Pick<ConfirmEffects, 'clock' | 'stamp'>;

export async function lookAgain(
  { observation, silentSince }: Watched,
  effects: LookEffects,
  signal: AbortSignal,
): Promise<Watched> {
  const { profile, unit, log } = observation;
  const asked = effects.clock.now();
  const seen = await settledPresent(observation, effects, signal, 0);
  const question = { profile, unit, address: log.address };
  const answering = await askAnswering(question, seen.present.loaded, effects, signal);
  if (answering.kind !== 'silent') {
    const readiness: ReadinessSeen =
      answering.kind === 'answered' && observation.readiness.kind === 'silent'
        ? { kind: 'answered', url: answering.url, afterMs: effects.clock.now() - asked }
        : observation.readiness;
    return { observation: { ...observation, ...seen, readiness }, silentSince: null };
  }
  const since = silentSince ?? asked;
  const elapsedMs = effects.clock.now() - since;
  // Before its first answer a consumer may still be starting; `observe` has judged that.
  const works = kernelsOf(seen.present) > kernelsOf(observation.present);
  const hung = elapsedMs >= silentMs && observation.end === 'settled' && !works;
  const changes = hung ? { readiness: answering, elapsedMs } : {};
  return { observation: { ...observation, ...seen, ...changes }, silentSince: since };
}

/** Reads the output of `vgpu-probe --json`. Any other output counts as a crash, never as an answer. */
export function probeResult(run: ProbeRun): ProbeResult {
  if (run.kind === 'not-run') return run;
  if (run.timedOut) return { kind: 'timed-out', milliseconds: run.milliseconds };
  if (run.signal !== null) return { kind: 'crashed', message: `vgpu-probe was ended by ${run.signal}` };
  // vgpu-probe's usage error: its version differs from the agent's.
  if (run.exitCode === 2) {
    const message =
      'the vgpu-probe that is installed does not know these options; sudo vgpu-agent install brings its own';
    return { kind: 'not-run', message };
  }
  const report = parseProbeReport(run.stdout);
  if ('problem' in report) {
    const said = run.stderr.trim().slice(0, 300);
    return { kind: 'crashed', message: said === '' ? report.problem : `${report.problem}; it said: ${said}` };
  }
  // If the document and the exit status disagree, neither counts.
  if ((run.exitCode === 0) !== report.ok) {
    return { kind: 'crashed', message: `vgpu-probe says ok=${report.ok} but exits with ${run.exitCode}` };
  }
  return {
    kind: 'answered',
    report,
    milliseconds: run.milliseconds,
    ...(run.inContainer === true ? { inContainer: true } : {}),
  };
}
