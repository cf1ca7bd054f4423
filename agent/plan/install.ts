/**
 * What has to be done so that the consumer uses the shim. Pure: the same facts give the same plan, and facts that are
 * as the plan would leave them give an empty one. A repair is the same plan.
 *
 * Order, so that a consumer that starts at any moment finds either the former state or the new one, each whole: first
 * the store and `current` (nothing refers to them yet; on an upgrade this one rename is the switch), then what the
 * shim reads, then what leads to it - loader, links, alternatives -, then the unit, which names it. systemd reads the
 * drop-in only at daemon-reload, and by then all that it names is there. Uninstall goes the other way round.
 */
import { createHash } from 'node:crypto';
import type { MachineFacts, OwnedFileFacts } from '../contracts/facts.js';
import type { Consumer } from '../contracts/manifest.js';
import type { Change, Plan, PlanOptions, Warning } from '../contracts/plan.js';
import type { LoadedUnit } from '../contracts/unit.js';
import { dropInPath, storeCurrent, storeRoot, storeVersions } from '../paths.js';
import type { Profile } from '../profile/types.js';
import { cdiChanges, isOwnCdi, wantedCdi } from './cdi.js';
import { isNoted, withConsumer, withoutConsumer } from './consumers.js';
import {
  containerWarnings,
  type Delivery,
  deliveryOf,
  quadletChanges,
  quadletDropInText,
  quadletInForce,
} from './container.js';
import { inForce, lastDropInPath, type WantedVariable, wantedDropIns, wantedVariables } from './drop-in.js';
import {
  guestConfChange,
  guestConfText,
  loaderConfChange,
  loaderConfText,
  readableChange,
  writeChange,
} from './our-files.js';
import { itemsOfVersion } from './owned.js';
import { type PublicLinks, publicLinks } from './public-links.js';
import { installRefusals } from './refusals.js';
import { outdatedReason } from './restart.js';
import { servicePlan } from './service.js';
import { installWarnings } from './warnings.js';

export function planInstall(profile: Profile, facts: MachineFacts, options: PlanOptions): Plan {
  const endpoint = options.endpoint ?? facts.host.endpoint;
  const links = publicLinks(profile, facts);
  const refusals = [...installRefusals(facts, options, endpoint), ...links.refusals];
  const { unit } = facts;
  if (refusals.length > 0 || unit.kind !== 'loaded') {
    return { kind: 'refused', refusals, warnings: interruptedWarning(facts) };
  }
  const delivery = deliveryOf(facts, unit);
  const variables = wantedVariables(profile, facts, unit);
  const store = storeChanges(facts);
  const loader = [...loaderConfChange(facts), ...links.changes];
  const dropIns =
    delivery === null ? dropInChanges(profile, facts, unit, variables) : quadletChanges(facts, delivery);
  const cdi = cdiChanges(facts, endpoint);
  const service = servicePlan(facts, options, options.endpoint);
  const quadlet = delivery?.kind === 'quadlet' ? [delivery.dropIn.path] : [];
  const consumer = {
    profile: profile.name,
    unit: unit.name,
    links: [...links.wanted.keys(), ...quadlet],
  };
  const made = [
    ...adoptChanges(facts, wantedFiles(profile, facts, unit, variables, endpoint, delivery), links),
    ...store,
    ...guestConfChange(facts, endpoint),
    ...cdi,
    ...loader,
    ...ldconfigChange(facts, profile, [...store, ...loader]),
    ...dropIns,
    ...service.files,
    ...reloadChange(
      inForce(unit, variables) && (delivery === null || quadletInForce(unit, delivery)),
      dropIns,
      service.reload,
    ),
  ];
  // What an older plan made and this one does not want is given back only together with other work.
  const changes = made.length === 0 ? noteChange(facts, consumer) : [...made, ...retireChanges(facts)];
  return {
    kind: 'ready',
    intent: 'install',
    profile: profile.name,
    unit: unit.name,
    storeId: facts.shim.id,
    endpoint,
    consumers: withConsumer(facts.manifest, consumer),
    changes: [
      ...changes,
      ...restartChange(
        facts,
        unit,
        variables,
        options,
        concerning(changes, [
          ...service.files,
          ...cdi.filter((change) => !(delivery !== null && isOwnCdi(change))),
        ]),
      ),
      ...service.run,
    ],
    warnings: [
      ...interruptedWarning(facts),
      ...otherHostWarning(facts, unit, endpoint),
      ...links.warnings,
      ...containerWarnings(delivery),
      ...installWarnings(facts, unit, endpoint, variables),
    ],
  };
}

