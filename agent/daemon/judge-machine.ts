/**
 * What the judge decides: (state, event) -> state and effects. Pure: no clock, no bus, no file; `now` comes with the
 * events, in milliseconds. A consumer is restarted once for a cause, within limits, and not while it serves requests.
 */
import type { JournalMessage } from '../contracts/journal-messages.js';
import type { Reason, Verdict } from '../contracts/verdict.js';
import { modeText } from '../output/verdict-text.js';
import type { Due } from './board.js';
import type { HostEvent } from './helper.js';
import { type Done, type Limits, mayDo, noted, nothingDone } from './limiter.js';
import { lostVerdict, staleVerdict } from './lost-verdict.js';

/** A start of the consumer, and where it is in it. */
export interface Start {
  readonly invocationId: string | null;
  readonly activeState: string;
}

/** The consumer now; `idle`: nothing is installed for it, `absent`: systemd has no such unit. */
export type Seen = 'idle' | 'absent' | (Start & { readonly traced: boolean });

/** agent.json about restarts. */
export interface RestartRules {
  readonly enabled: boolean;
  readonly whileServing: boolean;
  readonly limits: Limits;
}

interface Pending {
  readonly cause: 'outdated' | 'host' | 'found';
  readonly reason: string;
  /** The start that it is about: another one needs no restart. */
  readonly invocationId: string | null;
}

export interface JudgeState {
  readonly profile: string;
  readonly unit: string;
  readonly rules: RestartRules;
  /** The files were looked at; the start that the consumer was in then. */
  readonly looked: { readonly invocationId: string | null } | null;
  /** The start that the verdict is about. */
  readonly judged: Start | null;
  readonly verdict: Verdict | null;
  readonly lost: { readonly since: number; readonly reason: string } | null;
  /** The start that lived through the host's absence: to be restarted. */
  readonly survivor: string | null;
  /** The same, as long as it lasts: what it said of itself is not true any more. */
  readonly tainted: readonly string[];
  readonly doubted: boolean;
  /** At boot the consumer waits for us: before that there is nothing to be judged. */
  readonly ready: boolean;
  /** One try for a verdict that a restart corrects, until something changes. */
  readonly triedFor: Reason | null;
  readonly pending: Pending | null;
  readonly toldPending: string;
  readonly written: string;
  readonly restarts: Done;
}

export type JudgeEvent =
  /** The files are as they shall be (or cannot be helped now). `outdated`: why the consumer runs with former ones. */
  | { readonly kind: 'settled'; readonly outdated: string | null; readonly start: Start | null }
  | { readonly kind: 'unit-changed' | 'doubt' | 'ready' | 'tick' | 'retry' }
  | { readonly kind: 'host'; readonly host: HostEvent; readonly now: number }
  /** The answer to `look`. */
  | { readonly kind: 'seen'; readonly seen: Seen; readonly rules: RestartRules; readonly now: number }
  /** The answer to `confirm`; `start` is what the unit is in after it. */
  | { readonly kind: 'judged'; readonly verdict: Verdict; readonly start: Start | null; readonly now: number }
  /** The answer to `ask-serving`; null: it may be restarted. */
  | { readonly kind: 'serving'; readonly busy: string | null; readonly now: number }
  /** Of `restart`: systemd is done with it, and later the verdict about the new start. */
  | {
      readonly kind: 'restarted';
      readonly result: string;
      readonly reason: string;
      readonly cause: string;
      readonly start: Start | null;
    }
  | { readonly kind: 'judged-again'; readonly verdict: Verdict };

export type JudgeEffect =
  /** Look at the unit; at a time (milliseconds) if it is a number. */
  | { readonly kind: 'look'; readonly when: 'soon' | number }
  | { readonly kind: 'confirm' }
  | { readonly kind: 'ask-serving' }
  | { readonly kind: 'restart'; readonly reason: string; readonly cause: string }
  | { readonly kind: 'show'; readonly verdict: Verdict | null }
  | { readonly kind: 'show-due'; readonly due: Due | null }
  | { readonly kind: 'count-restart' }
  | { readonly kind: 'write'; readonly message: JournalMessage }
  | { readonly kind: 'say'; readonly text: string };

export interface Next {
  readonly state: JudgeState;
  readonly effects: readonly JudgeEffect[];
}

