/**
 * The changes that restore the machine as it was before the first install. Pure.
 *
 * The way back of install: first the unit forgets us (drop-in, daemon-reload), then nothing leads to the store any
 * more (alternatives, links, loader), then the store goes. A consumer that starts in between finds the shim whole or
 * not at all.
 */
import path from 'node:path';
import { containerOf } from '../../containers/container-unit.js';
import type { MachineFacts, OwnedFileFacts } from '../../contracts/facts.js';
import { type OwnedItem, sameContent } from '../../contracts/manifest.js';
import { type Change, type Plan, type PlanOptions, told, type Warning } from '../../contracts/plan.js';
import {
  agentConf,
  agentUnit,
  agentUnitFile,
  agentUnitLink,
  busPolicyFile,
  catalogFile,
  guestConf,
  isInStore,
  polkitFile,
  storeCurrent,
  storeRoot,
  storeVersions,
} from '../../lib/paths.js';
import type { Profile } from '../../profile/types.js';
import { deliveryOf, isOwnCdi } from './container.js';
import { interruptedWarning } from './install.js';
import { loaderConfText, writeChange } from './our-files.js';
import {
  findConsumer,
  findItem,
  itemsOfVersion,
  itemsOnlyFor,
  ownedAt,
  removeDirectories,
  staysEdited,
  withoutConsumer,
} from './owned.js';
import { isVersionOf, versionsBeside } from './public-links.js';
import { leansOnStore, unitChange } from './restart.js';
import { serviceText } from './service.js';

const serviceFiles: ReadonlySet<string> = new Set([agentConf, busPolicyFile, catalogFile, polkitFile]);

type PlacedItem = Extract<OwnedItem, { kind: 'file' | 'link' }>;

/** Uses only the option `restart`. */
export function planUninstall(
  profile: Profile,
  facts: MachineFacts,
  options: Pick<PlanOptions, 'restart'>,
): Plan {
  const { manifest } = facts;
  const { unit } = profile;
  const consumers = withoutConsumer(manifest, unit);
  const last = consumers.length === 0;
  const items = manifest === null ? [] : last ? manifest.items : itemsOnlyFor(manifest, unit);
  const service = serviceWithout(facts, unit, last);
  const changes = manifest === null ? leftoverChanges(facts) : ownedChanges(facts, items, service.files);
  return {
    kind: 'ready',
    intent: 'uninstall',
    profile: findConsumer(manifest, unit)?.profile ?? profile.name,
    unit,
    storeId: manifest?.storeId ?? '',
    endpoint: manifest?.endpoint ?? facts.host.endpoint,
    consumers,
    changes: [...changes, ...restartChange(facts, unit, options, changes), ...service.run],
    warnings: [
      ...interruptedWarning(facts),
      ...(manifest === null
        ? traceWarnings(facts)
        : editWarnings([facts.dropIn, facts.loaderConf, facts.guestConf], items)),
      ...notInstalledWarning(facts, unit),
      ...deviceWarnings(facts, changes),
    ],
  };
}

function notInstalledWarning({ manifest }: MachineFacts, unit: string): readonly Warning[] {
  if (manifest === null || findConsumer(manifest, unit) !== undefined) return [];
  const installed = manifest.consumers.map((one) => `${one.unit} (profile ${one.profile})`).join(', ');
  return told(
    'not-installed',
    `nothing is installed for ${unit}; installed for: ${installed}`,
    'name one of them with --unit, or all with --all',
  );
}

/** Other changes of vgpu-agent.service are left to the next install. */
const nothing: ServiceChanges = { files: [], run: [] };

interface ServiceChanges {
  readonly files: readonly Change[];
  readonly run: readonly Change[];
}

