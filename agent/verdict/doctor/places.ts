/** Places where a program may find a driver, and the remedy for what is found there. */
import path from 'node:path';
import { isContainer } from '../../containers/container-unit.js';
import type { DistributionFamily, LibraryCandidate } from '../../contracts/facts.js';
import { publicDirectories } from '../../guest/libraries/candidates.js';
import { isInStore } from '../../lib/paths.js';
import { byHand, type DoctorFacts, fixes, plannedChanges, type Remedy } from './finding.js';

const removes: Readonly<Record<DistributionFamily, string>> = {
  debian: 'apt-get remove',
  redhat: 'dnf remove',
  suse: 'zypper remove',
  arch: 'pacman -R',
  // Owners are known from dpkg's lists there.
  unknown: 'apt-get remove',
};

/** Asks the package manager whose a file is. */
export const ownerQuery: Readonly<Record<DistributionFamily, string>> = {
  debian: 'dpkg -S',
  redhat: 'rpm -qf',
  suse: 'rpm -qf',
  arch: 'pacman -Qo',
  unknown: 'dpkg -S',
};

/** The profile's public names in its public directories; not the versioned files that may stand beside them. */
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

/** Whether install would put it right, else what a person does about it. */
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
  if (planned) return fixes(facts, 'set the link to the shim; what is there is kept');
  if (ownerOfPath !== null) {
    return byHand(
      `it belongs to the package ${ownerOfPath}; if no other program needs it`,
      `sudo ${removes[facts.machine.distribution.family]} ${ownerOfPath}`,
    );
  }
  const { unit } = facts.profile;
  return byHand(
    'vgpu-agent does not change it; move it away and restart the service',
    `sudo mv ${file} ${file}.away && sudo systemctl restart ${unit}`,
  );
}
