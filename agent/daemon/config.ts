/** `/etc/vgpu-agent/agent.json`: what the service keeps true. Described by units/agent.schema.json. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { errnoOf, VgpuError } from '../errors.js';
import { parseEndpoint } from '../machine/endpoint.js';
import { agentConf, packageRoot } from '../paths.js';
import { parseJson } from '../profile/json.js';
import { schemaCheck } from '../profile/schema.js';
import { problemsOf, readablePointer } from '../profile/validate.js';

export interface AgentConfig {
  /** Null: the installed profile, else ollama. */
  readonly profile: string | null;
  /** Null: as installed, else as the shim would find it. */
  readonly host: string | null;
  readonly repair: {
    readonly enabled: boolean;
    readonly perHour: number;
    readonly backoffSeconds: number;
  };
  readonly restart: {
    readonly enabled: boolean;
    readonly whileServing: boolean;
    readonly perHour: number;
    readonly minimumSeconds: number;
  };
  readonly checkMinutes: number;
  readonly waitForHostSeconds: number;
  readonly metrics: { readonly textfile: string | null; readonly listen: string | null };
}

export const defaultConfig: AgentConfig = {
  profile: null,
  host: null,
  repair: { enabled: true, perHour: 30, backoffSeconds: 1 },
  restart: { enabled: true, whileServing: false, perHour: 6, minimumSeconds: 30 },
  checkMinutes: 30,
  waitForHostSeconds: 3,
  metrics: { textfile: null, listen: null },
};

/** The file as written: every group and key may be missing. */
interface ConfigFile {
  readonly profile?: string;
  readonly host?: string | null;
  readonly repair?: Partial<AgentConfig['repair']>;
  readonly restart?: Partial<AgentConfig['restart']>;
  readonly checkMinutes?: number;
  readonly waitForHostSeconds?: number;
  readonly metrics?: Partial<AgentConfig['metrics']>;
}

export type ConfigReader = (text: string, file: string) => AgentConfig;

/** Compiles the schema once. The reader throws a VgpuError (`profile`) that names every problem with its line. */
export function createConfigReader(
  schemaFile = path.join(packageRoot(), 'units', 'agent.schema.json'),
): ConfigReader {
  const schema: unknown = JSON.parse(readFileSync(schemaFile, 'utf8'));
  const check = schemaCheck(Object(schema));
  return (text, file) => {
    const parsed = parseJson(text);
    if (parsed.kind === 'bad') {
      const { line, column } = parsed.place;
      throw badConfig(file, [`line ${line}, column ${column}: no JSON: ${parsed.message}`]);
    }
    const { value, places } = parsed;
    const errors = check(value);
    if (errors.length > 0) {
      const lines = problemsOf(errors).map(({ pointer, message }) => {
        const place = places.get(pointer);
        const field = pointer === '' ? 'the file' : readablePointer(pointer);
        return `${place === undefined ? '' : `line ${place.line}, `}${field}: ${message}`;
      });
      throw badConfig(file, lines);
    }
    const given = value as ConfigFile;
    const endpoint = given.host === undefined || given.host === null ? null : parseEndpoint(given.host);
    if (endpoint?.kind === 'bad') throw badConfig(file, [`host: ${endpoint.reason}`]);
    return withDefaults(given);
  };
}

function withDefaults(given: ConfigFile): AgentConfig {
  return {
    profile: given.profile ?? defaultConfig.profile,
    host: given.host ?? defaultConfig.host,
    repair: { ...defaultConfig.repair, ...given.repair },
    restart: { ...defaultConfig.restart, ...given.restart },
    checkMinutes: given.checkMinutes ?? defaultConfig.checkMinutes,
    waitForHostSeconds: given.waitForHostSeconds ?? defaultConfig.waitForHostSeconds,
    metrics: { ...defaultConfig.metrics, ...given.metrics },
  };
}

function badConfig(file: string, problems: readonly string[]): VgpuError {
  const text = problems.length === 1 ? `${file}: ${problems[0]}` : `${file}:\n  ${problems.join('\n  ')}`;
  return new VgpuError(text, {
    kind: 'profile',
    operation: 'read the configuration',
    path: file,
    remedy: 'mend the file; vgpu-agent.json(5) explains every key',
  });
}

/** The text of the configuration; null when there is none. Throws a VgpuError (`failed`) when it may not be read. */
export function readConfigText(file = agentConf): string | null {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    if (errnoOf(error) === 'ENOENT' || errnoOf(error) === 'ENOTDIR') return null;
    throw new VgpuError(`cannot read ${file}: ${errnoOf(error) ?? String(error)}`, {
      kind: 'failed',
      operation: 'read the configuration',
      path: file,
      cause: error,
    });
  }
}
