/** Facts of a healthy, installed machine for tests of single checks, with changes. */

import type { ElfFacts, MachineFacts } from '../../../../agent/contracts/facts.js';
import type { Change, Plan } from '../../../../agent/contracts/plan.js';
import type { Verdict } from '../../../../agent/contracts/verdict.js';
import type { CloserLook } from '../../../../agent/guest/look/closer-look.js';
import type { Profile } from '../../../../agent/profile/types.js';
import { decideVerdict } from '../../../../agent/verdict/decide.js';
import type { DoctorFacts, Finding } from '../../../../agent/verdict/doctor/finding.js';
import type { Observation } from '../../../../agent/verdict/observation.js';
import { facts as machineFacts, plan } from '../../install/plan/support.js';
import { observation, ollama } from '../support.js';

export const manifest: NonNullable<MachineFacts['manifest']> = {
  schema: 2,
  agent: '0.1.0',
  consumers: [{ profile: 'ollama', unit: 'ollama.service', links: [] }],
  storeId: '0123456789abcdef',
  endpoint: 'vsock:2:14833',
  items: [],
};

export const look: CloserLook = {
  consumer: { directories: [], libraries: [] },
  security: [],
  executables: [],
  preload: [],
  storeDamage: null,
  loader: { processes: [], problem: null },
  containerEnvironment: {},
  journald: {},
  service: { status: null },
};

export interface Changes {
  readonly machine?: Partial<MachineFacts>;
  readonly look?: Partial<CloserLook>;
  readonly observation?: Partial<Observation>;
  /** Default: what install would plan for this machine. */
  readonly plan?: DoctorFacts['plan'];
  readonly trace?: DoctorFacts['trace'];
  /** Over what the observation says. */
  readonly verdict?: Partial<Verdict>;
  readonly profile?: Profile;
}

export function doctorFacts(changes: Changes = {}): DoctorFacts {
  const machine = machineFacts({ manifest, ...changes.machine });
  const seen = observation(changes.observation);
  return {
    profile: changes.profile ?? ollama,
    machine,
    look: { ...look, ...changes.look },
    plan: changes.plan ?? plan(machine),
    observation: seen,
    verdict: { ...decideVerdict(seen), ...changes.verdict },
    trace: changes.trace ?? null,
  };
}

/** A shared library of this machine that needs nothing. */
export function elf(changes: Partial<ElfFacts> = {}): ElfFacts {
  return {
    class: 64,
    machine: 'x86_64',
    type: 'dyn',
    soname: null,
    needed: [],
    provenance: null,
    ...changes,
  };
}

/** A plan with just these changes, in place of the one that install would make. */
export function ready(...changes: readonly Change[]): Plan {
  return {
    kind: 'ready',
    intent: 'install',
    profile: 'ollama',
    unit: 'ollama.service',
    storeId: '0123456789abcdef',
    endpoint: 'vsock:2:14833',
    consumers: manifest.consumers,
    changes,
    warnings: [],
  };
}

/** The parts of a finding of trouble; fails for any other. */
export function troubleOf(finding: Finding): {
  readonly kind: 'broken' | 'warning';
  readonly cause: string;
  readonly evidence: string;
  readonly command: string;
  readonly text: string;
} {
  if (finding.kind !== 'broken' && finding.kind !== 'warning') {
    throw new Error(`no trouble: ${JSON.stringify(finding)}`);
  }
  const { kind, cause, evidence, remedy } = finding;
  return { kind, cause, evidence: evidence.join('\n'), command: remedy.command, text: remedy.text };
}

/** A unit that logs to a namespace of the journal. */
export const toNamespace = {
  logging: { namespace: 'apart', levelMax: null, burst: null, intervalMs: null },
} as const;
