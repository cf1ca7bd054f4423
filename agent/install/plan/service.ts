import path from 'node:path';
import type { MachineFacts, ServedConsumer, ServiceFacts, ServiceFile } from '../../contracts/facts.js';
import type { Change, PlanOptions } from '../../contracts/plan.js';
import {
  agentConf,
  agentUnitFile,
  cockpitPage,
  completions,
  manDirectory,
  polkitFile,
} from '../../lib/paths.js';
import { writeChange } from './our-files.js';
import { emptiedBy, ownedAt, removeDirectories, withdrawal } from './owned.js';
import { unitChange } from './restart.js';

interface ServicePlan {
  readonly files: readonly Change[];
  readonly reload: boolean;
  readonly run: readonly Change[];
}

const nothing: ServicePlan = { files: [], reload: false, run: [] };

export function servicePlan(facts: MachineFacts, options: PlanOptions, endpoint: string | null): ServicePlan {
  const { service } = facts;
  if (service === undefined) return nothing;
  const owned = ownedAt(facts.manifest, agentUnitFile) !== undefined;
  const wanted = options.service ?? owned;
  if (!wanted) return owned ? removal(facts) : nothing;

  // Only an address that is new was asked for; what a person wrote into agent.json since then counts.
  const moved = endpoint === facts.manifest?.endpoint ? null : endpoint;
  const files = service.files.flatMap((file) => fileChanges(service, file, moved));
  const { link } = service;
  if (link.state.kind !== 'link' || link.state.target !== link.target) {
    files.push({
      kind: 'write-link',
      path: link.path,
      target: link.target,
      before: link.state,
      reason: 'starts the service at boot',
    });
  }
  const unitChanged = files.some((change) => 'path' in change && change.path === agentUnitFile);
  const reload = files.some((change) => 'path' in change && change.path.startsWith('/etc/systemd/'));
  const running = service.activeState === 'active' || service.activeState === 'activating';
  const run = !running
    ? [unitChange(service.unit, 'start', 'it repairs drift and reports it')]
    : unitChanged
      ? [unitChange(service.unit, 'restart', 'its unit file has changed')]
      : [];
  return { files, reload, run };
}

function fileChanges(service: ServiceFacts, file: ServiceFile, endpoint: string | null): readonly Change[] {
  const { present, editable } = file;
  const content = serviceText(service, file, { endpoint });
  if (!editable) {
    if (present.content === content) return [];
    return [writeChange(present, content, reasonOf(present.path))];
  }
  if (present.state.kind === 'absent') return [writeChange(present, content, reasonOf(present.path))];
  const changed = endpoint === null ? null : withHost(present.content, endpoint);
  return changed === null ? [] : [writeChange(present, changed, `the host is at ${endpoint} now`)];
}

const reasons: Readonly<Record<string, string>> = {
  [agentConf]: 'the configuration of the service, which you may edit (vgpu-agent.json(5))',
  [agentUnitFile]: 'the service that repairs drift',
  '/etc/dbus-1/system.d/org.vgpu.Agent1.conf':
    'bus policy: every user may query the service; polkit decides who may have it act',
  [polkitFile]: 'polkit actions: which users besides root may have the service act',
  '/usr/lib/systemd/catalog/vgpu-agent.catalog': 'journalctl -x explains the entries of the service',
};

function reasonOf(file: string): string {
  if (file.startsWith(`${manDirectory}/`)) return 'man page';
  if (completions.some(([path]) => path === file)) return 'completion of vgpu-agent in the shell';
  if (file.startsWith(`${cockpitPage}/`)) return 'page of the service in Cockpit';
  return reasons[file] ?? 'a file of the service';
}

/** The text with another host; null when it names it already or is no object that could be changed. */
function withHost(text: string | null, endpoint: string): string | null {
  try {
    const value: unknown = JSON.parse(text ?? '');
    if (typeof value !== 'object' || value === null || Reflect.get(value, 'host') === endpoint) return null;
    return `${JSON.stringify({ ...value, host: endpoint }, null, 2)}\n`;
  } catch {
    // The service has refused it already and says so; the text that a person has written must not be lost.
    return null;
  }
}

function removal(facts: MachineFacts): ServicePlan {
  const { service, manifest } = facts;
  if (service === undefined) return nothing;
  const paths = [service.link.path, ...service.files.map((file) => file.present.path).reverse()];
  const files = paths.flatMap((path) => withdrawal(manifest, path, 'vgpu-agent.service is removed'));
  const emptied = emptiedBy(
    manifest?.items ?? [],
    paths.map((path) => ({ path })),
  );
  return {
    files: [...files, ...removeDirectories(emptied)],
    reload: files.length > 0,
    run: [unitChange(service.unit, 'stop', 'vgpu-agent.service is removed')],
  };
}

export function serviceText(
  service: ServiceFacts,
  { present, packaged }: ServiceFile,
  { consumers = service.consumers, endpoint = null }: ServiceChoice = {},
): string {
  switch (present.path) {
    case agentConf:
      // By default all consumers and the host of `install`.
      return `${JSON.stringify({ schema: 1, consumers: 'installed', host: endpoint }, null, 2)}\n`;
    case agentUnitFile:
      return unitText(service, packaged, consumers);
    default:
      return packaged;
  }
}

interface ServiceChoice {
  readonly consumers?: readonly ServedConsumer[];
  readonly endpoint?: string | null;
}

/**
 * Options that keep the service small, all of them in Node's own documentation and known to Node 20, 22 and 24:
 * V8's other flags come and go, and a Node that does not know one does not start. --jitless: no writable and
 * executable memory is needed (MemoryDenyWriteExecute=), and no WebAssembly is there; --expose-gc lets the service
 * collect when it has nothing to do.
 */
const nodeFlags = [
  '--jitless',
  '--expose-gc',
  '--max-semi-space-size=1',
  '--max-old-space-size=64',
  '--v8-pool-size=1',
];

function unitText({ program }: ServiceFacts, template: string, consumers: readonly ServedConsumer[]): string {
  const main = path.join(program.package, 'dist', 'bundle', 'daemon.cjs');
  const command = [program.watch, '--', program.node, ...nodeFlags, main];
  const inHome = [program.node, main].some((file) => /^\/(home|root|run\/user)\//.test(file));
  const libraries = new Set(consumers.flatMap((one) => one.libraryDirectories));
  const values: Readonly<Record<string, string>> = {
    COMMAND: command.map(quoted).join(' '),
    // In one order, whichever of them is looked at.
    CONSUMER: consumers
      .map((one) => one.unit)
      .toSorted()
      .join(' '),
    PROTECT_HOME: inHome ? 'read-only' : 'yes',
    // PrivateTmp= would hide a checkout that lies there.
    KEPT_IN_TMP: /^\/(var\/)?tmp\//.test(program.package) ? quoted(program.package) : '',
    LIBRARIES: [...libraries]
      .toSorted()
      .map((directory) => `-${directory}`)
      .join(' '),
  };
  return template.replace(/@([A-Z_]+)@/g, (whole, name: string) => values[name] ?? whole);
}

function quoted(word: string): string {
  const escaped = word.replaceAll('%', '%%').replaceAll('$', '$$$$');
  return /[\s"'\\]/.test(escaped) ? `"${escaped.replaceAll(/["\\]/g, '\\$&')}"` : escaped;
}
