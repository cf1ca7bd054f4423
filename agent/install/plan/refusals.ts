import path from 'node:path';
import lt from 'semver/functions/lt.js';
import valid from 'semver/functions/valid.js';
import { editCommand, isContainer } from '../../containers/container-unit.js';
import type { MachineFacts, OwnedFileFacts } from '../../contracts/facts.js';
import { kindOf, type PathState } from '../../contracts/manifest.js';
import { type Change, type PlanOptions, type Refusal, told, type Warning } from '../../contracts/plan.js';
import type { LoadedUnit } from '../../contracts/unit.js';
import { parseGuestConf, parseHosts, splitHosts } from '../../guest/vgpu-host/endpoint.js';
import { agentUnitFile, loaderConf, storeCurrent, storeRoot } from '../../lib/paths.js';
import type { Profile } from '../../profile/types.js';
import { overridesOf } from '../../systemd/unit-environment.js';
import { journalBypass } from '../../systemd/unit-facts.js';
import { hostsObstacles } from '../../systemd/unit-sandbox.js';
import type { WantedVariable } from './drop-in.js';
import { findConsumer, inTheWay, ownedAt } from './owned.js';
import { serviceText } from './service.js';

export function installRefusals(
  facts: MachineFacts,
  options: PlanOptions,
  endpoint: string,
): readonly Refusal[] {
  return [
    ...architectureRefusals(facts),
    ...unitRefusals(facts),
    ...gpuRefusals(facts, options),
    ...endpointRefusals(endpoint),
    ...hostRefusals(facts, options, endpoint),
    ...storeRefusals(facts),
    ...serviceRefusals(facts, options),
    ...confRefusals(facts, options),
    ...fileRefusals([facts.guestConf, facts.loaderConf, facts.dropIn]),
  ];
}

function architectureRefusals({ distribution }: MachineFacts): readonly Refusal[] {
  const { architecture, multiarch, prettyName } = distribution;
  const wide = architecture === 'x86_64' && (multiarch === null || multiarch === 'x86_64-linux-gnu');
  if (wide) return [];
  const found =
    architecture === 'x86_64' ? `${prettyName} is for ${multiarch ?? ''}` : `this machine is ${architecture}`;
  return told(
    'unsupported-architecture',
    `${found}; the shim is built for 64-bit x86 only`,
    'use an x86_64 guest',
  );
}

/** A user who can change what root's service executes can become root. An installed service is only kept up to date. */
function serviceRefusals({ service, manifest }: MachineFacts, options: PlanOptions): readonly Refusal[] {
  if (service === undefined || service.changeable === null) return [];
  const unit = service.files.find((file) => file.present.path === agentUnitFile);
  const owned = ownedAt(manifest, agentUnitFile) !== undefined;
  const written = unit !== undefined && unit.present.content !== serviceText(service, unit);
  if (!((options.service ?? owned) && (options.service === true || written))) return [];
  return told(
    'service-not-roots',
    `${service.unit} would run programs as root that other users can change: ${service.changeable}`,
    'sudo scripts/install-agent puts a copy into /usr/lib/vgpu-agent, which only root can change; then run the same command again',
  );
}

/** A service that runs keeps the configuration that it had, so only a request for it is refused. */
function confRefusals({ service }: MachineFacts, options: PlanOptions): readonly Refusal[] {
  if (options.service !== true || service === undefined || service.confProblem === null) return [];
  return told(
    'agent-conf-invalid',
    `${service.unit} would not use its configuration: ${service.confProblem}`,
    `correct the file (man vgpu-agent.json explains every key) or move it away, and run the same command again`,
  );
}

export function unitRefusals({ unit }: Pick<MachineFacts, 'unit'>): readonly Refusal[] {
  switch (unit.kind) {
    case 'loaded':
      return [];
    case 'absent':
      return told(
        'unit-absent',
        `there is no ${unit.name} on this machine`,
        'install the consumer first, or name another one: --profile NAME or --unit NAME.service; ' +
          '"systemctl daemon-reload" creates the unit of a quadlet, but no system unit for the quadlet of a user',
      );
    case 'masked':
      return told(
        'unit-masked',
        `${unit.name} is masked${unit.path === '' ? '' : ` (${unit.path})`}, so systemd does not start it`,
        `to allow it to run: systemctl unmask ${unit.name}`,
      );
    case 'bad':
      return told(
        'unit-bad',
        `systemd cannot load ${unit.name} (${unit.loadState}): ${unit.message}`,
        `repair it first: systemctl status ${unit.name}; systemd-analyze verify ${unit.name}`,
      );
  }
}

