/** The keeper's state, its input events and its effects. */
import type { JournalMessage } from '../../contracts/journal-messages.js';
import type { Counters, Phase } from '../board.js';
import { type Done, type Limits, nothingDone } from '../limiter.js';

/** The result of one look at the machine. */
export type Found =
  /** A run was cut short, or is at work: the lock tells. */
  | { readonly kind: 'interrupted' }
  | { readonly kind: 'right' }
  | { readonly kind: 'refused'; readonly problem: string }
  | Drift;

export interface Drift {
  readonly kind: 'drift';
  /** Paths, for back-off and for people. */
  readonly causes: readonly string[];
  /** Each change with its reason. */
  readonly what: readonly string[];
}

export interface KeeperRules {
  /** False: drift is reported, not repaired. */
  readonly enabled: boolean;
  readonly limits: Limits;
}

export interface KeeperState {
  readonly profile: string;
  readonly unit: string;
  readonly rules: KeeperRules;
  /** An installation may be made where there is none. */
  readonly first: boolean;
  readonly failures: number;
  readonly toldDrift: string;
  readonly toldLimit: boolean;
  /** When something was noticed first, for the time to the repair. */
  readonly noticedAt: number | null;
  readonly repairs: Done;
}

/** The changes of a repair: titles for people, and the paths. */
export interface Repaired {
  readonly titles: readonly string[];
  readonly causes: readonly string[];
}

export type KeeperEvent =
  /** Something may have changed. */
  | { readonly kind: 'noticed'; readonly first: boolean; readonly soon: boolean; readonly now: number }
  /** A person has asked: limits and failures are forgotten. */
  | { readonly kind: 'retry' }
  /** The answer to `look`. `wanted`: it is installed, or agent.json declared it and `first` was so before the look. */
  | {
      readonly kind: 'found';
      readonly found: Found;
      readonly wanted: boolean;
      /** The package manager that was at work before the look: what was seen may be half of what it does. */
      readonly busy: string | null;
      readonly rules: KeeperRules;
      readonly now: number;
    }
  /** The answer to `ask-package-manager`. */
  | {
      readonly kind: 'package-manager';
      readonly who: string | null;
      readonly found: Found;
      readonly now: number;
    }
  /** The answer to `wait-for-package-manager`; `tired`: it is still at work, and was waited for long enough. */
  | {
      readonly kind: 'package-manager-gone';
      readonly tired: boolean;
      readonly found: Found;
      readonly now: number;
    }
  /** The answers to `repair`; `did` is null when there was nothing left to repair. */
  | {
      readonly kind: 'repaired';
      readonly did: Repaired | null;
      readonly begun: number;
      readonly now: number;
    }
  | {
      readonly kind: 'failed';
      readonly why: string;
      readonly causes: readonly string[];
      readonly now: number;
    };

export type KeeperEffect =
  | { readonly kind: 'look'; readonly when: 'now' | 'soon' | number }
  | { readonly kind: 'show'; readonly phase: Phase; readonly problem: string | null }
  | { readonly kind: 'ask-package-manager'; readonly found: Found }
  | { readonly kind: 'wait-for-package-manager'; readonly found: Found }
  /** Carry the plan out. `interrupted`: clear up first what a run left. `since`: when it was noticed. */
  | { readonly kind: 'repair'; readonly interrupted: boolean; readonly since: number }
  /** The judge's turn. `right`: the files are as they shall be. */
  | { readonly kind: 'settled'; readonly right: boolean }
  | { readonly kind: 'count'; readonly name: keyof Counters }
  | { readonly kind: 'count-repair'; readonly milliseconds: number }
  | { readonly kind: 'write'; readonly message: JournalMessage };

export interface Next {
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
