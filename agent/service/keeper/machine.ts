/** The keeper's state, its input events and its effects. */
import { plural } from '../../lib/text.js';
import type { JournalMessage } from '../../systemd/journal-writer.js';
import type { Counters, Kind, Phase } from '../board.js';
import { type Done, type Limits, mayDo, noted, nothingDone } from '../limiter.js';

export type Found =
  /** A run was interrupted or is in progress; the lock shows which. */
  | { readonly kind: 'interrupted' }
  | { readonly kind: 'right' }
  | { readonly kind: 'refused'; readonly problem: string }
  | Drift;

export interface Drift {
  readonly kind: 'drift';
  readonly causes: readonly string[];
  readonly what: readonly string[];
}

export interface KeeperRules {
  readonly enabled: boolean;
  readonly limits: Limits;
}

export interface KeeperState {
  readonly profile: string;
  readonly unit: string;
  readonly rules: KeeperRules;
  /** A missing installation may be made. */
  readonly first: boolean;
  readonly failures: number;
  readonly toldDrift: string;
  readonly toldLimit: boolean;
  /** The time of the first event, for the duration of the repair. */
  readonly noticedAt: number | null;
  readonly repairs: Done;
}

export interface Repaired {
  readonly titles: readonly string[];
  readonly causes: readonly string[];
}

export type KeeperEvent =
  | Kind<'noticed', { first: boolean; soon: boolean; now: number }>
  | Kind<'retry', object>
  /**
   * The answer to `look`. `wanted`: it is installed, or agent.json declared it and `first` was so before the look. `busy`:
   * the package manager that ran before the inspection, which may have seen an intermediate state.
   */
  | Kind<'found', { found: Found; wanted: boolean; busy: string | null; rules: KeeperRules; now: number }>
  | Kind<'package-manager', { who: string | null; found: Found; now: number }>
  /** The answer to `wait-for-package-manager`; `tired`: it still runs after the longest wait. */
  | Kind<'package-manager-gone', { tired: boolean; found: Found; now: number }>
  /** The answers to `repair`; `did` is null if nothing was left to repair. */
  | Kind<'repaired', { did: Repaired | null; begun: number; now: number }>
  | Kind<'failed', { why: string; causes: readonly string[]; now: number }>;

export type KeeperEffect =
  | Kind<'look', { when: 'now' | 'soon' | number }>
  | Kind<'show', { phase: Phase; problem: string | null }>
  | Kind<'ask-package-manager' | 'wait-for-package-manager', { found: Found }>
  /** Carry out the plan. `interrupted`: first finish or undo an earlier run. `since`: time of the first event. */
  | Kind<'repair', { interrupted: boolean; since: number }>
  /** The judge's turn. `right`: the files are as installed. */
  | Kind<'settled', { right: boolean }>
  | Kind<'count', { name: keyof Counters }>
  | Kind<'count-repair', { milliseconds: number }>
  | Kind<'write', { message: JournalMessage }>;

interface Next {
  readonly state: KeeperState;
  readonly effects: readonly KeeperEffect[];
}

export function beginKeeping(profile: string, unit: string, rules: KeeperRules): KeeperState {
  return {
    profile,
    unit,
    rules,
    first: false,
    failures: 0,
    toldDrift: '',
    toldLimit: false,
    noticedAt: null,
    repairs: nothingDone,
  };
}

// The keeper's decisions: (state, event) -> state and effects. Pure: no clock, no file, no lock; `now` comes with the
// events, in milliseconds.

/** Consecutive failures after which an administrator must act. */
export const failuresToDegraded = 5;
const failurePauseMs = 1_000;
const degradedPauseMs = 3_600_000;

export function keeperNext(state: KeeperState, event: KeeperEvent): Next {
  switch (event.kind) {
    case 'noticed': {
      const next = { ...state, first: state.first || event.first, noticedAt: state.noticedAt ?? event.now };
      const look: KeeperEffect = { kind: 'look', when: event.soon ? 'now' : 'soon' };
      return { state: next, effects: state.failures >= failuresToDegraded ? [] : [look] };
    }
    case 'retry':
      return {
        state: {
          ...state,
          repairs: nothingDone,
          failures: 0,
          toldLimit: false,
          toldDrift: '',
          first: true,
        },
        effects: [{ kind: 'look', when: 'now' }],
      };
    case 'found':
      return found({ ...state, rules: event.rules }, event);
    case 'package-manager':
      return event.who === null
        ? goOn(state, event.found, event.now)
        : waitFor(state, event.who, event.found);
    case 'package-manager-gone':
      // The package manager's last change may be missing.
      return event.tired
        ? goOn(state, event.found, event.now)
        : { state, effects: [{ kind: 'look', when: 'now' }] };
    case 'repaired':
      return repaired(state, event);
    case 'failed':
      return failed(state, event.why, event.causes, event.now);
  }
}

function found(state: KeeperState, event: Extract<KeeperEvent, { kind: 'found' }>): Next {
  const { found: seen, wanted, busy, now } = event;
  if (seen.kind === 'interrupted') return whenNobodyInstalls(state, busy, seen);
  if (!wanted) {
    return { state, effects: [{ kind: 'show', phase: 'idle', problem: null }, settledBut] };
  }
  const begun = { ...state, first: false };
  switch (seen.kind) {
    case 'refused':
      return {
        state: begun,
        effects: [{ kind: 'show', phase: 'waiting', problem: seen.problem }, settledBut],
      };
    case 'right':
      return {
        state: { ...begun, failures: 0, toldDrift: '', toldLimit: false, noticedAt: null },
        effects: [
          { kind: 'show', phase: 'settled', problem: null },
          { kind: 'settled', right: true },
        ],
      };
    case 'drift':
      return begun.rules.enabled ? whenNobodyInstalls(begun, busy, seen) : goOn(begun, seen, now);
  }
}

