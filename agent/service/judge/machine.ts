/**
 * The judge's decisions: (state, event) -> state and effects. Pure: no clock, no bus, no file; `now` comes with the
 * events, in milliseconds.
 */
import type { Reason, Verdict } from '../../contracts/verdict.js';
import { freshMs } from '../../install/pipeline/status-view.js';
import { modeText } from '../../lib/text.js';
import type { HostEvent } from '../helper.js';
import { nothingDone } from '../limiter.js';
import { decide, dropped, isTried, restarted, serving, withoutMoot } from './restart.js';
import { show } from './shown.js';
import {
  after,
  type JudgeEffect,
  type JudgeEvent,
  type JudgeState,
  type LiveSeen,
  type Next,
  type Pending,
  type Seen,
  type Start,
} from './state.js';

/** A shorter freeze loses no session, because the shim's calls wait longer (VGPU_CALL_LIMIT_MS). */
export const freezeMs = 10_000;
const frozen = 'no answer within the limit';

const soon: JudgeEffect = { kind: 'look', when: 'soon' };

export function judgeNext(state: JudgeState, event: JudgeEvent): Next {
  switch (event.kind) {
    case 'settled':
      return settled(state, event.outdated, event.start);
    case 'unit-changed':
      return { state, effects: [soon] };
    case 'doubt':
      return { state: { ...state, doubted: true }, effects: [soon] };
    case 'ready':
      return { state: { ...state, ready: true }, effects: [soon] };
    case 'tick':
      return { state, effects: state.pending === null ? [] : [soon] };
    case 'retry':
      return {
        state: { ...state, restarts: nothingDone, triedFor: null, triedOutdated: null, doubted: true },
        effects: [soon],
      };
    case 'host':
      return host(state, event.host, event.movedTo ?? null, event.now);
    case 'preferred': {
      const known = { ...state, preferred: event.endpoint };
      const withdrawn = event.endpoint === null && state.pending?.cause === 'preferred';
      return after(withdrawn ? dropped(known) : { state: known, effects: [] }, (next) => ({
        state: next,
        effects: [soon],
      }));
    }
    case 'seen':
      return seen({ ...state, rules: event.rules }, event.seen, event.now);
    case 'judged':
      return judged(withLive(state, event.live, event.now), event.verdict, event.start, event.now);
    case 'looked':
      return looked(state, event);
    case 'restart-now':
      if (state.pending === null) return { state, effects: [] };
      return { state: { ...state, pending: { ...state.pending, asked: true } }, effects: [soon] };
    case 'serving':
      return serving(state, event.busy, event.now);
    case 'restarted':
      return restarted(state, event);
    case 'judged-again': {
      const shown = show({ ...withLive(state, event.live, event.now), verdict: event.verdict });
      const text = `${state.unit} after the restart: ${modeText(event.verdict)}`;
      // It may have changed again meanwhile.
      return { ...shown, effects: [...shown.effects, { kind: 'say', text }, soon] };
    }
  }
}

function settled(state: JudgeState, outdated: string | null, start: Start | null): Next {
  const looked = { invocationId: start?.invocationId ?? null };
  const isDue = outdated !== null && !isTried(state, outdated, start);
  const due = isDue && start?.activeState === 'active' && state.pending === null;
  const pending: Pending | null = due
    ? { cause: 'outdated', reason: outdated, invocationId: start.invocationId }
    : state.pending;
  const inVain = outdated !== null && !isDue && start?.invocationId === state.ownStart;
  const triedOutdated =
    inVain && state.triedOutdated !== null ? { ...state.triedOutdated, inVain } : state.triedOutdated;
  return { state: { ...state, looked, pending, triedOutdated }, effects: [soon] };
}

function host(before: JudgeState, event: HostEvent, movedTo: string | null, now: number): Next {
  if (event.kind === 'down') return show({ ...before, lost: { since: now, reason: event.reason } });
  const preferred = movedTo === null || movedTo === before.preferred ? before.preferred : null;
  const state = { ...before, preferred };
  const away = state.lost;
  if (away === null) return { state, effects: [soon] };
  const short = away.reason === frozen && now - away.since < freezeMs && movedTo === null;
  const survivor = short
    ? state.survivor
    : (state.judged?.invocationId ?? state.looked?.invocationId ?? null);
  // A start that began while the host was away may be judged already, but the verdict shown is of the previous start.
  const lived = [survivor, state.verdict?.invocationId ?? null].filter((id) => id !== null);
  const tainted = short ? state.tainted : lived;
  const shown = show({ ...state, lost: null, movedTo, survivor, tainted, doubted: true, triedFor: null });
  return { ...shown, effects: [...shown.effects, soon] };
}

