/** Facts that a person should know and the plan cannot repair. Pure. */
import path from 'node:path';
import lt from 'semver/functions/lt.js';
import valid from 'semver/functions/valid.js';
import { editCommand, isContainer } from '../../containers/container-unit.js';
import type { MachineFacts } from '../../contracts/facts.js';
import { told, type Warning } from '../../contracts/plan.js';
import type { LoadedUnit } from '../../contracts/unit.js';
import { splitHosts } from '../../guest/vgpu-host/endpoint.js';
import { agentUnitFile, loaderConf } from '../../lib/paths.js';
import type { Profile } from '../../profile/types.js';
import { overridesOf } from '../../systemd/unit-environment.js';
import { journalBypass } from '../../systemd/unit-facts.js';
import { hostsObstacles } from '../../systemd/unit-sandbox.js';
import type { WantedVariable } from './drop-in.js';
import { ownedAt } from './owned.js';

export function installWarnings(
  facts: MachineFacts,
  unit: LoadedUnit,
  endpoint: string,
  variables: readonly WantedVariable[],
  profile: Profile,
): readonly Warning[] {
  return [
    ...hostWarnings(facts, endpoint),
    ...outputWarnings(unit),
    ...sandboxWarnings(unit, endpoint),
    ...userWarnings(facts, unit),
    ...overrideWarnings(unit, variables),
    ...environmentWarnings(unit, profile),
    ...loaderWarnings(facts),
    ...downgradeWarnings(facts),
    ...confWarnings(facts),
    ...gpuWarnings(facts),
  ];
}

function hostWarnings({ host }: MachineFacts, endpoint: string): readonly Warning[] {
  if (host.endpoint !== endpoint) return [];
  return (host.hosts ?? [host]).flatMap(({ endpoint: address, answer }) =>
    answer.kind === 'unreachable'
      ? [
          {
            code: 'host-unreachable',
            message: `the host does not answer at ${address}: ${answer.message}`,
            remedy: `start vgpu-hostd on the host, or name another address: vgpu-agent install --host ADDRESS`,
          },
        ]
      : [],
  );
}

/** An older version replaces a newer one: allowed, but the user should know it. */
function downgradeWarnings({ manifest, shim }: MachineFacts): readonly Warning[] {
  if (manifest === null || valid(manifest.agent) === null || valid(shim.version) === null) return [];
  if (!lt(shim.version, manifest.agent)) return [];
  return told(
    'downgrade',
    `vgpu-agent ${manifest.agent} installed what is here; this is the older version ${shim.version}`,
    'to keep the newer version, install with the newer agent: run "vgpu-agent version" on both',
  );
}

/** Nothing of the consumer depends on it: an upgrade goes on. */
function confWarnings({ manifest, service }: MachineFacts): readonly Warning[] {
  if (ownedAt(manifest, agentUnitFile) === undefined || service === undefined || service.confProblem === null)
    return [];
  return told(
    'agent-conf-invalid',
    `${service.unit} keeps its current settings until restarted, then uses the defaults, because its configuration has a mistake: ${service.confProblem}`,
    `correct the file (man vgpu-agent.json explains every key), then: systemctl reload ${service.unit}`,
  );
}

/** Where the journal does not get the lines, the verdict has less to go by. */
function outputWarnings(unit: LoadedUnit): readonly Warning[] {
  const bypass = journalBypass(unit);
  if (bypass === null) return [];
  return told(
    'output-bypasses-journal',
    `${unit.name} has ${bypass.setting}: its log does not reach the journal`,
    `${bypass.repair}: systemctl edit ${unit.name}`,
  );
}

function sandboxWarnings(unit: LoadedUnit, endpoint: string): readonly Warning[] {
  return hostsObstacles(splitHosts(endpoint), unit.sandbox).map(({ setting, remedy, keepsFrom }) => ({
    code: 'sandbox-blocks-transport',
    message: `${unit.name} has ${setting}: ${
      keepsFrom === 'host' ? 'the shim cannot connect to the host' : 'the shim is hidden from it'
    }`,
    remedy: isContainer(unit) ? remedy : `${remedy}: systemctl edit ${unit.name}, under [Service]`,
  }));
}

function userWarnings({ serviceUser }: MachineFacts, unit: LoadedUnit): readonly Warning[] {
  if (serviceUser !== null) return [];
  return told(
    'service-user-missing',
    `${unit.name} runs as ${unit.user}${unit.group === '' ? '' : `:${unit.group}`}, which does not exist: it cannot start`,
    `create the user, or change it: systemctl edit ${unit.name}`,
  );
}

function overrideWarnings(unit: LoadedUnit, variables: readonly WantedVariable[]): readonly Warning[] {
  return variables.flatMap(({ name, overridden, entries, separator }) => {
    if (overridden === null) return [];
    return told(
      'environment-overridden',
      `${overridden} overrides the drop-in: ${unit.name} will not get vgpu-agent's ${name}`,
      overridden.startsWith('/')
        ? `in ${overridden}, put ${entries.join(separator)}${separator} before the value of ${name}, or remove the line`
        : `remove it: systemctl edit ${unit.name}`,
    );
  });
}

function environmentWarnings(unit: LoadedUnit, { overrides }: Profile): readonly Warning[] {
  return overridesOf(unit, overrides).map(({ rule, found }) => ({
    code: rule.reason,
    message: `${unit.name} has ${rule.variable}=${JSON.stringify(found.value)}: ${rule.why}`,
    remedy: `remove it: ${found.file === null ? editCommand(unit) : `sudoedit ${found.file}`}`,
  }));
}

/** A file that sorts before vgpu-agent's names a directory with a driver's library: the loader prefers that one. */
function loaderWarnings(facts: MachineFacts): readonly Warning[] {
  const ours = path.basename(loaderConf);
  const earlier = facts.loader.directories.filter(
    ({ from }) => path.dirname(from) === path.dirname(loaderConf) && path.basename(from) < ours,
  );
  return earlier.flatMap((directory) => {
    const found = facts.candidates.find(
      (candidate) => path.dirname(candidate.path) === directory.path && candidate.state.kind !== 'absent',
    );
    if (found === undefined || found.vendor === 'vgpu') return [];
    return told(
      'loader-prefers-another',
      `${directory.from} sorts before ${ours} and lists ${directory.path}, which has ${found.path}: programs without vgpu-agent's variables load that library`,
      `rename ${directory.from} so that it sorts later, then run ldconfig`,
    );
  });
}

function gpuWarnings({ realGpu }: MachineFacts): readonly Warning[] {
  if (realGpu.kind !== 'present') return [];
  return told(
    realGpu.works ? 'real-gpu-hidden' : 'real-gpu-broken',
    realGpu.works
      ? `a real GPU works in this guest (${realGpu.evidence}); programs will use the host's instead`
      : `there is a real GPU in this guest that does not work (${realGpu.evidence})`,
    realGpu.works ? 'vgpu-agent uninstall restores it' : null,
  );
}
