/** The judge's state, its input events and its effects. */

import type { Reason, Verdict } from '../../contracts/verdict.js';
import type { JournalMessage } from '../../systemd/journal-writer.js';
import type { Due, Kind } from '../board.js';
import type { HostEvent } from '../helper.js';
import { type Done, type Limits, nothingDone } from '../limiter.js';

export interface Start {
  readonly invocationId: string | null;
  readonly activeState: string;
}

/** The consumer now; `idle`: nothing is installed for it, `absent`: systemd has no such unit. */
export type Seen =
  | 'idle'
  | 'absent'
  | (Start & {
      readonly traced: boolean;
      /** The process has ended, and systemd waits before the next start (RestartSec=). */
      readonly ended?: boolean;
    });

export type LiveSeen =
  | {
      readonly kind: 'told';
      /** Sessions in which it holds memory or has run kernels. */
      readonly sessions: number;
      readonly launches: number;
      /** The host has run kernels for it, and nothing that it has loaded lies elsewhere. */
      readonly works: boolean;
    }
  | { readonly kind: 'unknown'; readonly message: string };

interface Live {
  readonly sessions: number;
  readonly launches: number;
  readonly works: boolean;
  /** The host was last asked with success; the number of kernels or sessions last changed. */
  readonly toldAt: number;
  readonly changedAt: number;
}

export interface RestartRules {
  readonly enabled: boolean;
  readonly whileServing: boolean;
  /** Also while the host has a live session of it. */
  readonly busy: boolean;
  /** A session that has run no kernel for so long is not live. */
  readonly idleMs: number;
  readonly limits: Limits;
}

export interface Pending {
  readonly cause: 'outdated' | 'host' | 'found' | 'preferred';
  readonly reason: string;
  /** The start that it is about: another one needs no restart. */
  readonly invocationId: string | null;
  readonly asked?: true;
}

interface TriedOutdated {
  /** Without the numbers of processes. */
  readonly reason: string;
  readonly invocationId: string | null;
  /** The start after it has the same fault: something takes away what a restart brings. */
  readonly inVain: boolean;
}

export interface JudgeState {
  readonly profile: string;
  readonly unit: string;
  readonly rules: RestartRules;
  /** The files were looked at; the start that the consumer was in then. */
  readonly looked: { readonly invocationId: string | null } | null;
  readonly judged: Start | null;
  readonly verdict: Verdict | null;
  /** Of the judged start; null: the host has told nothing so far. */
  readonly live: Live | null;
  /** Why the verdict is not about now; null: it is. */
  readonly stale: string | null;
  /** Its process has ended, and systemd waits before it starts the next one. */
  readonly ended: boolean;
  /** A look has asked for a whole verdict at this time. */
  readonly lookDoubtedAt: number;
  /** Time from then until the next such request, if the verdict is still unanswered; 0: the shortest time. */
  readonly lookPauseMs: number;
  readonly lost: { readonly since: number; readonly reason: string } | null;
  readonly movedTo: string | null;
  readonly preferred: string | null;
  /** The start that lived through the host's absence: to be restarted. */
  readonly survivor: string | null;
  /** The same, as long as it lasts: what it said of itself is not true any more. */
  readonly tainted: readonly string[];
  readonly doubted: boolean;
  /** At boot the consumer waits for us: before that there is nothing to be judged. */
  readonly ready: boolean;
  /** One try for a verdict that a restart corrects, until something changes. */
  readonly triedFor: Reason | null;
  readonly triedOutdated: TriedOutdated | null;
  /** The start that our own restart made; `restarting`: it is being made. */
  readonly ownStart: string | null;
  readonly restarting: boolean;
  readonly pending: Pending | null;
  readonly toldPending: string;
  readonly written: string;
  readonly restarts: Done;
}

export type JudgeEvent =
  /** The files match the manifest, or cannot be repaired now. `outdated`: why the consumer runs with old files. */
  | Kind<'settled', { outdated: string | null; start: Start | null }>
  /**
   * `doubt`: judge the same start again, because of its log or because the machine woke up. `ready`: the consumer may be
   * restarted; at boot it waits for the service. `tick`: try again what was impossible before. `restart-now`: the user
   * wants the pending restart.
   */
  | Kind<'unit-changed' | 'doubt' | 'ready' | 'tick' | 'retry' | 'restart-now', object>
  | Kind<'looked', { verdict: Verdict; live: LiveSeen; now: number }>
  /** About the host in use; `movedTo`: it is another one than before. */
  | Kind<'host', { host: HostEvent; movedTo?: string | null; now: number }>
  /** The host that the consumer may move back to; null: none. */
  | Kind<'preferred', { endpoint: string | null }>
  | Kind<'seen', { seen: Seen; rules: RestartRules; now: number }>
  /** The answer to `confirm`; `start` is the unit's start after it. */
  | Kind<'judged', { verdict: Verdict; live: LiveSeen; start: Start | null; now: number }>
  /** The answer to `ask-serving`; null: it may be restarted. */
  | Kind<'serving', { busy: string | null; now: number }>
  /** After `restart`: systemd has finished the job, and later the verdict of the new start. */
  | Kind<'restarted', { result: string; reason: string; cause: string; start: Start | null }>
  | Kind<'judged-again', { verdict: Verdict; live: LiveSeen; now: number }>;

export type JudgeEffect =
  | Kind<'look', { when: 'soon' | number }>
  | Kind<'confirm' | 'ask-serving' | 'count-restart', object>
  | Kind<'restart', { reason: string; cause: string }>
  | Kind<'show', { verdict: Verdict | null }>
  | Kind<'show-due', { due: Due | null }>
  | Kind<'write', { message: JournalMessage }>
  | Kind<'say', { text: string }>;

export interface Next {
  readonly state: JudgeState;
  readonly effects: readonly JudgeEffect[];
}

export function beginJudging(profile: string, unit: string, rules: RestartRules): JudgeState {
  return {
    profile,
    unit,
    rules,
    looked: null,
    judged: null,
    verdict: null,
    live: null,
    stale: null,
    ended: false,
    lookDoubtedAt: Number.NEGATIVE_INFINITY,
    lookPauseMs: 0,
    lost: null,
    movedTo: null,
    preferred: null,
    survivor: null,
    tainted: [],
    doubted: false,
    ready: false,
    triedFor: null,
    triedOutdated: null,
    ownStart: null,
    restarting: false,
    pending: null,
    toldPending: '',
    written: '',
    restarts: nothingDone,
  };
}

export function after({ state, effects }: Next, step: (state: JudgeState) => Next): Next {
  const next = step(state);
  return { state: next.state, effects: [...effects, ...next.effects] };
}
