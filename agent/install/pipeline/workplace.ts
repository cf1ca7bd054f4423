/**
 * The pipeline's effects, passed in: the commands, the service and the tests each bring their own.
 * Every member does one arrow of profile + machine -> plan -> apply -> confirm -> verdict.
 */

import type { Emit } from '../../contracts/events.js';
import type { LibraryVendor, MachineFacts } from '../../contracts/facts.js';
import type { Manifest } from '../../contracts/manifest.js';
import type { Plan, PlanOptions, ReadyPlan } from '../../contracts/plan.js';
import type { UnitFacts } from '../../contracts/unit.js';
import type { Verdict } from '../../contracts/verdict.js';
import type { CloserLook } from '../../guest/look/closer-look.js';
import type { Profile } from '../../profile/types.js';
import type { JournalWriter } from '../../systemd/journal-writer.js';
import type { Watched } from '../../verdict/confirm.js';
import type { LiveProcess } from '../../verdict/doctor/trace.js';
import type { Confirming, Observation, ProcessWatch } from '../../verdict/observation.js';
import type { Applied, ApplyOptions, Recovery, RestartOutcome } from '../apply/effects.js';
import type { TracePlan } from '../plan/trace.js';
import type { ServiceGoal } from './agent-service.js';

export type LockedCommand = 'install' | 'uninstall' | 'repair' | 'trace';

export interface Workplace {
  profile(name: string): Profile;
  profiles(): readonly Profile[];
  manifest(): Promise<Manifest | null>;
  /**
   * `quick`: bounds what is asked of the host and a real GPU to two seconds. `ask: false` asks neither and
   * keeps to files, bus and /proc. `from`: where `host` is from, if not from `--host`.
   */
  inspect(
    profile: Profile,
    host: string | null,
    options?: { readonly quick?: boolean; readonly ask?: boolean; readonly from?: 'agent.json' },
  ): Promise<MachineFacts>;
  planInstall(profile: Profile, facts: MachineFacts, options: PlanOptions): Plan;
  planUninstall(profile: Profile, facts: MachineFacts, options: Pick<PlanOptions, 'restart'>): Plan;
  /**
   * Runs `work` while holding the lock that the service shares. Throws a VgpuError: `refused` when it is taken,
   * `interrupted` when `signal` aborted during the wait. Other commands see `command` as its holder; after a complete
   * uninstall no lock file stays.
   */
  locked<T>(
    command: LockedCommand,
    work: () => Promise<T>,
    options?: { readonly waitMs?: number; readonly signal?: AbortSignal },
  ): Promise<T>;
  /** Finishes or undoes an interrupted run. Also removes the rest of an interrupted trace, and emits a note about it. */
  recover(emit: Emit): Promise<Recovery>;
  traceLeft(): Promise<boolean>;
  /** With the lock held: takes away what a doctor that was killed left of a trace. False: nothing was left. */
  recoverTrace(emit: Emit): Promise<boolean>;
  apply(plan: ReadyPlan, options: ApplyOptions, emit: Emit): Promise<Applied>;
  /** After `apply` with `keepUndo`: takes everything back and restarts `unit`. */
  rollback(unit: string, emit: Emit): Promise<RestartOutcome>;
  settle(emit: Emit): Promise<void>;
  unit(name: string): Promise<UnitFacts>;
  /**
   * Before a restart: notes where the journal and the unit's own output file end, since what comes later is of
   * the next start, and begins to look at the unit's processes, since discovery can be over before the
   * restart is. `stop` ends that looking; `confirm` with the mark does too.
   */
  mark(unit: UnitFacts, signal: AbortSignal): Promise<Mark>;
  confirm(request: ConfirmRequest, emit: Emit): Promise<Verdict>;
  /** Waits until vgpu-agent.service has come so far for `unit` (settled: without the lock); throws as `serviceUp` does. */
  serviceUp(unit: string, goal: ServiceGoal, signal: AbortSignal): Promise<void>;
  readonly journal: JournalWriter;
}

export interface WatchingWorkplace extends Workplace {
  observe(request: ConfirmRequest, emit: Emit): Promise<Observation>;
  /** The same start after a new look at the consumer and the host; costs milliseconds. */
  lookAgain(watched: Watched, signal: AbortSignal): Promise<Watched>;
}

export interface DoctorWorkplace extends WatchingWorkplace {
  /** The requests that the consumer serves now, as a clause; null: none, so a restart interrupts nothing. */
  serving(profile: Profile, signal: AbortSignal): Promise<string | null>;
  lookCloser(profile: Profile, facts: MachineFacts): Promise<CloserLook>;
  readonly tracing: Tracing;
}

export interface Tracing {
  /** The next start is traced. Throws the system's error; `disarm` and `forget` take back what was done. */
  begin(plan: TracePlan): Promise<void>;
  restart(unit: string): Promise<RestartOutcome>;
  live(unit: string): Promise<readonly LiveProcess[]>;
  read(): { readonly text: string; readonly cut: boolean };
  vendors(files: Iterable<string>): Promise<ReadonlyMap<string, LibraryVendor>>;
  disarm(unit: string): Promise<void>;
  forget(): Promise<void>;
}

export interface Mark {
  readonly cursor: string | null;
  readonly outputFile: { readonly path: string; readonly offset: number } | null;
  readonly invocationId: string | null;
  readonly looking: ProcessWatch;
}

export interface ConfirmRequest extends Confirming {
  readonly facts: MachineFacts;
  /** The place to read from after our restart; null judges the start that the unit is in. */
  readonly mark: Mark | null;
}
