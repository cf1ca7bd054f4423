/**
 * Keeps the verdict true and, when that needs it, restarts the consumer: once for a cause, within limits, and
 * not while it serves requests. One task at a time, as the keeper.
 */
import type { Reason, Verdict } from '../confirm/types.js';
import type { LoadedUnit, MachineFacts } from '../machine/types.js';
import { modeText } from '../output/verdict-text.js';
import type { Workplace } from '../pipeline/workplace.js';
import type { Board } from './board.js';
import type { Desired } from './desired.js';
import type { HostEvent } from './helper.js';
import { Limiter } from './limiter.js';
import { lostVerdict, staleVerdict } from './lost-verdict.js';
import { pacer } from './pacer.js';
import type { Record } from './record.js';

export interface JudgeEffects {
  readonly work: Workplace;
  readonly board: Board;
  readonly record: Record;
  readonly desired: () => Desired;
  /** What the consumer is doing for somebody now; null: nothing. */
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
  /** What could not be done before is tried again, if it is time. */
  tick(): void;
  /** Forgets limits. */
  retry(): void;
  /** A new verdict about the present start. */
  verify(): Promise<Verdict | null>;
  quiet(): Promise<void>;
}

interface Pending {
  readonly cause: 'outdated' | 'host' | 'found';
  readonly reason: string;
  /** The start that it is about: another one needs no restart. */
  readonly invocationId: string | null;
}

/** Reasons that a restart mends when the machine is right now: what the program looked for came later. */
const mendedByRestart: ReadonlySet<Reason | null> = new Set<Reason | null>([
  'consumer-not-restarted',
  'probe-disagrees',
  'host-unreachable',
]);
/** Reasons that are the host's: with it back, they are past. */
const hostReasons: ReadonlySet<Reason | null> = new Set<Reason | null>([
  null,
  ...mendedByRestart,
  'host-slow',
  'no-device',
  'discovery-timeout',
  'memory-round-trip-failed',
]);
/** A shorter freeze than this outlives every call of the shim (VGPU_CALL_LIMIT_MS): no session is lost by it. */
const freezeMs = 10_000;