/** The first thing a person has to know of a machine where a run was cut short. */
export function interruptedWarning(facts: MachineFacts): readonly Warning[] {
  if (!facts.interrupted) return [];
  return [
    {
      code: 'interrupted-run',
      message:
        'a former run was cut short; what it left is cleared up before anything else, and the plan may change',
      remedy: null,
    },
  ];
}

/** Our small files as they should be, to tell what is ours where the manifest was lost. */
function wantedFiles(
  profile: Profile,
  facts: MachineFacts,
  unit: LoadedUnit,
  variables: readonly WantedVariable[],
  endpoint: string,
  delivery: Delivery | null,
): readonly WantedFile[] {
  const small = [
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

function storeChanges(facts: MachineFacts): readonly Change[] {
  const { store, shim } = facts;
  const changes: Change[] = [];
  if (store.root.kind === 'absent') {
    const reason = 'everything that vgpu-agent installs is under this one directory';
    changes.push({ kind: 'make-directory', path: storeRoot, mode: 0o755, reason });
    changes.push({ kind: 'make-directory', path: storeVersions, mode: 0o755, reason });
  }
  const version = store.versions.find((one) => one.id === shim.id);
  if (version === undefined) {
    changes.push({
      kind: 'store',
      shim,
      reason: `version ${shim.version} of the shim is not in the store yet`,
    });
  } else if (!version.intact) {
    const reason = 'files of this version are missing or are not what was installed; they are written again';
    changes.push({ kind: 'store', shim, reason });
  } else if (!isOwned(facts, `${storeVersions}/${shim.id}`)) {
    const reason = 'it is in the store, but no manifest names it; it is noted down';
    changes.push({ kind: 'store', shim, reason });
  }
  const target = `versions/${shim.id}`;
  if (store.current.kind !== 'link' || store.current.target !== target) {
    const from = store.current.kind === 'link' ? `, is ${store.current.target} now` : '';
    changes.push({
      kind: 'write-link',
      path: storeCurrent,
      target,
      before: store.current,
      ownerPackage: null,
      reason: `the version in use${from}; everything installed goes through this link`,
    });
  } else if (!isOwned(facts, storeCurrent)) {
    const reason = 'it leads to our store, but no manifest names it; it is noted down';
    changes.push({ kind: 'adopt', path: storeCurrent, state: store.current, reason });
  }
  return changes;
}

function dropInChanges(
  profile: Profile,
  facts: MachineFacts,
  unit: LoadedUnit,
  variables: readonly WantedVariable[],
): readonly Change[] {
  const wanted = wantedDropIns(profile, unit, variables);
  const libraries = variables.filter((variable) => variable.preflight === 'library');
  const preflight = {
    user: facts.serviceUser,
    required: libraries.flatMap((variable) => variable.entries),
    inherited: libraries
      // The loader splits LD_PRELOAD at blanks too.
      .flatMap((variable) => variable.inherited.flatMap((entry) => entry.split(' ')))
      .filter((entry) => entry.startsWith('/') && !entry.includes('%') && !entry.includes('$')),
  };
  const changes: Change[] = [];
  for (const { path, content, reason } of wanted) {
    const present = presentDropIn(facts, unit, path);
    if (present.content === content) changes.push(...readableChange(present, 'tools of every user read it'));
    else changes.push(writeChange(present, content, reason, preflight));
  }
  const last = lastDropInPath(unit.name);
  const owned = facts.manifest?.items.find((item) => item.kind === 'file' && item.path === last);
  if (owned?.kind === 'file' && !wanted.some((one) => one.path === last)) {
    const reason = 'no other drop-in sets the same variables any more';
    changes.push({ kind: 'remove-owned', path: last, restores: owned.before, reason });
  }
  return changes;
}

/** The facts list the first drop-in by itself; another is known from what systemd has read. */
function presentDropIn(facts: MachineFacts, unit: LoadedUnit, path: string): OwnedFileFacts {
  if (path === dropInPath(unit.name)) return facts.dropIn;
  const loaded = unit.dropIns.find((dropIn) => dropIn.path === path);
  if (loaded === undefined) return { path, state: { kind: 'absent' }, content: null };
  const { content } = loaded;
  const sha256 = createHash('sha256').update(content).digest('hex');
  const owner = { uid: 0, gid: 0, mtimeNs: '0' };
  const state = { kind: 'file' as const, size: Buffer.byteLength(content), sha256, mode: 0o644, ...owner };
  return { path, state, content };
}

/**
 * Where a manifest was lost (there is a store in use, and none): what is exactly as we make it is ours. Without a
 * store nobody installed, and a file that happens to be the same is somebody's own.
 */
function adoptChanges(
  facts: MachineFacts,
  files: readonly WantedFile[],
  links: PublicLinks,
): readonly Change[] {
  const { manifest, store } = facts;
  if (manifest !== null || store.current.kind !== 'link' || store.versions.length === 0) return [];
  const reason = 'it is as install makes it, but no manifest names it; it is noted down';
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

interface WantedFile {
  readonly present: OwnedFileFacts;
  readonly content: string;
}

function isOwned({ manifest }: MachineFacts, path: string): boolean {
  return manifest?.items.some((item) => item.kind !== 'alternative' && item.path === path) ?? false;
}

function ldconfigChange(facts: MachineFacts, profile: Profile, before: readonly Change[]): readonly Change[] {
  const links = before.some((change) => change.kind !== 'adopt' && change.kind !== 'make-directory');
  if (links) {
    const reason = 'the loader finds libraries by its cache, which is built again';
    return [{ kind: 'ldconfig', links: false, reason }];
  }
  const wanted = new Set(Object.values(profile.publicLinks.names).map((name) => `${storeCurrent}/${name}`));
  const missing = [...wanted].find((path) => !facts.loader.cache.some((entry) => entry.path === path));
  if (missing === undefined) return [];
  return [{ kind: 'ldconfig', links: false, reason: `the loader's cache does not have ${missing} yet` }];
}

/** What concerns only the service of ours, or only containers, is no reason to restart another consumer. */
function concerning(changes: readonly Change[], others: readonly Change[]): readonly Change[] {
  return changes.filter((change) => !others.includes(change));
}

function reloadChange(inForce: boolean, dropIns: readonly Change[], service: boolean): readonly Change[] {
  if (dropIns.some((change) => change.kind === 'write-file' || change.kind === 'remove-owned')) {
    return [{ kind: 'daemon-reload', reason: 'systemd reads drop-ins only then' }];
  }
  if (service) return [{ kind: 'daemon-reload', reason: 'systemd reads unit files only then' }];
  if (inForce) return [];
  return [{ kind: 'daemon-reload', reason: 'the drop-in is there, but systemd has not read it yet' }];
}

/** Versions that nothing refers to any more. One that a process still uses is kept by the sweep. */
function retireChanges({ store, shim, manifest }: MachineFacts): readonly Change[] {
  return store.versions.flatMap(({ id }): readonly Change[] => {
    if (id === shim.id || itemsOfVersion(manifest?.items ?? [], id).length === 0) return [];
    return [
      { kind: 'remove-store', id, reason: 'a former version; it goes when no process uses it any more' },
    ];
  });
}

function restartChange(
  facts: MachineFacts,
  unit: LoadedUnit,
  variables: readonly WantedVariable[],
  options: PlanOptions,
  changes: readonly Change[],
): readonly Change[] {
  if (!options.restart) return [];
  const reason = changes.some((change) => concernsConsumer(facts, change))
    ? 'a program looks for GPUs once, at its start'
    : outdatedReason(facts, unit, variables);
  return reason === null ? [] : [{ kind: 'restart', unit: unit.name, reason }];
}

/** Would a start now go differently from one before? */
function concernsConsumer({ store, shim }: MachineFacts, change: Change): boolean {
  switch (change.kind) {
    case 'write-file':
      // Only its mode is set right: what the running one has read was the same.
      return change.content !== change.previousContent;
    case 'write-link':
      // A name for linkers where there was none: a running program found the library by its other name, or in vain.
      return !(change.before.kind === 'absent' && change.path.endsWith('.so'));
    case 'alternative':
    case 'remove-owned':
      return true;
    case 'store':
      return !store.versions.some((version) => version.id === shim.id && version.intact);
    default:
      return false;
  }
}

/** Everything is there already, made for another consumer or by a former version, but the manifest does not say so. */
function noteChange({ manifest }: MachineFacts, consumer: Consumer): readonly Change[] {
  if (isNoted(manifest, consumer)) return [];
  const reason = 'everything that it needs is there; the manifest says from now on that it is for it, too';
  return [{ kind: 'note-consumer', unit: consumer.unit, reason }];
}

/** The host is one for the whole guest: guest.conf names it. */
function otherHostWarning(
  { manifest }: MachineFacts,
  unit: LoadedUnit,
  endpoint: string,
): readonly Warning[] {
  const others = withoutConsumer(manifest, unit.name).map((one) => one.unit);
  if (manifest === null || manifest.endpoint === endpoint || others.length === 0) return [];
  return [
    {
      code: 'host-for-all',
      message: `the host is the same for all consumers: ${others.join(' and ')} will be served by ${endpoint} too, from the next start on`,
      remedy: null,
    },
  ];
}