/** Reasons that a restart corrects when the machine is right now: what the program looked for came later. */
const repairedByRestart: ReadonlySet<Reason | null> = new Set<Reason | null>([
  'consumer-not-restarted',
  'probe-disagrees',
  'host-unreachable',
  'model-on-cpu',
]);
/** Reasons that are the host's: with it back, they are past. */
const hostReasons: ReadonlySet<Reason | null> = new Set<Reason | null>([
  null,
  ...repairedByRestart,
  'host-slow',
  // Its session ended with the host, so it has launched nothing: that looks as if it were still loading.
  'no-work-yet',
  'host-foreign',
  'host-version',
  'no-device',
  'discovery-timeout',
  'memory-round-trip-failed',
]);
/** A shorter freeze than this outlives every call of the shim (VGPU_CALL_LIMIT_MS): no session is lost by it. */
export const freezeMs = 10_000;
const frozen = 'no answer within the limit';

export function beginJudging(profile: string, unit: string, rules: RestartRules): JudgeState {
  return {
    profile,
    unit,
    rules,
    looked: null,
    judged: null,
    verdict: null,
    lost: null,
    survivor: null,
    tainted: [],
    doubted: false,
    ready: false,
    triedFor: null,
    pending: null,
    toldPending: '',
    written: '',
    restarts: nothingDone,
  };
}

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
      return { state: { ...state, restarts: nothingDone, triedFor: null, doubted: true }, effects: [soon] };
    case 'host':
      return host(state, event.host, event.now);
    case 'seen':
      return seen({ ...state, rules: event.rules }, event.seen, event.now);
    case 'judged':
      return judged(state, event.verdict, event.start, event.now);
    case 'serving':
      return serving(state, event.busy, event.now);
    case 'restarted':
      return restarted(state, event);
    case 'judged-again': {
      const shown = show({ ...state, verdict: event.verdict });
      const text = `${state.unit} after the restart: ${modeText(event.verdict)}`;
      // It may have changed again meanwhile.
      return { ...shown, effects: [...shown.effects, { kind: 'say', text }, soon] };
    }
  }
}

/** What the consumer said of a start that lost its host is not true any more, even when the host is back. */
export function shownVerdict({ verdict, lost, tainted }: JudgeState): Verdict | null {
  if (verdict === null) return null;
  if (lost !== null) return lostVerdict(verdict, lost.reason);
  return verdict.invocationId !== null && tainted.includes(verdict.invocationId)
    ? staleVerdict(verdict)
    : verdict;
}

/** Shows the verdict, and writes it to the journal when it is another than the last that was written. */
function show(state: JudgeState): Next {
  const verdict = shownVerdict(state);
  const effects: JudgeEffect[] = [{ kind: 'show', verdict }];
  if (verdict === null) return { state, effects };
  const written = [verdict.mode, verdict.reason, verdict.simulated, verdict.invocationId].join();
  if (written === state.written) return { state, effects };
  return {
    state: { ...state, written },
    effects: [...effects, { kind: 'write', message: { kind: 'verdict', verdict } }],
  };
}

function settled(state: JudgeState, outdated: string | null, start: Start | null): Next {
  const looked = { invocationId: start?.invocationId ?? null };
  const due = outdated !== null && start?.activeState === 'active' && state.pending === null;
  const pending: Pending | null = due
    ? { cause: 'outdated', reason: outdated, invocationId: start.invocationId }
    : state.pending;
  return { state: { ...state, looked, pending }, effects: [soon] };
}

function host(state: JudgeState, event: HostEvent, now: number): Next {
  if (event.kind === 'down') return show({ ...state, lost: { since: now, reason: event.reason } });
  const away = state.lost;
  if (away === null) return { state, effects: [soon] };
  const short = away.reason === frozen && now - away.since < freezeMs;
  const survivor = short
    ? state.survivor
    : (state.judged?.invocationId ?? state.looked?.invocationId ?? null);
  // A start that began while the host was away may be judged already: what is shown is still of the one before.
  const lived = [survivor, state.verdict?.invocationId ?? null].filter((id) => id !== null);
  const tainted = short ? state.tainted : lived;
  const shown = show({ ...state, lost: null, survivor, tainted, doubted: true, triedFor: null });
  return { ...shown, effects: [...shown.effects, soon] };
}

