/** Keeps the verdict current: carries out the decisions of machine.ts, one task at a time. */

import type { MachineFacts } from '../../contracts/facts.js';
import type { LoadedUnit, UnitFacts } from '../../contracts/unit.js';
import type { Verdict } from '../../contracts/verdict.js';
import { withVerdict } from '../../install/pipeline/status-view.js';
import type { Mark, WatchingWorkplace } from '../../install/pipeline/workplace.js';
import { messageOf } from '../../lib/errors.js';
import { type Watched, withKnownLog } from '../../verdict/confirm.js';
import { decideVerdict } from '../../verdict/decide.js';
import type { Observation } from '../../verdict/observation.js';
import { liveSessions, presentOf } from '../../verdict/present.js';
import type { ConsumerBoard, Record } from '../board.js';
import type { DesiredOne } from '../desired.js';
import { pacer, pause, steadyNow } from '../pacer.js';
import { judgeNext } from './machine.js';
import { shownVerdict } from './shown.js';
import {
  beginJudging,
  type JudgeEffect,
  type JudgeEvent,
  type LiveSeen,
  type RestartRules,
  type Seen,
  type Start,
} from './state.js';

interface JudgeEffects {
  readonly work: WatchingWorkplace;
  readonly board: ConsumerBoard;
  readonly record: Record;
  readonly desired: () => DesiredOne;
  readonly serving: (unit: LoadedUnit) => Promise<string | null>;
  readonly restart: (unit: string) => Promise<string>;
  /** Makes the preferred host the one in use, before the restart. */
  readonly moveBack: () => void;
  readonly signal: AbortSignal;
}

const lookEveryMs = 5_000;
const failurePauseMs = 10_000;