/** The service goes on for the other consumers; its unit lists them in Before=. */
function serviceWithout(facts: MachineFacts, unit: string, last: boolean): ServiceChanges {
  const { service, manifest } = facts;
  if (ownedAt(manifest, agentUnitFile) === undefined) return nothing;
  if (last) return { files: [], run: [unitChange(agentUnit, 'stop', 'no consumer remains')] };
  if (service === undefined || findConsumer(manifest, unit) === undefined) return nothing;
  const consumers = service.consumers.filter((one) => one.unit !== unit);
  const files = service.files.flatMap((file) => {
    if (file.present.path !== agentUnitFile) return [];
    const text = serviceText(service, file, { consumers });
    if (file.present.content === text) return [];
    return [writeChange(file.present, text, 'it lists the consumers that remain')];
  });
  const run = files.length === 0 ? [] : [unitChange(agentUnit, 'restart', 'its unit file has changed')];
  return { files, run };
}

function ownedChanges(
  facts: MachineFacts,
  items: readonly OwnedItem[],
  written: readonly Change[],
): readonly Change[] {
  const reversed = [...items].reverse();
  const placed = reversed.filter((item) => item.kind === 'file' || item.kind === 'link');
  const dropIns = placed.filter(
    ({ path: file }) => file.startsWith('/etc/systemd/') || file.startsWith('/etc/containers/systemd/'),
  );
  const inStore = placed.filter((item) => isInStore(item.path));
  const configuration = placed.filter((item) => item.path === guestConf || serviceFiles.has(item.path));
  const loader = placed.filter(
    (item) => !dropIns.includes(item) && !inStore.includes(item) && !configuration.includes(item),
  );
  const alternatives = reversed.filter((item) => item.kind === 'alternative');
  const leads = loader.length + alternatives.length > 0;
  return [
    ...dropIns.map((item) =>
      giveBack(
        item,
        item.path === agentUnitFile || item.path === agentUnitLink
          ? 'the service does not exist any more'
          : 'the unit no longer names the shim',
      ),
    ),
    ...written,
    ...(dropIns.length + written.length > 0
      ? [reload('systemd unloads the drop-in only when it reloads')]
      : []),
    ...alternatives.map(
      ({ group, path }): Change => ({
        kind: 'remove-alternative',
        group,
        path,
        reason: 'the links of the group go back to the choice that was in use before',
      }),
    ),
    ...loader.map((item) => giveBack(item, backReason(item))),
    ...(leads ? [ldconfig(loader, facts)] : []),
    ...configuration.map((item) =>
      giveBack(
        item,
        item.path === guestConf
          ? 'no remaining consumer uses the host'
          : 'the service does not exist any more',
      ),
    ),
    ...inStore
      .filter((item) => item.path === storeCurrent)
      .map((item) => giveBack(item, 'no link or setting refers to the store any more')),
    ...facts.store.versions
      .filter(({ id }) => itemsOfVersion(items, id).length > 0)
      .map(
        ({ id }): Change => ({
          kind: 'remove-store',
          id,
          reason: 'no link or setting refers to it any more',
        }),
      ),
    // A directory of a version goes with it.
    ...removeDirectories(reversed.filter(({ path }) => !path.startsWith(`${storeVersions}/`))),
  ];
}

export function giveBack(item: PlacedItem, reason: string): Change {
  return { kind: 'remove-owned', path: item.path, restores: item.before, reason };
}

export function backReason({ before }: PlacedItem): string {
  switch (before.kind) {
    case 'absent':
      return 'nothing was here before';
    case 'link':
      return `it was a link to ${before.target} before`;
    default:
      return `the ${before.kind} that was here before comes back`;
  }
}

/**
 * Where ldconfig sets the links itself, it has to set them once more if the driver's package was upgraded since: the
 * link that comes back would dangle. Only then: setting links, it also deletes every link that dangles, and some of
 * these may be what was there before the install.
 */
function ldconfig(loader: readonly PlacedItem[], facts: MachineFacts): Change {
  const links = loader.some((item) => wasUpgraded(item, facts));
  return { kind: 'ldconfig', links, reason: "the loader's cache no longer has the store" };
}

