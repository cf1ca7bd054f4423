/**
 * Keeps the verdict true: carries out what machine.ts decides. One task at a time, as the keeper.
 */
import type { MachineFacts } from '../../contracts/facts.js';
import type { LoadedUnit, UnitFacts } from '../../contracts/unit.js';
import type { Verdict } from '../../contracts/verdict.js';
import { withVerdict } from '../../install/pipeline/status-view.js';
import type { Mark, Workplace } from '../../install/pipeline/workplace.js';
import type { ConsumerBoard } from '../board.js';
import { steadyNow } from '../clock.js';
import type { DesiredOne } from '../desired.js';
import type { HostEvent } from '../helper.js';
import { pacer } from '../pacer.js';
import type { Record } from '../record.js';
import { judgeNext } from './machine.js';
import { shownVerdict } from './shown.js';
import {
  beginJudging,
  type JudgeEffect,
  type JudgeEvent,
  type RestartRules,
  type Seen,
  type Start,
} from './state.js';

export interface JudgeEffects {
  readonly work: Workplace;
  readonly board: ConsumerBoard;
  readonly record: Record;
  readonly desired: () => DesiredOne;
  /** The requests that the consumer serves now; null: none. */
  readonly serving: (unit: LoadedUnit) => Promise<string | null>;
  /** systemctl restart; resolves with the job's result. */
  readonly restart: (unit: string) => Promise<string>;
  readonly signal: AbortSignal;
}

export interface Judge {
  /** The files are as they shall be (or cannot be helped now). `outdated`: why the consumer runs with former ones. */
  settled(facts: MachineFacts, outdated: string | null): void;
  /** The unit may have been started, stopped or restarted. */
  unitChanged(): void;
  /** Judge again although the start is the same: its log said something, or a machine woke up. */
  doubt(): void;
  host(event: HostEvent): void;
  /** From now on the consumer may be restarted: at boot it waits for us. */
  ready(): void;
  /** Tries again, if it is time, an action that was not possible before. */
  tick(): void;
  /** Forgets limits. */
  retry(): void;
  /** A new verdict about the present start. */
  verify(): Promise<Verdict | null>;
  quiet(): Promise<void>;
}

/** After a failure of our own the next look is so much later. */
const failurePauseMs = 10_000;

export function judge(effects: JudgeEffects): Judge {
  const { work, board, record, signal } = effects;
  const { profile } = effects.desired();
  let facts: MachineFacts | null = null;
  let state = beginJudging(profile.name, profile.unit, rulesOf(effects.desired()));

  /** The unit as it was looked at last. */
  let unit: UnitFacts | null = null;
  const startNow = async (): Promise<Start | null> => {
    unit = await work.unit(profile.unit);
    return startOf(unit);
  };

  const confirm = async (mark: Mark | null): Promise<Verdict> => {
    if (facts === null) throw new Error('a verdict was requested before the machine was inspected');
    return work.confirm({ profile, facts, mark, timeoutMs: null, signal }, () => {});
  };

  /** Steps the machine and carries out what it asks for; what that answers is the next event. */
  const handle = async (event: JudgeEvent): Promise<void> => {
    for (const effect of step(event)) {
      const answer = await answerTo(effect);
      if (answer !== null) await handle(answer);
    }
  };

  /** The part that takes no time is done at once; what is left has to be waited for. */
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
        const verdict = await confirm(null);
        return { kind: 'judged', verdict, start: await startNow(), now: steadyNow() };
      }
      case 'ask-serving': {
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
      const result = await effects.restart(profile.unit);
      await handle({ kind: 'restarted', result, reason, cause, start: await startNow() });
      await handle({ kind: 'judged-again', verdict: await confirm(mark) });
    } finally {
      mark.looking.stop();
    }
  };

  const run = async (): Promise<void> => {
    try {
      unit = await work.unit(profile.unit);
      const seen: Seen = board.now.phase === 'idle' ? 'idle' : seenOf(unit);
      await handle({ kind: 'seen', seen, rules: rulesOf(effects.desired()), now: steadyNow() });
    } catch (error) {
      if (signal.aborted) return;
      record.say(`cannot judge: ${error instanceof Error ? error.message : String(error)}`);
      pace.at(steadyNow() + failurePauseMs);
    }
  };
  const pace = pacer(run, signal);

  return {
    settled(next, outdated) {
      facts = next;
      step({ kind: 'settled', outdated, start: startOf(next.unit) });
    },
    unitChanged: () => void step({ kind: 'unit-changed' }),
    doubt: () => void step({ kind: 'doubt' }),
    host: (event) => void step({ kind: 'host', host: event, now: steadyNow() }),
    ready: () => void step({ kind: 'ready' }),
    tick: () => void step({ kind: 'tick' }),
    retry: () => void step({ kind: 'retry' }),
    async verify() {
      step({ kind: 'doubt' });
      pace.now();
      await pace.quiet();
      return shownVerdict(state);
    },
    quiet: () => pace.quiet(),
  };
}

function startOf(unit: UnitFacts): Start | null {
  return unit.kind === 'loaded' ? { invocationId: unit.invocationId, activeState: unit.activeState } : null;
}

function seenOf(unit: UnitFacts): Seen {
  if (unit.kind !== 'loaded') return 'absent';
  const { invocationId, activeState, traced = false } = unit;
  return { invocationId, activeState, traced };
}

function rulesOf({ config: { restart } }: DesiredOne): RestartRules {
  const { enabled, whileServing, perHour, minimumSeconds } = restart;
  return { enabled, whileServing, limits: { perHour, backoffMs: 5_000, minimumMs: minimumSeconds * 1000 } };
}
