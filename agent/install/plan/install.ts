/**
 * The changes that make the consumer use the shim. Pure: the same facts give the same plan, and facts that are
 * as the plan would leave them give an empty one. A repair is the same plan.
 *
 * Order, so that a consumer that starts at any moment finds either the former state or the new one, each whole: first
 * the store and `current` (nothing refers to them yet; on an upgrade this one rename is the switch), then what the
 * shim reads, then what leads to it - loader, links, alternatives -, then the unit, which names it. systemd reads the
 * drop-in only at daemon-reload, and by then all that it names is there. Uninstall goes the other way round.
 */
import type { MachineFacts } from '../../contracts/facts.js';
import type { Consumer } from '../../contracts/manifest.js';
import { type Change, type Plan, type PlanOptions, told, type Warning } from '../../contracts/plan.js';
import type { LoadedUnit } from '../../contracts/unit.js';
import { storeCurrent } from '../../lib/paths.js';
import type { Profile } from '../../profile/types.js';
import {
  cdiChanges,
  containerWarnings,
  deliveryOf,
  isOwnCdi,
  quadletChanges,
  quadletInForce,
} from './container.js';
import { dropInChanges, inForce, wantedVariables } from './drop-in.js';
import { guestConfChange, loaderConfChange, retireChanges, storeChanges } from './our-files.js';
import { isNoted, withConsumer, withoutConsumer } from './owned.js';
import { publicLinks } from './public-links.js';
import { installRefusals, installWarnings, maskRefusals } from './refusals.js';
import { reloadChange, restartChange } from './restart.js';
import { servicePlan } from './service.js';
import { vmMemoryChanges, vmMemoryWarnings } from './vm-memory.js';

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
  const vmMemory = vmMemoryChanges(facts, endpoint);
  const service = servicePlan(facts, options, options.endpoint);
  const quadlet = delivery?.kind === 'quadlet' ? [delivery.dropIn.path] : [];
  const consumer = {
    profile: profile.name,
    unit: unit.name,
    links: [...links.wanted.keys(), ...quadlet],
  };
  const made = [
    ...store,
    ...guestConfChange(facts, endpoint),
    ...cdi,
    ...vmMemory,
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
  const masked = maskRefusals(made);
  if (masked.length > 0) return { kind: 'refused', refusals: masked, warnings: interruptedWarning(facts) };
  // Files of an older plan that this one does not need are removed only together with other changes.
  const changes = made.length === 0 ? noteChange(facts, consumer) : [...made, ...retireChanges(facts)];
  // The agent's own service and other users' containers are no reason to restart this consumer.
  const forOthers = [
    ...service.files,
    ...vmMemory,
    ...cdi.filter((change) => delivery === null || !isOwnCdi(change)),
  ];
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
      ...(delivery?.kind === 'by-hand' && unit.activeState === 'active'
        ? []
        : restartChange(
            facts,
            unit,
            variables,
            options,
            changes.filter((change) => !forOthers.includes(change)),
          )),
      ...service.run,
    ],
    warnings: [
      ...interruptedWarning(facts),
      ...otherHostWarning(facts, unit, endpoint),
      ...links.warnings,
      ...containerWarnings(delivery, unit),
      ...installWarnings(facts, unit, endpoint, variables, profile),
      ...vmMemoryWarnings(facts, endpoint),
    ],
  };
}

/** The first thing a person has to know of a machine where a run was cut short. */
export function interruptedWarning({ interrupted }: Pick<MachineFacts, 'interrupted'>): readonly Warning[] {
  if (!interrupted) return [];
  return told(
    'interrupted-run',
    'an earlier run was interrupted; vgpu-agent cleans up after it first, and the plan may change then',
    null,
  );
}

function ldconfigChange(facts: MachineFacts, profile: Profile, before: readonly Change[]): readonly Change[] {
  const links = before.some((change) => change.kind !== 'adopt' && change.kind !== 'make-directory');
  if (links) {
    const reason = 'the loader finds libraries by its cache, which ldconfig rebuilds';
    return [{ kind: 'ldconfig', links: false, reason }];
  }
  const wanted = new Set(Object.values(profile.publicLinks.names).map((name) => `${storeCurrent}/${name}`));
  const missing = [...wanted].find((path) => !facts.loader.cache.some((entry) => entry.path === path));
  if (missing === undefined) return [];
  return [{ kind: 'ldconfig', links: false, reason: `the loader's cache does not have ${missing} yet` }];
}

/** Everything is there already, made for another consumer or by a former version, but the manifest does not say so. */
function noteChange({ manifest }: MachineFacts, consumer: Consumer): readonly Change[] {
  if (isNoted(manifest, consumer)) return [];
  const reason = 'everything that it needs is installed; the manifest now lists this consumer too';
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
  return told(
    'host-for-all',
    `the host is the same for all consumers: ${others.join(' and ')} will be served by ${endpoint} too, from the next start on`,
    null,
  );
}
