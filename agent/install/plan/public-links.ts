/**
 * The links under which programs find a driver's libraries. Pure. Every case here was measured on real systems: the
 * program that sets the link (Debian's alternatives, ldconfig, none) decides how it can be changed so that it stays.
 */
import path from 'node:path';
import type { LibraryCandidate, MachineFacts } from '../../contracts/facts.js';
import type { PathState } from '../../contracts/manifest.js';
import type { Change, Refusal, Warning } from '../../contracts/plan.js';
import { publicDirectories } from '../../guest/libraries/candidates.js';
import { isInStore, storeCurrent } from '../../lib/paths.js';
import type { Profile } from '../../profile/types.js';
import { alternativeChanges } from './alternative-change.js';
import { adopt } from './our-files.js';
import { inTheWay, ownedAt } from './owned.js';

export interface PublicLinks {
  readonly changes: readonly Change[];
  readonly warnings: readonly Warning[];
  readonly refusals: readonly Refusal[];
  readonly wanted: ReadonlyMap<string, string>;
}

interface Place {
  readonly candidate: LibraryCandidate;
  readonly target: string;
  readonly create: boolean;
}

/** Empty: the place is right as it is. */
type Verdict = Partial<Pick<PublicLinks, 'changes' | 'warnings' | 'refusals'>>;

export function publicLinks(profile: Profile, facts: MachineFacts): PublicLinks {
  const places = publicPlaces(profile, facts);
  const wanted = new Map(places.map((place) => [place.candidate.path, place.target]));
  const alternatives = alternativeChanges(facts, wanted);
  const changes: Change[] = [];
  const warnings: Warning[] = [];
  const refusals: Refusal[] = [];
  for (const place of places) {
    const verdict = judge(place, facts, wanted, alternatives.links);
    changes.push(...(verdict.changes ?? []));
    warnings.push(...(verdict.warnings ?? []));
    refusals.push(...(verdict.refusals ?? []));
    const { state } = place.candidate;
    if (state.kind === 'link' && state.target === place.target)
      changes.push(...adopt(facts, place.candidate));
  }
  // A file in the place of a slave link is replaced first: update-alternatives would leave it.
  return { changes: [...changes, ...alternatives.changes], warnings, refusals, wanted };
}

/** Second names of one directory (`/lib` on merged /usr) have no candidate of their own. */
function publicPlaces(profile: Profile, facts: MachineFacts): readonly Place[] {
  const byPath = new Map(facts.candidates.map((candidate) => [candidate.path, candidate]));
  const places: Place[] = [];
  for (const directory of publicDirectories(profile, facts.distribution)) {
    for (const [name, stored] of Object.entries(profile.publicLinks.names)) {
      const candidate = byPath.get(path.join(directory.path, name));
      if (candidate === undefined) continue;
      places.push({ candidate, target: path.join(storeCurrent, stored), create: directory.create });
    }
  }
  return places;
}

function judge(
  place: Place,
  facts: MachineFacts,
  wanted: ReadonlyMap<string, string>,
  slaves: ReadonlyMap<string, string>,
): Verdict {
  const { candidate, target, create } = place;
  const { state } = candidate;
  const slave = slaves.get(candidate.path);
  switch (state.kind) {
    case 'absent': {
      if (slave !== undefined) return {};
      if (ldconfigSets(candidate, facts)) {
        return ldconfigLink(place, 'it does not exist yet, but ldconfig will set it', facts);
      }
      if (ownedAt(facts.manifest, candidate.path) !== undefined)
        return link(place, 'it was removed since the last install');
      return create ? link(place, 'programs look for it here, and there is no such file') : {};
    }
    case 'link':
      if (slave !== undefined) return {};
      return judgeLink(place, state.target, facts, wanted);
    case 'file':
      if (candidate.ownerOfPath !== null) return { warnings: [packagedFile(candidate)] };
      if (slave === undefined && ldconfigSets(candidate, facts)) {
        return ldconfigLink(place, fileReason(candidate), facts);
      }
      return link({ ...place, target: slave ?? target }, fileReason(candidate));
    case 'directory':
      if (!state.empty) return { refusals: inTheWay(candidate.path, state, 'link') };
      return link(
        { ...place, target: slave ?? target },
        'an empty directory is in the way (containers can leave one)',
      );
    case 'other':
      return { refusals: inTheWay(candidate.path, state, 'link') };
  }
}

function judgeLink(
  place: Place,
  present: string,
  facts: MachineFacts,
  wanted: ReadonlyMap<string, string>,
): Verdict {
  const { candidate, target } = place;
  if (ldconfigSets(candidate, facts)) return ldconfigLink(place, linkReason(candidate, present), facts);
  if (present === target) return {};
  if (leadsToRightOne(place, present, facts, wanted)) return {};
  const verdict = link(place, linkReason(candidate, present));
  if (candidate.ownerOfPath === null) return verdict;
  return { ...verdict, warnings: [packagedLink(candidate)] };
}

/** `libcuda.so -> libcuda.so.1`: right as soon as the other one is, which must not lean on this one in turn. */
function leadsToRightOne(
  { candidate, target }: Place,
  present: string,
  facts: MachineFacts,
  wanted: ReadonlyMap<string, string>,
): boolean {
  const next = path.resolve(path.dirname(candidate.path), present);
  if (next === candidate.path || candidate.resolution.kind === 'loop' || wanted.get(next) !== target)
    return false;
  const other = facts.candidates.find((one) => one.path === next);
  return other !== undefined && other.state.kind !== 'absent';
}