function seen(state: JudgeState, now: Seen, at: number): Next {
  if (state.looked === null || !state.ready) return { state, effects: [] };
  if (now === 'idle') return after(dropped({ ...state, verdict: null }), show);
  if (now === 'absent') return show({ ...state, verdict: null });
  if (now.ended === true) return show({ ...state, ended: true });
  // A job is running; systemd signals when it finishes. A start that a doctor traces is followed by another.
  if (now.traced || now.activeState === 'activating' || now.activeState === 'deactivating') {
    return { state, effects: [] };
  }
  const { invocationId, activeState } = now;
  const back = state.ended ? show({ ...state, ended: false }) : { state, effects: [] };
  return after(back, (known) => seenStart(known, { invocationId, activeState }, at));
}

function seenStart(state: JudgeState, { invocationId, activeState }: Start, at: number): Next {
  const begun =
    state.pending !== null && state.pending.invocationId !== invocationId
      ? dropped(state)
      : { state, effects: [] };
  return after(begun, (known) => {
    const same = known.judged?.invocationId === invocationId && known.judged.activeState === activeState;
    // The consumer is restarted anyway, if that is allowed.
    const marked = known.survivor !== null && known.survivor === invocationId;
    const survived = same && (marked || known.pending?.cause === 'host');
    if (same && (!known.doubted || survived)) return decide(known, at);
    const triedFor = !same && known.judged !== null ? null : known.triedFor;
    const live = same ? { live: known.live } : { live: null, stale: null, lookPauseMs: 0 };
    const next = { ...known, ...live, triedFor, doubted: false, judged: { invocationId, activeState } };
    // While the host is away, a start that was judged before has no new evidence.
    if (same && known.lost !== null) return decide(next, at);
    return { state: next, effects: [{ kind: 'confirm' }] };
  });
}

function judged(state: JudgeState, verdict: Verdict, start: Start | null, now: number): Next {
  return after(show({ ...state, verdict }), (known) =>
    start === null || start.invocationId !== known.judged?.invocationId
      ? { state: known, effects: [soon] }
      : decide(known, now),
  );
}

// Looks between two full verdicts: the newest evidence decides the verdict shown. Pure.

/** Shortest time between full verdicts that looks request, because each runs a probe. */
const lookDoubtMs = 30_000;
/** Longest such time. It doubles while verdicts are unanswered, because a journal may be too long to read each time. */
const longestDoubtMs = 3_600_000;
/** The journal or the host timed out, as on a busy machine: another full verdict may succeed. */
const unanswered: ReadonlySet<Reason | null> = new Set(['journal-unavailable', 'host-slow']);

/** The state with the host's answer. Earlier answers are kept until the next start. */
function withLive(state: JudgeState, seen: LiveSeen, now: number): JudgeState {
  const { live } = state;
  if (seen.kind === 'unknown') {
    // If the host never reported this start, for instance an old version, the log decides the verdict.
    const age = live === null ? 0 : now - live.toldAt;
    const stale = age <= freshMs ? null : `the host does not report its sessions: ${seen.message}`;
    return { ...state, stale };
  }
  const { sessions, launches, works } = seen;
  const same = live !== null && live.sessions === sessions && live.launches === launches;
  const changedAt = same ? live.changedAt : now;
  return { ...state, stale: null, live: { sessions, launches, works, toldAt: now, changedAt } };
}

function looked(before: JudgeState, event: Extract<JudgeEvent, { kind: 'looked' }>): Next {
  const { verdict, live, now } = event;
  const was = before.verdict;
  if (was === null || was.invocationId !== verdict.invocationId) return { state: before, effects: [] };
  const told = withLive(before, live, now);
  const works = live.kind === 'told' && live.works;
  const next = works ? recovered(told, verdict.invocationId) : { state: told, effects: [] };
  return after(next, (state) => {
    const shown = after(withoutMoot({ ...state, verdict }), show);
    const changed = was.mode !== verdict.mode || was.reason !== verdict.reason;
    const doubtful = changed || unanswered.has(verdict.reason);
    const pauseMs = changed ? 0 : state.lookPauseMs;
    if (!doubtful || now - state.lookDoubtedAt < Math.max(pauseMs, lookDoubtMs)) return shown;
    const lookPauseMs = pauseMs === 0 ? lookDoubtMs : Math.min(2 * pauseMs, longestDoubtMs);
    return {
      state: { ...shown.state, doubted: true, lookDoubtedAt: now, lookPauseMs },
      effects: [...shown.effects, { kind: 'look', when: 'soon' }],
    };
  });
}

/** The host runs the consumer's kernels: it has recovered without a restart. */
function recovered(state: JudgeState, invocationId: string | null): Next {
  const tainted = state.tainted.filter((id) => id !== invocationId);
  const survivor = state.survivor === invocationId ? null : state.survivor;
  const next = { ...state, tainted, survivor };
  return state.pending?.cause === 'host' ? dropped(next) : { state: next, effects: [] };
}
