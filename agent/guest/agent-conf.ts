/** `/etc/vgpu-agent/agent.json`: settings of vgpu-agent.service. Described by units/agent.schema.json. */

import { lstatSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { VgpuError } from '../lib/errors.js';
import { agentConf, packageRoot } from '../lib/paths.js';
import { describing, schemaCheck } from '../lib/schema.js';
import { readLimited } from '../lib/trust/files.js';
import { badFile, parseJson, problemLines, problemsOf } from '../profile/validate.js';
import { hostsText, parseHosts } from './vgpu-host/endpoint.js';

interface WantedConsumer {
  readonly profile: string;
  readonly unit: string | null;
}

export interface AgentConfig {
  readonly consumers: readonly WantedConsumer[] | 'installed';
  readonly host: string | null;
  readonly hosts: {
    readonly prefer: 'first' | 'used';
    readonly leaveAfterSeconds: number;
    readonly returnAfterSeconds: number;
  };
  readonly repair: {
    readonly enabled: boolean;
    readonly perHour: number;
    readonly backoffSeconds: number;
  };
  readonly restart: {
    readonly enabled: boolean;
    readonly whileServing: boolean;
    readonly busy: boolean;
    readonly idleSeconds: number;
    readonly perHour: number;
    readonly minimumSeconds: number;
  };
  readonly checkMinutes: number;
  readonly waitForHostSeconds: number;
  readonly metrics: { readonly textfile: string | null; readonly listen: string | null };
  /** Read by `vgpu-agent kubernetes`: pods that share a GPU, of each GPU or of the GPUs in their order. */
  readonly kubernetes: { readonly timeSlicing: number | readonly number[] };
}

export const defaultConfig: AgentConfig = {
  consumers: 'installed',
  host: null,
  hosts: { prefer: 'used', leaveAfterSeconds: 10, returnAfterSeconds: 60 },
  repair: { enabled: true, perHour: 30, backoffSeconds: 1 },
  restart: {
    enabled: true,
    whileServing: false,
    busy: false,
    idleSeconds: 600,
    perHour: 6,
    minimumSeconds: 30,
  },
  checkMinutes: 30,
  waitForHostSeconds: 3,
  metrics: { textfile: null, listen: null },
  kubernetes: { timeSlicing: 1 },
};

type Sections = Omit<AgentConfig, 'consumers' | 'first'>;
type ConfigFile = { readonly [Key in keyof Sections]?: Partial<Sections[Key]> } & {
  readonly consumers?:
    | 'installed'
    | readonly (string | { readonly profile: string; readonly unit?: string })[];
};

export type ConfigReader = (text: string, file: string) => AgentConfig;

/** Compiles the schema once. The reader throws a VgpuError (`profile`) that names every problem with its line. */
export function createConfigReader(
  schemaFile = path.join(packageRoot(), 'units', 'agent.schema.json'),
): ConfigReader {
  const schema: unknown = JSON.parse(readFileSync(schemaFile, 'utf8'));
  const check = schemaCheck(describing<ConfigFile>(Object(schema)));
  return (text, file) => {
    const parsed = parseJson(text);
    if (parsed.kind === 'bad') throw badConfig(file, [parsed.problem]);
    const checked = check(parsed.value);
    if (checked.kind === 'wrong') throw badConfig(file, problemLines(text, problemsOf(checked.errors)));
    const given = checked.value;
    const hosts = given.host === undefined || given.host === null ? null : parseHosts(given.host);
    if (hosts?.kind === 'bad') throw badConfig(file, [`host: ${hosts.reason}`]);
    return withDefaults(given, hosts === null ? null : hostsText(hosts.addresses));
  };
}

function withDefaults(given: ConfigFile, host: string | null): AgentConfig {
  return {
    consumers: consumersOf(given.consumers),
    host,
    hosts: { ...defaultConfig.hosts, ...given.hosts },
    repair: { ...defaultConfig.repair, ...given.repair },
    restart: { ...defaultConfig.restart, ...given.restart },
    checkMinutes: given.checkMinutes ?? defaultConfig.checkMinutes,
    waitForHostSeconds: given.waitForHostSeconds ?? defaultConfig.waitForHostSeconds,
    metrics: { ...defaultConfig.metrics, ...given.metrics },
    kubernetes: { ...defaultConfig.kubernetes, ...given.kubernetes },
  };
}

function consumersOf(given: ConfigFile['consumers']): AgentConfig['consumers'] {
  if (given === undefined || given === 'installed') return 'installed';
  return given.map((one) =>
    typeof one === 'string' ? { profile: one, unit: null } : { profile: one.profile, unit: one.unit ?? null },
  );
}

function badConfig(file: string, lines: readonly string[]): VgpuError {
  const remedy = 'correct the file; vgpu-agent.json(5) explains every key';
  return badFile(file, lines, { operation: 'read the configuration', remedy });
}

const maxConfigBytes = 1024 * 1024;

export function readConfigText(file = agentConf): string | null {
  const bytes = readLimited(file, maxConfigBytes);
  if (bytes !== null) return bytes.toString('utf8');
  if (!isThere(file)) return null;
  throw badConfig(file, [
    `it must be a regular file of at most ${maxConfigBytes} bytes that only root can change`,
  ]);
}

function isThere(file: string): boolean {
  try {
    return lstatSync(file, { throwIfNoEntry: false }) !== undefined;
  } catch {
    return false;
  }
}

/** Null: the service accepts it, there is none, or this user may not read it. */
export function agentConfCheck(profileOf: (name: string) => unknown, file = agentConf): () => string | null {
  let read: ConfigReader | null = null;
  return () => {
    try {
      const text = readConfigText(file);
      if (text === null) return null;
      read ??= createConfigReader();
      checkProfiles(read(text, file), profileOf, file);
      return null;
    } catch (error) {
      if (!(error instanceof VgpuError)) throw error;
      return error.kind === 'profile' ? error.message : null;
    }
  };
}

function checkProfiles(config: AgentConfig, profileOf: (name: string) => unknown, file: string): void {
  const named = config.consumers === 'installed' ? [] : config.consumers.map((one) => one.profile);
  for (const name of named) {
    try {
      profileOf(name);
    } catch (error) {
      if (!(error instanceof VgpuError)) throw error;
      throw badConfig(file, [error.message]);
    }
  }
}
