/** From systemd's properties of a unit to UnitFacts. Pure: the property bags and file contents come in. */
import { containerOf } from '../containers/container-unit.js';
import type { DropIn, LoadedUnit, LoggingFacts, SandboxFacts, UnitFacts } from '../contracts/unit.js';
import { traceDropInPath } from '../lib/paths.js';
import { lastAssignment } from '../lib/unit-file.js';
import { count, flag, hex, type PropertyBag, structs, text, texts } from './properties.js';
import { withoutTracer } from './unit-environment.js';

export interface UnitSources {
  readonly name: string;
  readonly unit: PropertyBag;
  readonly service: PropertyBag;
  readonly fragment: string;
  readonly dropIns: readonly DropIn[];
  /** Contents of the readable files of EnvironmentFile=, and of a container's --env-file. */
  readonly environmentFiles?: readonly DropIn[];
}

export function unitFacts(sources: UnitSources): UnitFacts {
  const { name, unit } = sources;
  const loadState = text(unit, 'LoadState');
  switch (loadState) {
    case 'loaded':
      return asConsumerHasIt(loadedUnit(sources));
    case 'not-found':
      return { kind: 'absent', name };
    case 'masked':
      return { kind: 'masked', name, path: text(unit, 'FragmentPath') };
    default:
      return { kind: 'bad', name, loadState, message: loadError(unit) };
  }
}

/**
 * The settings of a unit hold for its own processes. Of a container these are the engine's: the consumer has the
 * variables that the command names, and what docker's daemon starts is not in the unit's sandbox.
 */
function asConsumerHasIt(unit: LoadedUnit): LoadedUnit {
  const container = containerOf(unit);
  if (container === null) return unit;
  const { environment, environmentFiles } = container;
  const named = (unit.environmentFileContents ?? []).filter(({ path }) => environmentFiles.includes(path));
  const environmentFileContents = named.map(({ path, content }) => ({
    path,
    content: without(content, environment),
  }));
  const own = { ...unit, environment, environmentFiles: [], environmentFileContents };
  if (container.engine !== 'docker') return own;
  return { ...own, sandbox: { ...sandbox({}), dockerSeccomp: container.defaultSeccomp } };
}

/** For an engine the command's own variables win over those of its files, for systemd the files'. */
function without(content: string, names: Readonly<Record<string, string>>): string {
  return content
    .split('\n')
    .filter((line) => !Object.hasOwn(names, line.split('=')[0]?.trim() ?? ''))
    .join('\n');
}

function loadedUnit(sources: UnitSources): LoadedUnit {
  const { name, unit, service } = sources;
  const standardOutput = outputTarget(sources, 'StandardOutput');
  const standardError = outputTarget(sources, 'StandardError');
  const id = text(unit, 'Id', name);
  const dropIns = sources.dropIns.filter((dropIn) => dropIn.path !== traceDropInPath(id));
  const traced = dropIns.length < sources.dropIns.length;
  const inForce = environment(texts(service, 'Environment'));
  return {
    kind: 'loaded',
    name: id,
    fragment: text(unit, 'FragmentPath'),
    fragmentContent: sources.fragment,
    dropIns,
    activeState: text(unit, 'ActiveState'),
    subState: text(unit, 'SubState'),
    result: text(service, 'Result'),
    restarts: count(service, 'NRestarts'),
    mainPid: count(service, 'MainPID'),
    invocationId: hex(unit, 'InvocationID'),
    needDaemonReload: flag(unit, 'NeedDaemonReload'),
    environment: traced ? withoutTracer(inForce) : inForce,
    environmentFiles: structs(service, 'EnvironmentFiles').map(
      ([path, mayBeMissing]) => `${mayBeMissing === true ? '-' : ''}${String(path)}`,
    ),
    environmentFileContents: sources.environmentFiles ?? [],
    execStart: execStart(service),
    workingDirectory: text(service, 'WorkingDirectory').replace(/^!/, ''),
    user: text(service, 'User'),
    group: text(service, 'Group'),
    dynamicUser: flag(service, 'DynamicUser'),
    standardOutput,
    // `inherit` (the default) sends standard error where standard output goes, into a file too.
    standardError: standardError === 'inherit' ? standardOutput : standardError,
    ...logging(service),
    sandbox: sandbox(service),
    ...(traced ? { traced } : {}),
  };
}

/** LoadError is a (name, message) pair; both empty when there was none. */
function loadError(unit: PropertyBag): string {
  const pair = unit['LoadError'];
  if (!Array.isArray(pair)) return '';
  const [type, message] = pair;
  return String(message === '' ? type : message);
}

function environment(assignments: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    assignments.flatMap((assignment) => {
      const at = assignment.indexOf('=');
      return at > 0 ? [[assignment.slice(0, at), assignment.slice(at + 1)]] : [];
    }),
  );
}

/** argv of the last ExecStart= command: the only one, except in a oneshot service. */
export function execStart(service: PropertyBag): readonly string[] {
  const argv = structs(service, 'ExecStart').at(-1)?.[1];
  return Array.isArray(argv) ? argv.map(String) : [];
}

/**
 * The destination of output, in the form of a unit file. systemd's bus property is `file`, `append` or `truncate` without
 * the path (systemd 252), so the path comes from the unit's files.
 */
function outputTarget(sources: UnitSources, key: 'StandardOutput' | 'StandardError'): string {
  const kind = text(sources.service, key);
  if (!['file', 'append', 'truncate'].includes(kind)) return kind;
  const files = [sources.fragment, ...sources.dropIns.map((dropIn) => dropIn.content)];
  const assigned = lastAssignment(files, 'Service', key);
  return assigned?.startsWith(`${kind}:`) ? expandName(assigned, sources.name) : kind;
}

