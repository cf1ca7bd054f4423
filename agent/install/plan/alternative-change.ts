/**
 * Our choice in Debian's alternatives groups. Pure. A link that update-alternatives set is set back by it at the next
 * upgrade of any package of the group; a choice of our own with a high priority stays, and goes without a trace. It
 * has to list every slave of the group: a slave that the chosen one lacks is deleted (measured).
 */
import type { AlternativeGroup, MachineFacts } from '../../contracts/facts.js';
import type { Change } from '../../contracts/plan.js';
import { own } from '../../lib/json.js';
import { storeCurrent } from '../../lib/paths.js';
import { findAlternative } from './owned.js';

const alternativePriority = 10_000;

interface Alternatives {
  readonly changes: readonly Change[];
  readonly links: ReadonlyMap<string, string>;
}

export function alternativeChanges(facts: MachineFacts, wanted: ReadonlyMap<string, string>): Alternatives {
  const links = new Map<string, string>();
  const changes: Change[] = [];
  for (const group of facts.alternatives) {
    const names = publicNames(group, facts, wanted);
    if (names.size === 0) continue;
    for (const [slave, place] of names) links.set(place.path, `/etc/alternatives/${slave}`);
    const change = changeOf(group, facts, names);
    if (change !== null) changes.push(change);
  }
  return { changes, links };
}

interface PublicName {
  readonly path: string;
  readonly target: string;
}

function publicNames(
  group: AlternativeGroup,
  facts: MachineFacts,
  wanted: ReadonlyMap<string, string>,
): ReadonlyMap<string, PublicName> {
  const names = new Map<string, PublicName>();
  for (const candidate of facts.candidates) {
    const target = wanted.get(candidate.path);
    if (target === undefined || candidate.alternative?.group !== group.name) continue;
    names.set(candidate.alternative.slave, { path: candidate.path, target });
  }
  return names;
}

function changeOf(
  group: AlternativeGroup,
  facts: MachineFacts,
  names: ReadonlyMap<string, PublicName>,
): Change | null {
  // A path of the group is what tells its choices apart; the store stands for all of vgpu-agent's.
  const ours = names.get(group.name)?.target ?? storeCurrent;
  const model = modelFor(group, facts, ours);
  const slaves = group.slaves.flatMap(({ name, link }) => {
    const path = names.get(name)?.target ?? own(model?.slaves, name);
    return path === undefined ? [] : [{ name, link, path }];
  });
  const present = group.choices.find((choice) => choice.path === ours);
  const sameSlaves =
    present !== undefined &&
    Object.keys(present.slaves).length === slaves.length &&
    slaves.every((slave) => own(present.slaves, slave.name) === slave.path);
  const stand = linksStand(facts, names);
  const inPlace = sameSlaves && present.priority === alternativePriority && group.value === ours;
  if (inPlace && stand && findAlternative(facts.manifest?.items ?? [], group.name, ours) !== undefined)
    return null;
  return {
    kind: 'alternative',
    group: group.name,
    path: ours,
    priority: alternativePriority,
    link: group.link,
    slaves,
    before: { status: group.status, value: group.value },
    reason: reasonFor(group, ours, { present: present !== undefined, sameSlaves, stand, inPlace }),
  };
}

/** The choice whose other links are copied: the one that was, or would be, in use without vgpu-agent. */
function modelFor(
  group: AlternativeGroup,
  { manifest }: MachineFacts,
  ours: string,
): AlternativeGroup['choices'][number] | undefined {
  const former = findAlternative(manifest?.items ?? [], group.name, ours)?.before.value ?? null;
  const value = group.value === ours ? former : group.value;
  const others = group.choices.filter((choice) => choice.path !== ours);
  return (
    others.find((choice) => choice.path === value) ?? others.toSorted((a, b) => b.priority - a.priority)[0]
  );
}

/** Does every slave link of the profile lead through /etc/alternatives into the store? */
function linksStand(facts: MachineFacts, names: ReadonlyMap<string, PublicName>): boolean {
  return [...names].every(([name, { path, target }]) => {
    const candidate = facts.candidates.find((other) => other.path === path);
    if (candidate?.state.kind !== 'link' || candidate.resolution.kind === 'absent') return false;
    const slave = `/etc/alternatives/${name}`;
    const last = candidate.resolution.steps.find((step) => step.path === slave);
    return candidate.state.target === slave && last?.target === target;
  });
}

function reasonFor(
  group: AlternativeGroup,
  ours: string,
  now: Readonly<Record<'present' | 'sameSlaves' | 'stand' | 'inPlace', boolean>>,
): string {
  if (!now.present) {
    const manual = group.status === 'manual' ? ' (chosen by hand; that comes back on uninstall)' : '';
    return `Debian's alternatives set these links, now to ${group.value}${manual}; a choice of vgpu-agent survives upgrades`;
  }
  if (!now.sameSlaves) return `the group ${group.name} has other links than at the install`;
  if (group.value !== ours) return `the group ${group.name} was switched to ${group.value} since the install`;
  if (now.stand) {
    return now.inPlace
      ? `vgpu-agent's choice of the group ${group.name} is set, but missing from the manifest; it is added there`
      : `vgpu-agent's choice of the group ${group.name} has another priority than install gives it`;
  }
  return `a link of the group ${group.name} was changed by hand; update-alternatives sets it again`;
}