/** Ubuntu's layout: versioned libraries beside the link, or a link that leads to where one was. */
function ldconfigSets(candidate: LibraryCandidate, facts: MachineFacts): boolean {
  const { resolution } = candidate;
  const steps =
    resolution.kind === 'absent'
      ? []
      : resolution.steps.map((step) => path.resolve(path.dirname(step.path), step.target));
  return [...steps, ...facts.candidates.map((other) => other.path)].some((other) =>
    isVersionOf(candidate.path, other),
  );
}

function ldconfigLink(place: Place, found: string, facts: MachineFacts): Verdict {
  const { candidate, target } = place;
  const { state } = candidate;
  const versioned = highestName(candidate.path);
  const name = path.basename(versioned);
  const there = stateOf(versioned, candidate, facts);
  const changes: Change[] = [];
  if (there.kind !== 'link' || there.target !== target) {
    const reason = `ldconfig sets ${path.basename(candidate.path)} to the highest version here at every run; this is the highest`;
    changes.push({ kind: 'write-link', path: versioned, target, before: there, reason });
  }
  if (state.kind !== 'link' || state.target !== name)
    changes.push(linkChange(candidate, name, `${found}; ldconfig keeps the new link`));
  return { changes };
}

/** Its own candidate if it is listed, else what the way from `candidate` shows of it. */
function stateOf(file: string, candidate: LibraryCandidate, facts: MachineFacts): PathState {
  const listed = facts.candidates.find((other) => other.path === file);
  if (listed !== undefined) return listed.state;
  if (candidate.resolution.kind === 'absent') return { kind: 'absent' };
  const step = candidate.resolution.steps.find((one) => one.path === file);
  if (step === undefined) return { kind: 'absent' };
  return { kind: 'link', target: step.target, uid: 0, gid: 0, mtimeNs: '0' };
}

function link({ candidate, target }: Place, reason: string): Verdict {
  return { changes: [linkChange(candidate, target, reason)] };
}

function linkChange({ path, state, ownerOfPath }: LibraryCandidate, target: string, reason: string): Change {
  const owner = ownerOfPath === null ? {} : { ownerPackage: ownerOfPath };
  return { kind: 'write-link', path, target, before: state, ...owner, reason };
}

function linkReason(candidate: LibraryCandidate, present: string): string {
  const { resolution, vendor } = candidate;
  switch (resolution.kind) {
    case 'dangling':
      return `it points to ${present}, and ${resolution.missing} does not exist`;
    case 'loop':
      return `it points to ${present}, and the links form a loop`;
    case 'directory':
      return `it points to ${present}, which is a directory`;
    case 'absent':
      return `it points to ${present}`;
    case 'file': {
      if (isInStore(resolution.realPath)) {
        return `it points to ${present}, past the link that follows upgrades`;
      }
      const whose = vendor === 'nvidia' ? "NVIDIA's library" : 'another library';
      return `it leads to ${resolution.realPath}, ${whose}, which finds no GPU here`;
    }
  }
}

function fileReason(candidate: LibraryCandidate): string {
  const whose = candidate.vendor === 'nvidia' ? "NVIDIA's library" : 'another library';
  return `a regular file of no package is here (${whose}); it is kept and comes back on uninstall`;
}

function packagedFile(candidate: LibraryCandidate): Warning {
  return {
    code: 'package-owned-file',
    message: `${candidate.path} is a file of the package ${candidate.ownerOfPath ?? ''} and stays; a program that opens it by this path gets that library`,
    remedy: `remove the package ${candidate.ownerOfPath ?? ''} if nothing else needs it`,
  };
}

function packagedLink(candidate: LibraryCandidate): Warning {
  return {
    code: 'package-owned-link',
    message: `${candidate.path} is a link of the package ${candidate.ownerOfPath ?? ''}; its next upgrade may set it back`,
    remedy: 'run vgpu-agent install again after such an upgrade',
  };
}

// Ubuntu's layout: versioned libraries beside the public link, which ldconfig sets to the highest of them. Pure.

/** ldconfig links the highest version at every run: no driver will ever have this one. */
const highest = '99999.0';

/** The name by which ldconfig takes the shim for the highest version: `libcuda.so.99999.0` for `libcuda.so.1`. */
export function highestName(file: string): string {
  return file.replace(/\d+$/, highest);
}

/** Is `other` a version of the library `file`, in the same directory: `libcuda.so.550.163.01` of `libcuda.so.1`? */
export function isVersionOf(file: string, other: string): boolean {
  if (!/^lib[\w-]+\.so\.\d+$/.test(path.basename(file)) || path.dirname(other) !== path.dirname(file))
    return false;
  const stem = path.basename(file).replace(/\d+$/, '');
  const base = path.basename(other);
  return base.startsWith(stem) && /^\d+\.[\d.]+$/.test(base.slice(stem.length));
}

export function versionsBeside(file: string, facts: MachineFacts): readonly LibraryCandidate[] {
  return facts.candidates.filter(
    ({ path: other, state }) =>
      isVersionOf(file, other) && other !== highestName(file) && state.kind !== 'absent',
  );
}
