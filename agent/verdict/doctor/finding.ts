/**
 * The types of `vgpu-agent doctor`. A check is a pure function of facts that were gathered once; it returns a finding.
 * `diagnose.ts` lists the checks in the order of causes.
 */
import path from 'node:path';
import { editCommand, isContainer } from '../../containers/container-unit.js';
import type { DistributionFamily, LibraryCandidate, MachineFacts } from '../../contracts/facts.js';
import type { Change, Plan } from '../../contracts/plan.js';
import type { UnitFacts } from '../../contracts/unit.js';
import type { Reason, Verdict } from '../../contracts/verdict.js';
import { publicDirectories } from '../../guest/libraries/candidates.js';
import type { CloserLook } from '../../guest/look/closer-look.js';
import { changeTitle } from '../../install/plan/change-title.js';
import { containerLibraryDirectories, isInStore } from '../../lib/paths.js';
import { choiceOf } from '../../profile/instance.js';
import type { Profile } from '../../profile/types.js';
import type { Observation } from '../observation.js';
import type { TraceFacts } from './trace.js';

export interface DoctorFacts {
  readonly profile: Profile;
  readonly machine: MachineFacts;
  readonly look: CloserLook;
  /** The current plan of install: each change in it is a fault that vgpu-agent can repair. */
  readonly plan: Plan;
  /** The present start of the consumer, as seen: log, processes with their maps, probe, host. */
  readonly observation: Observation;
  readonly verdict: Verdict;
  readonly trace: TraceFacts | null;
}

export interface Remedy {
  readonly text: string;
  readonly command: string;
  readonly where: 'guest' | 'host';
  readonly fix: boolean;
}

