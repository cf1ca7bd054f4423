/** Decides restarts of the consumer: once for each cause, within limits, and not while it serves requests. Pure. */

import type { Reason, Verdict } from '../../contracts/verdict.js';
import { plural } from '../../lib/text.js';
import type { JournalMessage } from '../../systemd/journal-writer.js';
import { mayDo, noted } from '../limiter.js';
import {
  after,
  type JudgeEffect,
  type JudgeEvent,
  type JudgeState,
  type Next,
  type Pending,
  type Start,
} from './state.js';

/** Reasons that a restart corrects if the machine is correct now, because the program looked too early. */
const repairedByRestart: ReadonlySet<Reason | null> = new Set<Reason | null>([
  'consumer-not-restarted',
  'probe-disagrees',
  'host-unreachable',
  'model-on-cpu',
]);
/** A restart repairs these if the probe now finds the GPU: the host may have been killed during discovery. */
const repairedIfProbed: ReadonlySet<Reason | null> = new Set<Reason | null>([
  'no-device',
  'driver-init-failed',
  'compute-capability-unreadable',
  'discovery-timeout',
  'probe-crashed',
]);
/** The return of the host does not end these reasons, because their cause is in the guest. */
const causedByGuest: ReadonlySet<Reason | null> = new Set<Reason | null>([
  'driver-too-old',
  'driver-library-mismatch',
  'library-symbol-missing',
  'architecture-not-compiled',
  'devices-hidden-by-environment',
  'library-forced-to-cpu',
  'shim-not-loaded',
  'foreign-library-loaded',
  'library-not-found',
  'preload-ignored',
  'environment-removed',
  'transport-blocked-by-sandbox',
  'not-cuda',
  'unit-failed',
  'unit-restarting',
]);

export function decide(before: JudgeState, now: number): Next {
  return after(withoutMoot(wish(before)), (state) => decideOn(state, now));
}

/** Removes reasons for a restart that no longer hold; a later one is tried again. */
export function withoutMoot(state: JudgeState): Next {
  const past = state.verdict?.mode === 'gpu' || state.live?.works === true;
  if (state.pending?.cause !== 'found' || !past) return { state, effects: [] };
  return dropped({ ...state, triedFor: null });
}

function decideOn(state: JudgeState, now: number): Next {
  const { pending, judged: start, rules } = state;
  if (pending === null || start === null) return { state, effects: [] };
  if (start.activeState !== 'active') return dropped(state);
  if (pending.asked === true) return begin(state, pending, now);
  if (!rules.enabled) return wait(state, pending, 'restarts are switched off in agent.json');
  if (state.lost !== null && pending.cause !== 'outdated') {
    return wait(state, pending, 'the host does not answer');
  }
  const permission = mayDo(state.restarts, rules.limits, [pending.cause], now);
  if (permission.kind !== 'now') {
    const until = new Date(permission.at).toISOString();
    const why =
      permission.kind === 'later'
        ? 'the last restart was a moment ago'
        : `the limit of ${plural(permission.times, 'restart')} in an hour is reached`;
    const waits = wait(state, pending, `${why}; not before ${until}`);
    return { ...waits, effects: [{ kind: 'look', when: permission.at }, ...waits.effects] };
  }
  return { state, effects: [{ kind: 'ask-serving' }] };
}

/** Handles the answer of `ask-serving`. It follows a look, so the host's sessions are current. */
export function serving(state: JudgeState, busy: string | null, now: number): Next {
  const { pending, rules } = state;
  if (pending === null) return { state, effects: [] };
  if (busy !== null && !rules.whileServing) return wait(state, pending, `it serves requests: ${busy}`);
  const live = pending.cause === 'host' || rules.busy ? null : liveText(state, now);
  return live === null ? begin(state, pending, now) : wait(state, pending, live);
}

function liveText({ live, unit, rules }: JudgeState, now: number): string | null {
  if (live === null || live.sessions === 0 || now - live.changedAt >= rules.idleMs) return null;
  const sessions = live.sessions === 1 ? 'a live session' : `${live.sessions} live sessions`;
  return `the host has ${sessions} of ${unit}; sudo vgpu-agent restart ends it and makes the restart now`;
}