/** Does the item's former link lead to a version that is gone, while another one is there? */
function wasUpgraded({ path: file, before }: PlacedItem, facts: MachineFacts): boolean {
  if (before.kind !== 'link') return false;
  const former = path.resolve(path.dirname(file), before.target);
  if (!isVersionOf(file, former)) return false;
  const versions = versionsBeside(file, facts);
  return versions.length > 0 && !versions.some((version) => version.path === former);
}

function reload(reason: string): Change {
  return { kind: 'daemon-reload', reason };
}

/** Nothing is installed. systemd may still have in force what a killed run took away. */
function leftoverChanges({ unit, dropIn }: MachineFacts): readonly Change[] {
  if (unit.kind !== 'loaded' || dropIn.state.kind !== 'absent') return [];
  const stale = Object.values(unit.environment).some((value) => value.includes(`${storeRoot}/`));
  return stale &&
    !unit.dropIns.some((one) => one.content.includes(`${storeRoot}/`)) &&
    !unit.fragmentContent?.includes(`${storeRoot}/`)
    ? [reload('the drop-in is removed, but systemd still has it loaded')]
    : [];
}

function restartChange(
  facts: MachineFacts,
  name: string,
  options: Pick<PlanOptions, 'restart'>,
  changes: readonly Change[],
): readonly Change[] {
  const { unit } = facts;
  if (!options.restart || unit.kind !== 'loaded' || unit.name !== name) return [];
  if (unit.activeState === 'inactive' || unit.activeState === 'failed') return [];
  // It would have the device again, or not start without it.
  if (asksItself(facts)) return [];
  const reason = changes.some((change) => change.kind === 'daemon-reload')
    ? 'it still runs with the environment of the drop-in'
    : leansOnStore(facts);
  return reason === null ? [] : [{ kind: 'restart', unit: name, reason }];
}

/** The container asks for the device by itself, which an uninstall does not change. */
function asksItself(facts: MachineFacts): boolean {
  return facts.unit.kind === 'loaded' && deliveryOf(facts, facts.unit)?.kind === 'own';
}

function deviceWarnings(facts: MachineFacts, changes: readonly Change[]): readonly Warning[] {
  const { unit } = facts;
  if (unit.kind !== 'loaded' || !asksItself(facts)) return [];
  const where = containerOf(unit)?.quadlet ?? unit.fragment;
  const then = changes.some(isOwnCdi) ? 'does not start again until that is removed' : 'keeps it';
  return told(
    'container-asks-for-device',
    `${unit.name} asks for the GPU in ${where}, and ${then}`,
    `take the device out of ${where}, then: systemctl daemon-reload and systemctl restart ${unit.name}`,
  );
}

export function editWarnings(
  files: readonly OwnedFileFacts[],
  items: readonly OwnedItem[],
): readonly Warning[] {
  return files.flatMap(({ path, state }) => {
    const item = findItem(items, path);
    if (item === undefined || state.kind !== 'file' || sameContent(item, state)) return [];
    const kept = staysEdited(item, state) ? 'it stays' : `the edited text is kept as ${path}.vgpu-save`;
    const message = `${path} was edited since vgpu-agent wrote it; ${kept}`;
    return [{ code: 'edited-file', message, remedy: null }];
  });
}

function traceWarnings(facts: MachineFacts): readonly Warning[] {
  const traces = [
    ...(facts.store.versions.length > 0 ? [storeRoot] : []),
    ...(facts.loaderConf.content === loaderConfText ? [facts.loaderConf.path] : []),
    ...(facts.dropIn.content?.includes(`${storeCurrent}/`) ? [facts.dropIn.path] : []),
  ];
  if (traces.length === 0) return [];
  return told(
    'unowned-traces',
    `no manifest lists anything here, but this was found: ${traces.join(', ')}`,
    'run vgpu-agent install, which adopts it, and then vgpu-agent uninstall',
  );
}