export interface Trouble {
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
  /** The check does not apply to this machine; `why` is a clause without a full stop. */
  | { readonly kind: 'not-applicable'; readonly why: string }
  | { readonly kind: 'unknown'; readonly why: string; readonly evidence: readonly string[] };

export interface Check {
  /** Stable, kebab-case; names its part of vgpu-doctor(7). */
  readonly id: string;
  /** The condition that holds when the check is ok: `public links lead to the shim`. At most 50 characters. */
  readonly title: string;
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
  readonly results: readonly CheckResult[];
  readonly broken: readonly CheckResult[];
  readonly verdict: Verdict;
}

export function ok(...evidence: readonly string[]): Finding {
  return { kind: 'ok', evidence };
}

export function notApplicable(why: string): Finding {
  return { kind: 'not-applicable', why };
}

export function unknown(why: string, ...evidence: readonly string[]): Finding {
  return { kind: 'unknown', why, evidence };
}

export function broken(trouble: Trouble): Finding {
  return { kind: 'broken', ...trouble };
}

export function warning(trouble: Trouble): Finding {
  return { kind: 'warning', ...trouble };
}

export function fixes({ profile }: DoctorFacts, text: string): Remedy {
  return {
    text,
    command: `sudo vgpu-agent doctor --fix ${choiceOf(profile)}`,
    where: 'guest',
    fix: true,
  };
}

export function byHand(text: string, command: string): Remedy {
  return { text, command, where: 'guest', fix: false };
}

export function onTheHost(text: string, command: string): Remedy {
  return { text, command, where: 'host', fix: false };
}

export function editUnit({ profile, machine }: DoctorFacts, text: string): Remedy {
  return byHand(
    `${text}, then start it again`,
    `sudo ${editCommand(machine.unit)} && sudo systemctl restart ${profile.unit}`,
  );
}

/** A driver of the image's own comes first: the shim's directory in the container has to come before it. */
export function shimFirst(facts: DoctorFacts): Remedy {
  const [directory] = containerLibraryDirectories;
  return editUnit(
    facts,
    `set LD_LIBRARY_PATH=${directory} in the container (the GPU device puts the shim there)`,
  );
}

/** Variables out of the place that sets each: its environment file, or the unit and its drop-ins. */
export function takeOut(
  unit: UnitFacts,
  hits: readonly { readonly variable: string; readonly file: string | null }[],
): Remedy {
  const files = [...new Set(hits.map(({ file }) => file))];
  const named = files.map((file) => {
    const names = new Set(hits.filter((hit) => hit.file === file).map(({ variable }) => variable));
    return `${[...names].join(' and ')} out${file === null ? '' : ` of ${file}`}`;
  });
  const edits = files.map((file) => (file === null ? `sudo ${editCommand(unit)}` : `sudoedit ${file}`));
  return byHand(
    `take ${named.join(' and ')}, then start it again`,
    [...edits, `sudo systemctl restart ${unit.name}`].join(' && '),
  );
}

export function plannedChanges({ plan }: DoctorFacts): readonly Change[] {
  return plan.kind === 'ready' ? plan.changes : [];
}

/** The lines of the service's log that the verdict rests on. */
export function logLines({ log }: Observation): readonly string[] {
  return log.evidence.filter(({ kind }) => kind === 'log-line').map(({ text }) => text);
}

export function changeEvidence(change: Change): string {
  return `${changeTitle(change)}: ${change.reason}`;
}

/** The package manager of each family; an unknown one may have dpkg's lists. */
const packageTools: Readonly<
  Record<DistributionFamily, { readonly remove: string; readonly owner: string }>
> = {
  debian: { remove: 'apt-get remove', owner: 'dpkg -S' },
  redhat: { remove: 'dnf remove', owner: 'rpm -qf' },
  suse: { remove: 'zypper remove', owner: 'rpm -qf' },
  arch: { remove: 'pacman -R', owner: 'pacman -Qo' },
  unknown: { remove: 'apt-get remove', owner: 'dpkg -S' },
};

/** Shows the package of the file. */
export function ownerQuery({ machine }: DoctorFacts, file: string): string {
  return `${packageTools[machine.distribution.family].owner} ${file}`;
}

export function publicCandidates({ profile, machine }: DoctorFacts): readonly LibraryCandidate[] {
  const directories = new Set(publicDirectories(profile, machine.distribution).map((one) => one.path));
  const names = new Set(Object.keys(profile.publicLinks.names));
  return machine.candidates.filter(
    ({ path: file }) => directories.has(path.dirname(file)) && names.has(path.basename(file)),
  );
}

/** It leads to a file of the store; the store's check reports problems with that library. */
export function leadsToStore({ resolution }: LibraryCandidate): boolean {
  return resolution.kind === 'file' && isInStore(resolution.realPath);
}

/** Under a driver's name in the consumer's own directories: its children look there first. */
export function consumerCandidates({ look, machine }: DoctorFacts): readonly LibraryCandidate[] {
  // Those of a container are in its image; the shim's own places come first there, or its maps show the library.
  const directories = new Set(isContainer(machine.unit) ? [] : look.consumer.directories);
  return machine.candidates.filter(
    ({ path: file, state }) => directories.has(path.dirname(file)) && state.kind !== 'absent',
  );
}

export function whereFound({ path: file, resolution }: LibraryCandidate): string {
  return resolution.kind === 'file' && resolution.realPath !== file
    ? `${file} (which leads to ${resolution.realPath})`
    : file;
}

export function repairPlace(
  facts: DoctorFacts,
  { path: file, ownerOfPath }: Pick<LibraryCandidate, 'path' | 'ownerOfPath'>,
): Remedy {
  const planned = plannedChanges(facts).some(
    (change) =>
      ('path' in change && change.path === file) ||
      (change.kind === 'alternative' &&
        (change.link === file || change.slaves.some(({ link }) => link === file))),
  );
  if (planned) return fixes(facts, `make ${file} a link to the shim; uninstall restores the present file`);
  if (ownerOfPath !== null) {
    return byHand(
      `it belongs to the package ${ownerOfPath}; if no other program needs it`,
      `sudo ${packageTools[facts.machine.distribution.family].remove} ${ownerOfPath}`,
    );
  }
  const { unit } = facts.profile;
  return byHand(
    'vgpu-agent does not change it; move it away and restart the service',
    `sudo mv ${file} ${file}.away && sudo systemctl restart ${unit}`,
  );
}
