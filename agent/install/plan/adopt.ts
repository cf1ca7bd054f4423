/** The entries that are noted as installed after the manifest was lost. Pure. */
import type { MachineFacts, OwnedFileFacts } from '../../contracts/facts.js';
import type { Change } from '../../contracts/plan.js';
import type { LoadedUnit } from '../../contracts/unit.js';
import { storeRoot, storeVersions } from '../../lib/paths.js';
import type { Profile } from '../../profile/types.js';
import { wantedCdi } from './cdi.js';
import { type Delivery, quadletDropInText } from './container.js';
import { guestConfText, loaderConfText } from './our-files.js';
import type { PublicLinks } from './public-links.js';
import { type WantedVariable, wantedDropIns } from './unit/drop-in.js';
import { presentDropIn } from './unit/drop-in-changes.js';
import { wantedVmMemoryRule } from './vm-memory.js';

interface WantedFile {
  readonly present: OwnedFileFacts;
  readonly content: string;
}

/**
 * Where the manifest was lost (a store is in use, and there is no manifest), files that are exactly as install makes them
 * are noted down. Without a store nothing was installed, and such a file belongs to a person.
 */
export function adoptChanges(
  facts: MachineFacts,
  files: readonly WantedFile[],
  links: PublicLinks,
): readonly Change[] {
  const { manifest, store } = facts;
  if (manifest !== null || store.current.kind !== 'link' || store.versions.length === 0) return [];
  const reason = 'it is as install makes it, but no manifest lists it; the manifest lists it now';
  const directories = [storeRoot, storeVersions].map((path) => ({ path, state: store.root }));
  const present = files.filter((file) => file.present.content === file.content).map((file) => file.present);
  const linked = facts.candidates.filter(
    ({ path, state }) => state.kind === 'link' && state.target === links.wanted.get(path),
  );
  return [...directories, ...present, ...linked].map(({ path, state }) => ({
    kind: 'adopt',
    path,
    state,
    reason,
  }));
}

/** The small files of vgpu-agent as install makes them. */
export function wantedFiles(
  profile: Profile,
  facts: MachineFacts,
  unit: LoadedUnit,
  variables: readonly WantedVariable[],
  endpoint: string,
  delivery: Delivery | null,
): readonly WantedFile[] {
  const rule = wantedVmMemoryRule(facts, endpoint);
  const small = [
    ...(rule === null ? [] : [rule]),
    { present: facts.guestConf, content: guestConfText(endpoint) },
    { present: facts.loaderConf, content: loaderConfText },
    ...wantedCdi(facts, endpoint).flatMap(({ present, content }) =>
      content === null ? [] : [{ present, content }],
    ),
  ];
  if (delivery !== null) {
    const { dropIn = null } = delivery.kind === 'quadlet' ? delivery : {};
    return dropIn === null ? small : [...small, { present: dropIn, content: quadletDropInText }];
  }
  return [
    ...small,
    ...wantedDropIns(profile, unit, variables).map(({ path, content }) => ({
      present: presentDropIn(facts, unit, path),
      content,
    })),
  ];
}