export function judge(effects: JudgeEffects) {
  const { work, board, record, signal } = effects;
  const { profile } = effects.desired();
  let facts: MachineFacts | null = null;
  let state = beginJudging(profile.name, profile.unit, rulesOf(effects.desired()));

  let unit: UnitFacts | null = null;
  const startNow = async (): Promise<Start | null> => {
    unit = await work.unit(profile.unit);
    return startOf(unit);
  };

  let watched: Watched | null = null;
  const confirm = async (
    mark: Mark | null,
    ending = signal,
  ): Promise<{ readonly verdict: Verdict; readonly live: LiveSeen }> => {
    if (facts === null) throw new Error('a verdict was requested before the machine was inspected');
    const restarted =
      unit?.kind === 'loaded' && unit.invocationId !== null && unit.invocationId === state.ownStart;
    const request = { profile, facts, mark, restarted, timeoutMs: null, signal: ending };
    const known = watched?.observation ?? null;
    const observation = withKnownLog(await work.observe(request, () => {}), known);
    watched = { observation, silentSince: null };
    return { verdict: decideVerdict(observation), live: liveOf(observation) };
  };

  const look = async (): Promise<void> => {
    const before = watched;
    if (before === null || unit?.kind !== 'loaded' || unit.activeState !== 'active') return;
    if (before.observation.invocationId !== unit.invocationId) return;
    const now = await work.lookAgain(before, signal);
    // A full verdict is newer than the start of this look.
    if (signal.aborted || watched !== before) return;
    watched = now;
    const { observation } = now;
    step({
      kind: 'looked',
      verdict: decideVerdict(observation),
      live: liveOf(observation),
      now: steadyNow(),
    });
    // The log may have new lines from the time without an answer.
    const awake = observation.readiness.kind === 'answered' && before.observation.readiness.kind === 'silent';
    if (awake) step({ kind: 'doubt' });
  };

  /** Runs in parallel to full verdicts, so that a hung consumer does not delay the board. */
  const keepLooking = async (): Promise<void> => {
    while (!signal.aborted) {
      await pause(lookEveryMs, signal);
      await look().catch((error: unknown) => {
        if (!signal.aborted) record.say(`cannot look at ${profile.unit}: ${String(error)}`);
      });
    }
  };

  /** Callers that wait for a verdict: of the current run, and of the next one. */
  let awaited: (() => void)[] = [];
  const asked: (() => void)[] = [];
  /** Aborts a full verdict in progress that no caller requested, so that a new caller waits for one verdict only. */
  let unasked: AbortController | null = null;
  const settle = (): void => {
    for (const resolve of awaited.splice(0)) resolve();
  };

  const handle = async (event: JudgeEvent): Promise<void> => {
    const wanted = step(event);
    if (event.kind === 'judged') settle();
    for (const effect of wanted) {
      const answer = await answerTo(effect);
      if (answer !== null) await handle(answer);
    }
  };

  const step = (event: JudgeEvent): readonly JudgeEffect[] => {
    const next = judgeNext(state, event);
    state = next.state;
    return next.effects.filter((effect) => !doneAtOnce(effect));
  };

  const doneAtOnce = (effect: JudgeEffect): boolean => {
    switch (effect.kind) {
      case 'look':
        if (effect.when === 'soon') pace.soon();
        else pace.at(effect.when);
        return true;
      case 'show': {
        const { view } = board.now;
        const { verdict } = effect;
        board.update({ verdict, view: view === null ? null : withVerdict(view, verdict) });
        return true;
      }
      case 'show-due':
        board.update({ pendingRestart: effect.due });
        return true;
      case 'count-restart':
        board.count('restarts');
        return true;
      case 'write':
        record.write(effect.message);
        return true;
      case 'say':
        record.say(effect.text);
        return true;
      default:
        return false;
    }
  };

  const answerTo = async (effect: JudgeEffect): Promise<JudgeEvent | null> => {
    switch (effect.kind) {
      case 'confirm': {
        const ending = new AbortController();
        if (awaited.length === 0) unasked = ending;
        try {
          const seen = await confirm(null, AbortSignal.any([signal, ending.signal]));
          return { kind: 'judged', ...seen, start: await startNow(), now: steadyNow() };
        } catch (error) {
          if (ending.signal.aborted) return null;
          throw error;
        } finally {
          unasked = null;
        }
      }
      case 'ask-serving': {
        await look();
        const busy = unit?.kind === 'loaded' ? await effects.serving(unit) : null;
        return signal.aborted ? null : { kind: 'serving', busy, now: steadyNow() };
      }
      case 'restart':
        await restart(effect.reason, effect.cause);
        return null;
      default:
        return null;
    }
  };

  const restart = async (reason: string, cause: string): Promise<void> => {
    if (unit === null || signal.aborted) return;
    const mark = await work.mark(unit, signal);
    try {
      if (cause === 'preferred') effects.moveBack();
      const result = await effects.restart(profile.unit);
      await handle({ kind: 'restarted', result, reason, cause, start: await startNow() });
      await handle({ kind: 'judged-again', ...(await confirm(mark)), now: steadyNow() });
    } finally {
      mark.looking.stop();
    }
  };

  const run = async (): Promise<void> => {
    awaited = asked.splice(0);
    try {
      unit = await work.unit(profile.unit);
      const seen: Seen = board.now.phase === 'idle' ? 'idle' : seenOf(unit);
      await handle({ kind: 'seen', seen, rules: rulesOf(effects.desired()), now: steadyNow() });
    } catch (error) {
      if (signal.aborted) return;
      record.say(`cannot judge: ${messageOf(error)}`);
      pace.at(steadyNow() + failurePauseMs);
    } finally {
      settle();
    }
  };
  const pace = pacer(run, signal);
  void keepLooking();

  return {
    /** The keeper's result: `settled` with the facts of its inspection. */
    settled(next: MachineFacts, outdated: string | null): void {
      facts = next;
      step({ kind: 'settled', outdated, start: startOf(next.unit) });
    },
    tell: (event: JudgeEvent): void => void step(event),
    /** A new verdict about the present start. Does not wait for a resulting restart. */
    async verify(): Promise<Verdict | null> {
      step({ kind: 'doubt' });
      const judged = new Promise<void>((resolve) => asked.push(resolve));
      unasked?.abort();
      pace.now();
      await judged;
      return shownVerdict(state);
    },
    restartNow(): string | null {
      const due = state.pending?.reason ?? null;
      step({ kind: 'restart-now' });
      return due;
    },
    quiet: pace.quiet,
  };
}

function startOf(unit: UnitFacts): Start | null {
  return unit.kind === 'loaded' ? { invocationId: unit.invocationId, activeState: unit.activeState } : null;
}

function liveOf({ present, ...known }: Observation): LiveSeen {
  const sessions = liveSessions(present);
  if (sessions === null) {
    const message = present.sessions.kind === 'unknown' ? present.sessions.message : 'it was not asked';
    return { kind: 'unknown', message };
  }
  const launches = sessions.reduce((sum, one) => sum + one.launches, 0);
  const works = presentOf({ ...known, present }).kind === 'works';
  return { kind: 'told', sessions: sessions.length, launches, works };
}

function seenOf(unit: UnitFacts): Seen {
  if (unit.kind !== 'loaded') return 'absent';
  const { invocationId, activeState, subState, traced = false } = unit;
  return { invocationId, activeState, traced, ended: subState.startsWith('auto-restart') };
}

function rulesOf({ config: { restart } }: DesiredOne): RestartRules {
  const { enabled, whileServing, busy, idleSeconds, perHour, minimumSeconds } = restart;
  const idleMs = idleSeconds * 1000;
  return {
    enabled,
    whileServing,
    busy,
    idleMs,
    limits: { perHour, backoffMs: 5_000, minimumMs: minimumSeconds * 1000 },
  };
}