export function judge(effects: JudgeEffects): Judge {
  const { work, board, record, signal } = effects;
  const limiter = new Limiter({ perHour: 1, backoffMs: 0, minimumMs: 0 });
  let facts: MachineFacts | null = null;
  let judged: { readonly invocationId: string | null; readonly activeState: string } | null = null;
  let verdict: Verdict | null = null;
  let lost: { readonly since: number; readonly reason: string } | null = null;
  /** The start that lived through the host's absence. */
  let survivor: string | null = null;
  let tainted: string | null = null;
  let doubted = false;
  let mayRestart = false;
  /** One try for a verdict that a restart mends, until something changes. */
  let triedFor: string | null = null;
  let pending: Pending | null = null;
  let toldPending = '';
  let written = '';

  /** What the consumer said of a start that lost its host is not true any more, even when the host is back. */
  const shownNow = (): Verdict | null => {
    if (verdict === null) return null;
    if (lost !== null) return lostVerdict(verdict, lost.reason);
    return tainted !== null && tainted === verdict.invocationId ? staleVerdict(verdict) : verdict;
  };

  const publish = (): void => {
    const shown = shownNow();
    const { view } = board.now;
    board.update({ verdict: shown, view: view === null ? null : { ...view, verdict: shown } });
    if (shown === null) return;
    const key = [shown.mode, shown.reason, shown.simulated, shown.invocationId].join();
    if (key === written) return;
    written = key;
    record.write({ kind: 'verdict', verdict: shown });
  };

  const confirm = async (mark: Parameters<Workplace['confirm']>[0]['mark']): Promise<void> => {
    if (facts === null) return;
    const { profile } = effects.desired();
    const request = { profile, facts, mark, timeoutMs: null, signal };
    verdict = await work.confirm(request, () => {});
    publish();
  };

  const run = async (): Promise<void> => {
    // At boot the consumer waits for us: before that there is nothing to be judged.
    if (facts === null || !mayRestart) return;
    const { config, profile } = effects.desired();
    limiter.limits = {
      perHour: config.restart.perHour,
      backoffMs: 5_000,
      minimumMs: config.restart.minimumSeconds * 1000,
    };
    if (board.now.phase === 'idle') {
      verdict = null;
      pending = null;
      publish();
      return;
    }
    const unit = await work.unit(profile.unit);
    if (unit.kind !== 'loaded') {
      verdict = null;
      publish();
      return;
    }
    // On its way somewhere: systemd tells when it is there. A start that a doctor traces is followed by another.
    if (unit.traced === true) return;
    if (unit.activeState === 'activating' || unit.activeState === 'deactivating') return;
    if (pending !== null && pending.invocationId !== unit.invocationId) drop();
    const { invocationId, activeState } = unit;
    const same = judged?.invocationId === invocationId && judged.activeState === activeState;
    // It is restarted anyway, if it may be.
    const survived = same && survivor !== null && survivor === invocationId;
    if (!same || (doubted && !survived)) {
      if (!same && judged !== null) triedFor = null;
      doubted = false;
      judged = { invocationId, activeState };
      // While the host is away there is nothing new to be seen of a start that was judged before.
      if (!same || lost === null) await confirm(null);
      const now = await work.unit(profile.unit);
      if (now.kind !== 'loaded' || now.invocationId !== invocationId) {
        pace.soon();
        return;
      }
    }
    wish(unit);
    if (pending !== null) await restart(unit, pending);
  };

  /** Is there a reason to restart it? */
  const wish = (unit: LoadedUnit): void => {
    const { invocationId } = unit;
    if (unit.activeState !== 'active') return;
    if (survivor !== null) {
      const survived = survivor === invocationId;
      survivor = null;
      if (!survived) {
        wish(unit);
        return;
      }
      if (verdict === null || hostReasons.has(verdict.reason)) {
        pending = {
          cause: 'host',
          reason: 'the host is back, and what it had there before is lost',
          invocationId,
        };
      }
    }
    if (pending !== null || verdict === null || verdict.mode === 'gpu' || lost !== null) return;
    if (!mendedByRestart.has(verdict.reason)) return;
    // A restart that changed nothing is not made again for the same finding.
    if (triedFor === verdict.reason) return;
    triedFor = verdict.reason;
    pending = { cause: 'found', reason: verdict.summary, invocationId };
  };

  const drop = (): void => {
    pending = null;
    toldPending = '';
    board.update({ pendingRestart: null });
  };

  const wait = (due: Pending, waitsFor: string): void => {
    board.update({ pendingRestart: { reason: due.reason, waitsFor } });
    const key = `${due.cause} ${waitsFor.replace(/\d+/g, '')}`;
    if (key === toldPending) return;
    toldPending = key;
    const { profile } = effects.desired();
    record.write({
      kind: 'restartDeferred',
      profile: profile.name,
      unit: profile.unit,
      text: `a restart is due (${due.reason}) and waits: ${waitsFor}`,
      fields: { CAUSE: due.cause },
    });
  };

  const restart = async (unit: LoadedUnit, due: Pending): Promise<void> => {
    const { config, profile } = effects.desired();
    if (unit.activeState !== 'active') {
      drop();
      return;
    }
    if (!config.restart.enabled) {
      wait(due, 'restarts are switched off in agent.json');
      return;
    }
    if (lost !== null && due.cause !== 'outdated') {
      wait(due, 'the host does not answer');
      return;
    }
    const permission = limiter.ask([due.cause], Date.now());
    if (permission.kind !== 'now') {
      pace.at(permission.at);
      const until = new Date(permission.at).toISOString();
      const why =
        permission.kind === 'later'
          ? 'the last restart was just now'
          : `${permission.times} restarts within an hour are the limit`;
      wait(due, `${why}; not before ${until}`);
      return;
    }
    const busy = config.restart.whileServing ? null : await effects.serving(unit);
    if (busy !== null) {
      wait(due, `it serves requests: ${busy}`);
      return;
    }
    if (signal.aborted) return;
    limiter.note([due.cause], Date.now());
    drop();
    const mark = await work.mark(unit, signal);
    try {
      const result = await effects.restart(profile.unit);
      board.count('restarts');
      record.write({
        kind: 'consumerRestarted',
        profile: profile.name,
        unit: profile.unit,
        text: `restarted (${result}): ${due.reason}`,
        fields: { CAUSE: due.cause },
      });
      const now = await work.unit(profile.unit);
      if (now.kind === 'loaded') judged = { invocationId: now.invocationId, activeState: now.activeState };
      doubted = false;
      await confirm(mark);
    } finally {
      mark.looking.stop();
    }
    const after = verdict === null ? '' : modeText(verdict);
    record.say(`${profile.unit} after the restart: ${after}`);
    // It may have changed again meanwhile.
    pace.soon();
  };

  const safeRun = async (): Promise<void> => {
    try {
      await run();
    } catch (error) {
      if (signal.aborted) return;
      record.say(`cannot judge: ${error instanceof Error ? error.message : String(error)}`);
      pace.at(Date.now() + 10_000);
    }
  };
  const pace = pacer(safeRun, signal);

  return {
    settled(next, outdated) {
      facts = next;
      if (
        outdated !== null &&
        next.unit.kind === 'loaded' &&
        next.unit.activeState === 'active' &&
        pending === null
      ) {
        pending = { cause: 'outdated', reason: outdated, invocationId: next.unit.invocationId };
      }
      pace.soon();
    },
    unitChanged: () => pace.soon(),
    doubt() {
      doubted = true;
      pace.soon();
    },
    host(event) {
      const { host } = board.now;
      const { profile } = effects.desired();
      if (event.kind === 'up') {
        const since = lost?.since ?? null;
        const short =
          since !== null && lost?.reason === 'no answer within the limit' && Date.now() - since < freezeMs;
        lost = null;
        board.update({ host: { ...host, answers: true, simulated: event.simulated, detail: event.device } });
        if (since !== null) {
          const seconds = ((Date.now() - since) / 1000).toFixed(1);
          record.write({
            kind: 'hostBack',
            profile: profile.name,
            unit: null,
            text: `the host at ${host.endpoint} answers again after ${seconds} s: ${event.device}`,
            fields: { ENDPOINT: host.endpoint, SECONDS: seconds },
          });
          const now = facts?.unit.kind === 'loaded' ? facts.unit.invocationId : null;
          if (!short) {
            survivor = judged?.invocationId ?? now;
            tainted = survivor;
          }
          doubted = true;
          triedFor = null;
          publish();
        }
        pace.soon();
        return;
      }
      lost = { since: Date.now(), reason: event.reason };
      board.count('hostLosses');
      board.update({ host: { ...host, answers: false, detail: event.reason } });
      record.write({
        kind: 'hostLost',
        profile: profile.name,
        unit: null,
        text: `the host at ${host.endpoint} does not answer: ${event.reason}`,
        fields: { ENDPOINT: host.endpoint },
      });
      publish();
    },
    ready() {
      mayRestart = true;
      pace.soon();
    },
    tick() {
      if (pending !== null) pace.soon();
    },
    retry() {
      limiter.reset();
      triedFor = null;
      doubted = true;
      pace.soon();
    },
    async verify() {
      doubted = true;
      pace.now();
      await pace.quiet();
      return board.now.verdict;
    },
    quiet: () => pace.quiet(),
  };
}
