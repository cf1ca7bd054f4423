/** The text of the files of vgpu-agent.service on this machine. Pure. */
import path from 'node:path';
import type { ServedConsumer, ServiceFacts, ServiceFile } from '../../contracts/facts.js';
import { agentConf, agentUnitFile } from '../../lib/paths.js';

/** The text of one of the service's files, looking after `consumers`. `endpoint` is what agent.json says of the host. */
export function serviceText(
  service: ServiceFacts,
  { present, packaged }: ServiceFile,
  { consumers = service.consumers, endpoint = null }: ServiceChoice = {},
): string {
  switch (present.path) {
    case agentConf:
      return configText(endpoint);
    case agentUnitFile:
      return unitText(service, packaged, consumers);
    default:
      return packaged;
  }
}

export interface ServiceChoice {
  /** Default: all. */
  readonly consumers?: readonly ServedConsumer[];
  /** Null: as installed. */
  readonly endpoint?: string | null;
}

/** The service keeps by default all consumers and the host of `install`. */
function configText(endpoint: string | null): string {
  return `${JSON.stringify({ schema: 1, consumers: 'installed', host: endpoint }, null, 2)}\n`;
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

/** units/vgpu-agent.service with what differs from machine to machine. */
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

/** A quoted word of ExecStart= (systemd.service(5)). */
function quoted(word: string): string {
  const escaped = word.replaceAll('%', '%%').replaceAll('$', '$$$$');
  return /[\s"'\\]/.test(escaped) ? `"${escaped.replaceAll(/["\\]/g, '\\$&')}"` : escaped;
}
