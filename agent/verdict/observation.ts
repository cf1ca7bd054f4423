/** Everything that was observed while waiting for a consumer, before any conclusion. */
import type { HostFacts, ProcessFacts } from '../contracts/facts.js';
import type { ProbeResult } from '../contracts/probe.js';
import type { UnitFacts } from '../contracts/unit.js';
import type { Look } from '../contracts/verdict.js';
import type { Profile } from '../profile/types.js';
import type { LogFindings } from './log/findings.js';
import type { PresentSeen } from './present.js';

/** Why the waiting was over. */
export type End = 'settled' | 'timed-out' | 'unit-failed' | 'unit-restarting';

export type ReadinessSeen =
  | { readonly kind: 'answered'; readonly url: string; readonly afterMs: number }
  | { readonly kind: 'silent'; readonly url: string; readonly lastError: string }
  /** The profile asks for none, or the unit has its own network namespace. */
  | { readonly kind: 'unasked'; readonly why: string };

export type Role = 'main' | 'child';

export interface SeenProcess {
  readonly role: Role;
  /** As last seen with its files mapped. */
  readonly facts: ProcessFacts;
}

/** A line of the log, and where it is from. */
export interface Line {
  readonly text: string;
  readonly source: string;
}

export interface Observation {
  readonly profile: Profile;
  /** The unit as last seen; one that keeps ending as it was seen to end. */
  readonly unit: UnitFacts;
  readonly invocationId: string | null;
  /** The unit was restarted after its settings were made: what was set before applies to this start. */
  readonly restarted: boolean;
  readonly end: End;
  readonly elapsedMs: number;
  /** How often the unit started again while we watched. */
  readonly restarts: number;
  readonly log: LogFindings;
  /** The newest lines of the unit, of whichever start. */
  readonly lastWords: readonly Line[];
  /** Why the journal could not be read, or null. */
  readonly journalError: string | null;
  /** The journal has lines of this start, and not its first ones: it was rotated and vacuumed. */
  readonly journalCut?: boolean;
  /** The log came from the file that the unit's output goes to. */
  readonly logFile: string | null;
  readonly readiness: ReadinessSeen;
  readonly processes: readonly SeenProcess[];
  /** The consumer's loaded models and the host's sessions of it: looked at last. */
  readonly present: PresentSeen;
  /** When `present` was looked at. */
  readonly look?: Look;
  /** Null: the profile wants none. */
  readonly probe: ProbeResult | null;
  /** The probe ran with --compute. */
  readonly computeAsked?: boolean;
  /** Null: not asked. */
  readonly host: HostFacts['answer'] | null;
  readonly endpoint: string;
}
