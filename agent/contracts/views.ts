import type { HostFacts } from './facts.js';
import type { Verdict } from './verdict.js';

export interface ConsumerView {
  readonly profile: string;
  readonly unit: StatusView['unit'];
  readonly drift: StatusView['drift'];
  /** The actions of vgpu-agent.service for it; absent or null when it was not asked. */
  readonly service?: {
    readonly state: string;
    readonly problem: string | null;
    readonly pendingRestart: NonNullable<StatusView['service']>['pendingRestart'];
  } | null;
  readonly verdict: Verdict | null;
}

/** `unit`, `drift` and `verdict` are those of the first consumer that is shown. */
export interface StatusView {
  /** Null: nothing is for those that are shown; for others something may be. */
  readonly installed: {
    readonly agent: string;
    readonly profile: string;
    readonly unit: string;
    readonly storeId: string;
    readonly endpoint: string;
    readonly items: number;
  } | null;
  readonly interrupted: boolean;
  readonly consumers: readonly ConsumerView[];
  readonly drift: readonly { readonly change: string; readonly reason: string }[];
  readonly unit: {
    readonly name: string;
    readonly load: 'loaded' | 'absent' | 'masked' | 'bad';
    readonly active: string | null;
    readonly invocationId: string | null;
    readonly restarts: number | null;
  };
  readonly host: HostFacts;
  /** The actions of vgpu-agent.service; absent or null when it was not asked. */
  readonly service?: {
    readonly version: string;
    readonly state: string;
    readonly problem: string | null;
    readonly configProblem: string | null;
    readonly pendingRestart: { readonly reason: string; readonly waitsFor: string } | null;
    readonly repairs: number;
    readonly restarts: number;
  } | null;
  /** Why agent.json is not valid; only where the service was not asked. Null: valid, absent, or not readable. */
  readonly configProblem?: string | null;
  /** Null when nothing is installed, or when this user may not look. */
  readonly verdict: Verdict | null;
}
