/**
 * The parts of `vgpu-agent doctor`. A check is one file: it is given facts that were gathered once, looks at
 * nothing by itself, and answers with a finding. `checks.ts` lists them in the order of causes.
 */

import type { MachineFacts } from '../../contracts/facts.js';
import type { Plan } from '../../contracts/plan.js';
import type { Reason, Verdict } from '../../contracts/verdict.js';
import type { CloserLook } from '../../guest/look/closer-look.js';
import type { Profile } from '../../profile/types.js';
import type { Observation } from '../observation.js';
import type { TraceFacts } from './trace/types.js';

/** Everything that checks are given: gathered once, by pipeline/doctor.ts. */
export interface DoctorFacts {
  readonly profile: Profile;
  /** As install sees it. */
  readonly machine: MachineFacts;
  /** The facts that only the doctor needs. */
  readonly look: CloserLook;
  /** The plan of install now: a change in it means that something is broken and that vgpu-agent can repair it. */
  readonly plan: Plan;
  /** The present start of the consumer, as seen: log, processes with their maps, probe, host. */
  readonly observation: Observation;
  readonly verdict: Verdict;
  /** The result of one traced start; null: no trace was requested. */
  readonly trace: TraceFacts | null;
}

export interface Remedy {
  /** The remedy, a sentence without a full stop; printed before the command. */
  readonly text: string;
  /** The exact command, to be typed as it is. */
  readonly command: string;
  /** The machine that the command is for: this guest, or the one that runs vgpu-hostd. */
  readonly where: 'guest' | 'host';
  /** `vgpu-agent doctor --fix` does it: install's plan repairs it. */
  readonly fix: boolean;
}

/** Something is wrong. `evidence`: one line each, what was seen and where, values quoted. */
export interface Trouble {
  /** The fault and its effects: a sentence or two with full stops. */
  readonly cause: string;
  readonly evidence: readonly string[];
  readonly remedy: Remedy;
}

export type Finding =
  | { readonly kind: 'ok'; readonly evidence: readonly string[] }
  /** It keeps the consumer from the GPU, or will at its next start. */
  | ({ readonly kind: 'broken' } & Trouble)
  /** It may be intended, or may cause a fault later; the GPU verdict holds. */
  | ({ readonly kind: 'warning' } & Trouble)
  /** The question does not arise on this machine; `why` is a clause without a full stop. */
  | { readonly kind: 'not-applicable'; readonly why: string }
  /** It could not be found out. */
  | { readonly kind: 'unknown'; readonly why: string; readonly evidence: readonly string[] };

export interface Check {
  /** Stable, kebab-case; names its file, its part of vgpu-doctor(7) and its test. */
  readonly id: string;
  /** The condition that holds when the check is ok: `public links lead to the shim`. At most 50 characters. */
  readonly title: string;
  /** The object of the check, a clause. */
  readonly looksAt: string;
  /** Verdict reasons that a broken finding of this check explains: with such a verdict it comes first. */
  readonly explains: readonly Reason[];
  examine(facts: DoctorFacts): Finding;
}

export interface CheckResult {
  readonly check: Check;
  readonly finding: Finding;
}

export interface Diagnosis {
  /** In the order of causes. */
  readonly results: readonly CheckResult[];
  /** The broken ones: what explains the verdict first, then in the order of causes. */
  readonly broken: readonly CheckResult[];
  readonly verdict: Verdict;
}