function seen(state: JudgeState, now: Seen, at: number): Next {
  if (state.looked === null || !state.ready) return { state, effects: [] };
  if (now === 'idle') return after(dropped({ ...state, verdict: null }), show);
  if (now === 'absent') return show({ ...state, verdict: null });
  // On its way somewhere: systemd tells when it is there. A start that a doctor traces is followed by another.
  if (now.traced || now.activeState === 'activating' || now.activeState === 'deactivating') {
    return { state, effects: [] };
  }
  const { invocationId, activeState } = now;
  const begun =
    state.pending !== null && state.pending.invocationId !== invocationId
      ? dropped(state)
      : { state, effects: [] };
  return after(begun, (known) => {
    const same = known.judged?.invocationId === invocationId && known.judged.activeState === activeState;
    // It is restarted anyway, if it may be.
    const marked = known.survivor !== null && known.survivor === invocationId;
    const survived = same && (marked || known.pending?.cause === 'host');
    if (same && (!known.doubted || survived)) return decide(known, at);
    const triedFor = !same && known.judged !== null ? null : known.triedFor;
    const next = { ...known, triedFor, doubted: false, judged: { invocationId, activeState } };
    // While the host is away there is nothing new to be seen of a start that was judged before.
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

/** Is there a reason to restart the start that was judged, and may it be done? */
function decide(before: JudgeState, now: number): Next {
  const state = wish(before);
  const { pending, judged: start, rules } = state;
  if (pending === null || start === null) return { state, effects: [] };
  if (start.activeState !== 'active') return dropped(state);
  if (!rules.enabled) return wait(state, pending, 'restarts are switched off in agent.json');
  if (state.lost !== null && pending.cause !== 'outdated') {
    return wait(state, pending, 'the host does not answer');
  }
  const permission = mayDo(state.restarts, rules.limits, [pending.cause], now);
  if (permission.kind !== 'now') {
    const until = new Date(permission.at).toISOString();
    const why =
      permission.kind === 'later'
        ? 'the last restart was just now'
        : `${permission.times} restarts within an hour are the limit`;
    const waits = wait(state, pending, `${why}; not before ${until}`);
    return { ...waits, effects: [{ kind: 'look', when: permission.at }, ...waits.effects] };
  }
  return rules.whileServing ? begin(state, pending, now) : { state, effects: [{ kind: 'ask-serving' }] };
}

function serving(state: JudgeState, busy: string | null, now: number): Next {
  const { pending } = state;
  if (pending === null) return { state, effects: [] };
  return busy === null ? begin(state, pending, now) : wait(state, pending, `it serves requests: ${busy}`);
}

function begin(state: JudgeState, { cause, reason }: Pending, now: number): Next {
  const restarts = noted(state.restarts, state.rules.limits, [cause], now);
  return after(dropped({ ...state, restarts }), (next) => ({
    state: next,
    effects: [{ kind: 'restart', reason, cause }],
  }));
}

function restarted(state: JudgeState, event: Extract<JudgeEvent, { kind: 'restarted' }>): Next {
  const { profile, unit } = state;
  const text = `restarted (${event.result}): ${event.reason}`;
  const fields = { CAUSE: event.cause };
  return {
    state: { ...state, doubted: false, judged: event.start ?? state.judged },
    effects: [
      { kind: 'count-restart' },
      { kind: 'write', message: { kind: 'consumerRestarted', profile, unit, text, fields } },
    ],
  };
}

/** The state with what the verdict and the host make necessary; only a consumer that runs is restarted. */
function wish(state: JudgeState): JudgeState {
  const { judged: start, verdict } = state;
  if (start === null || start.activeState !== 'active') return state;
  const { invocationId } = start;
  const survived = state.survivor !== null && state.survivor === invocationId;
  const next = { ...state, survivor: null };
  if (survived && (verdict === null || hostReasons.has(verdict.reason))) {
    const reason = 'the host is back, and what it had there before is lost';
    return { ...next, pending: { cause: 'host', reason, invocationId } };
  }
  if (next.pending !== null || verdict === null || verdict.mode === 'gpu' || next.lost !== null) return next;
  // A restart that changed nothing is not made again for the same finding.
  if (!repairedByRestart.has(verdict.reason) || next.triedFor === verdict.reason) return next;
  const pending: Pending = { cause: 'found', reason: verdict.summary, invocationId };
  return { ...next, triedFor: verdict.reason, pending };
}

function dropped(state: JudgeState): Next {
  if (state.pending === null && state.toldPending === '') return { state, effects: [] };
  return {
    state: { ...state, pending: null, toldPending: '' },
    effects: [{ kind: 'show-due', due: null }],
  };
}

/** What it waits for is told once, however often it is looked at. */
function wait(state: JudgeState, { cause, reason }: Pending, waitsFor: string): Next {
  const { profile, unit } = state;
  const effects: JudgeEffect[] = [{ kind: 'show-due', due: { reason, waitsFor } }];
  const toldPending = `${cause} ${waitsFor.replace(/\d+/g, '')}`;
  if (toldPending === state.toldPending) return { state, effects };
  const text = `a restart is due (${reason}) and waits: ${waitsFor}`;
  const message: JournalMessage = { kind: 'restartDeferred', profile, unit, text, fields: { CAUSE: cause } };
  return { state: { ...state, toldPending }, effects: [...effects, { kind: 'write', message }] };
}

function after({ state, effects }: Next, step: (state: JudgeState) => Next): Next {
  const next = step(state);
  return { state: next.state, effects: [...effects, ...next.effects] };
}