function gpuRefusals({ realGpu }: MachineFacts, { force }: PlanOptions): readonly Refusal[] {
  if (realGpu.kind !== 'present' || !realGpu.works || force) return [];
  return told(
    'real-gpu-works',
    `a real GPU works in this guest (${realGpu.evidence}), and programs would not use it any more`,
    'to install nevertheless: vgpu-agent install --force',
  );
}

function endpointRefusals(endpoint: string): readonly Refusal[] {
  const parsed = parseHosts(endpoint);
  if (parsed.kind !== 'bad') return [];
  return told(
    'bad-endpoint',
    `${JSON.stringify(endpoint)} is not an address of a host: ${parsed.reason}`,
    'name it: vgpu-agent install --host vsock:2:14833',
  );
}

/**
 * A wrong address would take a working consumer to the CPU. Where the consumer has this address already, nothing gets
 * worse, and a repair must be possible while the host is away.
 */
function hostRefusals(facts: MachineFacts, options: PlanOptions, endpoint: string): readonly Refusal[] {
  const { host, manifest, guestConf, unit } = facts;
  if (host.answer.kind !== 'unreachable' || host.endpoint !== endpoint) return [];
  if (parseHosts(endpoint).kind === 'bad' || options.allowUnreachable === true) return [];
  const known = [manifest?.endpoint, guestConf.content === null ? null : parseGuestConf(guestConf.content)];
  if (findConsumer(manifest, unit.name) !== undefined && known.includes(endpoint)) return [];
  return told(
    'host-unreachable',
    host.hosts === undefined
      ? `the host does not answer at ${endpoint}: ${host.answer.message}`
      : `none of the hosts answers: ${host.answer.message}`,
    'start vgpu-hostd on the host, or name another address with --host ADDRESS; ' +
      'to install before the host answers, add --allow-unreachable-host',
  );
}

function storeRefusals({ store, manifest }: MachineFacts): readonly Refusal[] {
  const { root, current } = store;
  if (root.kind !== 'absent' && root.kind !== 'directory') {
    const what = root.kind === 'link' ? `a link to ${root.target}` : kindOf(root);
    return [notOurs(storeRoot, `is ${what}, not a directory`)];
  }
  switch (current.kind) {
    case 'absent':
      return [];
    case 'link': {
      const owned = ownedAt(manifest, storeCurrent) !== undefined;
      const shape = /^versions\/[0-9a-f]{16}$/.test(current.target);
      return owned || shape
        ? []
        : [notOurs(storeCurrent, `points to ${current.target}, which is not a version of vgpu-agent`)];
    }
    default:
      return [notOurs(storeCurrent, `is ${kindOf(current)}, not a link of vgpu-agent`)];
  }
}

function notOurs(path: string, what: string): Refusal {
  return { code: 'store-not-ours', message: `${path} ${what}`, remedy: `move ${path} away` };
}

function fileRefusals(files: readonly OwnedFileFacts[]): readonly Refusal[] {
  return files.flatMap(({ path, state }) => (isMask(state) ? [masked(path)] : inTheWay(path, state, 'file')));
}

/** A plan does not override what a person has switched off. */
export function maskRefusals(changes: readonly Change[]): readonly Refusal[] {
  return changes.flatMap((change) =>
    (change.kind === 'write-file' || change.kind === 'copy-file') && isMask(change.before)
      ? [masked(change.path)]
      : [],
  );
}

function isMask(state: PathState): boolean {
  return state.kind === 'link' && state.target === '/dev/null';
}

function masked(path: string): Refusal {
  return {
    code: 'file-masked',
    message: `${path} is a link to /dev/null (masked), so vgpu-agent does not write that file`,
    remedy: `to let vgpu-agent write it, remove the link: rm ${path}`,
  };
}

// Facts that a person should know and the plan cannot repair. Pure.

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