/** Was the last restart made for the same reason, and does the start after it have the same fault? */
export function isTried(state: JudgeState, outdated: string, start: Start | null): boolean {
  const { triedOutdated: tried, ownStart, restarting } = state;
  if (tried === null || start === null || tried.reason !== nameless(outdated)) return false;
  if (start.invocationId === tried.invocationId) return false;
  return tried.inVain || restarting || start.invocationId === ownStart;
}

function nameless(reason: string): string {
  return reason.replace(/\d+/g, '');
}

function begin(state: JudgeState, { cause, reason, invocationId }: Pending, now: number): Next {
  const restarts = noted(state.restarts, state.rules.limits, [cause], now);
  const triedOutdated =
    cause === 'outdated' ? { reason: nameless(reason), invocationId, inVain: false } : state.triedOutdated;
  // Only a restart for the preferred host moves there. After another restart the offer remains.
  const preferred = cause === 'preferred' ? null : state.preferred;
  return after(dropped({ ...state, restarts, triedOutdated, preferred, restarting: true }), (next) => ({
    state: next,
    effects: [{ kind: 'restart', reason, cause }],
  }));
}

export function restarted(state: JudgeState, event: Extract<JudgeEvent, { kind: 'restarted' }>): Next {
  const { profile, unit } = state;
  const text = `restarted (${event.result}): ${event.reason}`;
  const fields = { CAUSE: event.cause };
  return {
    state: {
      ...state,
      doubted: false,
      judged: event.start ?? state.judged,
      restarting: false,
      live: null,
      stale: null,
      ownStart: event.start?.invocationId ?? null,
    },
    effects: [
      { kind: 'count-restart' },
      { kind: 'write', message: { kind: 'consumerRestarted', profile, unit, text, fields } },
    ],
  };
}

/** The state with the restart that verdict and host require; only a running consumer is restarted. */
function wish(state: JudgeState): JudgeState {
  const { judged: start, verdict } = state;
  if (start === null || start.activeState !== 'active') return state;
  const { invocationId } = start;
  const survived = state.survivor !== null && state.survivor === invocationId;
  const next = { ...state, survivor: null };
  if (survived && !causedByGuest.has(verdict?.reason ?? null)) {
    const reason =
      state.movedTo === null
        ? 'the host answers again, and the sessions from before are lost'
        : `the host in use is ${state.movedTo} now, and the sessions at the former host are lost`;
    return { ...next, pending: { cause: 'host', reason, invocationId } };
  }
  if (next.pending === null && next.preferred !== null && next.lost === null) {
    const reason = `the preferred host ${next.preferred} answers again`;
    return { ...next, pending: { cause: 'preferred', reason, invocationId } };
  }
  if (next.pending !== null || verdict === null || verdict.mode === 'gpu' || next.lost !== null) return next;
  // Its kernels run at the host, so a restart is useless.
  if (next.live?.works === true) return next;
  // Do not repeat a restart that changed nothing for the same finding.
  if (!isRepairedByRestart(verdict) || next.triedFor === verdict.reason) return next;
  const pending: Pending = { cause: 'found', reason: verdict.summary, invocationId };
  return { ...next, triedFor: verdict.reason, pending };
}

function isRepairedByRestart({ reason, evidence }: Verdict): boolean {
  const isProbed = evidence.some(({ kind, weight }) => kind === 'probe' && weight === 'for');
  return repairedByRestart.has(reason) || (isProbed && repairedIfProbed.has(reason));
}

export function dropped(state: JudgeState): Next {
  if (state.pending === null && state.toldPending === '') return { state, effects: [] };
  return {
    state: { ...state, pending: null, toldPending: '' },
    effects: [{ kind: 'show-due', due: null }],
  };
}

/** Reports the reason for waiting once, even if it is checked often. */
function wait(state: JudgeState, { cause, reason }: Pending, waitsFor: string): Next {
  const { profile, unit } = state;
  const effects: JudgeEffect[] = [{ kind: 'show-due', due: { reason, waitsFor } }];
  const toldPending = `${cause} ${waitsFor.replace(/\d+/g, '')}`;
  if (toldPending === state.toldPending) return { state, effects };
  const text = `a restart is due (${reason}) and waits: ${waitsFor}`;
  const message: JournalMessage = { kind: 'restartDeferred', profile, unit, text, fields: { CAUSE: cause } };
  return { state: { ...state, toldPending }, effects: [...effects, { kind: 'write', message }] };
}