const settledBut: KeeperEffect = { kind: 'settled', right: false };

function whenNobodyInstalls(state: KeeperState, busy: string | null, seen: Found): Next {
  if (busy !== null) return waitFor(state, busy, seen);
  return { state, effects: [{ kind: 'ask-package-manager', found: seen }] };
}

function waitFor(state: KeeperState, who: string, seen: Found): Next {
  const text = `waiting for the package manager: ${who}`;
  return {
    state,
    effects: [
      { kind: 'show', phase: 'waiting', problem: text },
      { kind: 'write', message: { kind: 'packageManager', profile: null, unit: null, text } },
      { kind: 'wait-for-package-manager', found: seen },
    ],
  };
}

function goOn(before: KeeperState, seen: Found, now: number): Next {
  if (seen.kind === 'interrupted') return repair(before, true, now);
  if (seen.kind !== 'drift') return { state: before, effects: [] };
  const { state, effects } = tell(before, seen, now);
  if (!state.rules.enabled) {
    const problem = `repairs are switched off; ${plural(seen.what.length, 'change')} would correct it`;
    return { state, effects: [...effects, { kind: 'show', phase: 'waiting', problem }, settledBut] };
  }
  const permission = mayDo(state.repairs, state.rules.limits, seen.causes, now);
  if (permission.kind === 'now') {
    const next = repair(state, false, now);
    return { state: next.state, effects: [...effects, ...next.effects] };
  }
  const what = seen.causes.join(', ');
  const until = new Date(permission.at).toISOString();
  const look: KeeperEffect = { kind: 'look', when: permission.at };
  if (permission.kind === 'later') {
    const problem = `repeated changes of ${what}; the next repair is at ${until} at the earliest`;
    return { state, effects: [...effects, look, { kind: 'show', phase: 'waiting', problem }, settledBut] };
  }
  const problem = `${what}: the limit of ${plural(permission.times, 'repair')} in an hour is reached, because another program keeps changing it. Find that program, then run systemctl reload vgpu-agent; the next try is at ${until}`;
  const { profile, unit } = state;
  const told: readonly KeeperEffect[] = state.toldLimit
    ? []
    : [
        {
          kind: 'write',
          message: { kind: 'repairLimit', profile, unit, text: problem, fields: { PATHS: what } },
        },
      ];
  return {
    state: { ...state, toldLimit: true },
    effects: [...effects, look, { kind: 'show', phase: 'degraded', problem }, ...told, settledBut],
  };
}

/** Reports each drift once, even if it is seen several times before the repair. */
function tell(state: KeeperState, { causes, what }: Drift, now: number): Next {
  const key = causes.join('\n');
  if (key === state.toldDrift) return { state, effects: [] };
  const { profile, unit } = state;
  const fields = { CHANGES: what.length, PATHS: causes.join(' ') };
  return {
    state: { ...state, toldDrift: key, noticedAt: state.noticedAt ?? now },
    effects: [
      { kind: 'count', name: 'drifts' },
      {
        kind: 'write',
        message: { kind: 'drift', profile, unit, text: `drift: ${what.join('; ')}`, fields },
      },
    ],
  };
}

function repair(state: KeeperState, interrupted: boolean, now: number): Next {
  return {
    state,
    effects: [
      { kind: 'show', phase: 'repairing', problem: null },
      { kind: 'repair', interrupted, since: state.noticedAt ?? now },
    ],
  };
}

function repaired(state: KeeperState, event: Extract<KeeperEvent, { kind: 'repaired' }>): Next {
  const { did, begun, now } = event;
  const { profile, unit } = state;
  const next = { ...state, failures: 0, toldDrift: '', noticedAt: null };
  const look: KeeperEffect = { kind: 'look', when: 'now' };
  if (did === null) return { state: next, effects: [look] };
  const milliseconds = Math.round(now - begun);
  const text = `repaired in ${milliseconds} ms: ${did.titles.join(', ')}`;
  const fields = {
    CHANGES: did.titles.length,
    MILLISECONDS: milliseconds,
    PATHS: did.causes.join(' '),
  };
  return {
    state: { ...next, repairs: noted(state.repairs, state.rules.limits, did.causes, now) },
    effects: [
      { kind: 'count-repair', milliseconds },
      { kind: 'write', message: { kind: 'repaired', profile, unit, text, fields } },
      look,
    ],
  };
}

function failed(state: KeeperState, why: string, causes: readonly string[], now: number): Next {
  const failures = state.failures + 1;
  const hopeless = failures >= failuresToDegraded;
  const pause = hopeless ? degradedPauseMs : failurePauseMs * 2 ** (failures - 1);
  const what = causes.join(', ');
  const after = hopeless
    ? `it failed ${failures} times in a row, so the next try is in ${pause / 60_000} minutes; repair it by hand, then run systemctl reload vgpu-agent`
    : `the next try is in ${pause / 1000} s`;
  const { profile, unit } = state;
  const cannot =
    what === '' ? `cannot inspect or repair the files for ${unit}` : `${what} could not be repaired`;
  const problem = `${cannot}: ${why}; ${after}`;
  const kind = hopeless ? 'repairLimit' : 'repairFailed';
  const fields = { PATHS: what || unit, FAILURES: failures };
  const repairs = causes.length === 0 ? state.repairs : noted(state.repairs, state.rules.limits, causes, now);
  return {
    state: { ...state, failures, repairs },
    effects: [
      { kind: 'count', name: 'failedRepairs' },
      { kind: 'look', when: now + pause },
      { kind: 'show', phase: hopeless ? 'degraded' : 'waiting', problem },
      { kind: 'write', message: { kind, profile, unit, text: problem, fields } },
    ],
  };
}
