import type { MachineFacts, OwnedFileFacts } from '../../contracts/facts.js';
import { kindOf, type PathState } from '../../contracts/manifest.js';
import { type Change, type PlanOptions, type Refusal, told } from '../../contracts/plan.js';
import { parseGuestConf, parseHosts } from '../../guest/vgpu-host/endpoint.js';
import { agentUnitFile, storeCurrent, storeRoot } from '../../lib/paths.js';
import { findConsumer, ownedAt } from './owned.js';
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
  return files.flatMap(({ path, state }): readonly Refusal[] => {
    if (isMask(state)) return [masked(path)];
    if (state.kind !== 'directory' && state.kind !== 'other') return [];
    const what = state.kind === 'directory' ? 'directory' : state.type;
    return told(
      `${what}-in-the-way`,
      `${path} is a ${what}, where a file has to be`,
      `find out what made ${path} and move it away`,
    );
  });
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