/** The specifiers that stand for the unit's own name; others stay as they are. */
function expandName(value: string, unit: string): string {
  const stem = unit.replace(/\.[^.]*$/, '');
  const [prefix = stem, instance = ''] = stem.split('@');
  const values: Readonly<Record<string, string>> = { n: unit, N: stem, p: prefix, i: instance, '%': '%' };
  return value.replace(/%(.)/g, (whole, letter: string) => values[letter] ?? whole);
}

const levels = ['emerg', 'alert', 'crit', 'err', 'warning', 'notice', 'info', 'debug'];

/** LogLevelMax is -1 if it is not set, and a limit 0 (systemd.exec(5)). */
function logging(service: PropertyBag): { readonly logging?: LoggingFacts } {
  const namespace = text(service, 'LogNamespace');
  const most = service['LogLevelMax'];
  const level = service['SyslogLevel'] ?? levels.indexOf('info');
  const drops = typeof most === 'number' && most >= 0 && typeof level === 'number' && most < level;
  const levelMax = drops ? (levels[most] ?? null) : null;
  const burst = count(service, 'LogRateLimitBurst') || null;
  const intervalUs = count(service, 'LogRateLimitIntervalUSec') || null;
  if (namespace === '' && levelMax === null && burst === null && intervalUs === null) return {};
  const intervalMs = intervalUs === null ? null : intervalUs / 1000;
  return { logging: { namespace, levelMax, burst, intervalMs } };
}

function sandbox(service: PropertyBag): SandboxFacts {
  return {
    restrictAddressFamilies: addressFamilies(service['RestrictAddressFamilies']),
    privateNetwork: flag(service, 'PrivateNetwork'),
    devicePolicy: text(service, 'DevicePolicy'),
    memoryDenyWriteExecute: flag(service, 'MemoryDenyWriteExecute'),
    noNewPrivileges: flag(service, 'NoNewPrivileges'),
    protectHome: text(service, 'ProtectHome', 'no'),
    rootDirectory: text(service, 'RootDirectory'),
    inaccessiblePaths: texts(service, 'InaccessiblePaths'),
    temporaryFileSystem: structs(service, 'TemporaryFileSystem').map(([path, options]) =>
      options === '' || options === undefined ? String(path) : `${String(path)}:${String(options)}`,
    ),
    privateTmp: flag(service, 'PrivateTmp'),
    protectKernelTunables: flag(service, 'ProtectKernelTunables'),
    ipAddressDeny: addresses(service, 'IPAddressDeny'),
    ipAddressAllow: addresses(service, 'IPAddressAllow'),
    systemCallFilter: systemCallFilter(service['SystemCallFilter']),
  };
}

/** `(family, bytes of the address, length of the prefix)`. */
function addresses(service: PropertyBag, name: string): readonly string[] {
  return structs(service, name).flatMap(([family, bytes, prefix]) => {
    const list = Array.isArray(bytes) || Buffer.isBuffer(bytes) ? [...bytes].map(Number) : [];
    if (family === familyInet && list.length === 4) return [`${list.join('.')}/${String(prefix)}`];
    if (family !== familyInet6 || list.length !== 16) return [];
    const words = Array.from({ length: 8 }, (_, at) =>
      (((list[2 * at] ?? 0) << 8) | (list[2 * at + 1] ?? 0)).toString(16),
    );
    return [`${words.join(':')}/${String(prefix)}`];
  });
}

const familyInet = 2;
const familyInet6 = 10;

/** `(allow-list?, calls)`; an entry may name an error: `connect:EPERM`. An empty deny list filters nothing. */
function systemCallFilter(value: unknown): NonNullable<SandboxFacts['systemCallFilter']> | null {
  if (!Array.isArray(value)) return null;
  const [allow, calls] = value;
  const list = Array.isArray(calls) ? calls.map((call) => String(call).replace(/:.*$/, '')) : [];
  return list.length === 0 ? null : { deny: allow !== true, calls: list };
}

/** `(allow-list?, families)`. An empty deny list is no restriction; an empty allow list is `none`. */
function addressFamilies(value: unknown): SandboxFacts['restrictAddressFamilies'] {
  if (!Array.isArray(value)) return null;
  const [allow, families] = value;
  const list = Array.isArray(families) ? families.map(String) : [];
  if (allow !== true && list.length === 0) return null;
  return { deny: allow !== true, families: list };
}

// Whether the lines of a unit reach the journal, and which of its namespaces. Pure.

interface Bypass {
  readonly setting: string;
  readonly repair: string;
}

/** The setting that keeps what the unit writes from the journal, or null. Consumers log to standard error. */
export function journalBypass(unit: UnitFacts): Bypass | null {
  if (unit.kind !== 'loaded') return null;
  const target =
    unit.standardError === 'inherit' || unit.standardError === '' ? unit.standardOutput : unit.standardError;
  if (!/^(?:journal|kmsg|syslog|inherit|$)/.test(target)) {
    const repair = 'set StandardOutput=journal and StandardError=journal';
    return { setting: `StandardError=${target}`, repair };
  }
  const levelMax = unit.logging?.levelMax ?? null;
  return levelMax === null ? null : { setting: `LogLevelMax=${levelMax}`, repair: 'set LogLevelMax=info' };
}

export function logNamespace(unit: UnitFacts): string {
  return unit.kind === 'loaded' ? (unit.logging?.namespace ?? '') : '';
}

/**
 * The option of journalctl(1) that shows a namespace beside the system's journal, where systemd's own entries about a
 * unit go. None for the system's own: journalctl before systemd 245 does not have the option.
 */
export function namespaceOption(namespace: string): readonly string[] {
  return namespace === '' ? [] : [`--namespace=+${namespace}`];
}
