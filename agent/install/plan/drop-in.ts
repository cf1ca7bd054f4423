import { createHash } from 'node:crypto';
import path from 'node:path';
import { containerOf } from '../../containers/container-unit.js';
import type { MachineFacts, OwnedFileFacts } from '../../contracts/facts.js';
import type { Change } from '../../contracts/plan.js';
import type { LoadedUnit } from '../../contracts/unit.js';
import { outputTarget, startNote } from '../../guest/unit/start-record.js';
import { splitHosts } from '../../guest/vgpu-host/endpoint.js';
import { own } from '../../lib/json.js';
import { dropInPath, isInStore, storeCurrent } from '../../lib/paths.js';
import { expandVariables } from '../../profile/instance.js';
import type { Profile } from '../../profile/types.js';
import {
  assignedVariables,
  environmentFileVariables,
  environmentLine,
  escapeSpecifiers,
  filesWithout,
  unsetVariables,
} from '../../systemd/unit-environment.js';
import { textChange } from './our-files.js';
import { withdrawal } from './owned.js';

export interface WantedVariable {
  readonly name: string;
  readonly separator: string;
  readonly why: string;
  readonly entries: readonly string[];
  /** The unit's value without vgpu-agent, as unit file text; kept behind `entries`. */
  readonly inherited: readonly string[];
  readonly preflight: 'library' | 'directory' | 'none';
  /** The obstacle to our value, although the drop-in has it; null when there is none. */
  readonly overridden: string | null;
}

interface WantedDropIn {
  readonly path: string;
  readonly content: string;
  readonly reason: string;
}

/** Sorts after the names that people and packages use; needed when one of theirs sets the same variable. */
function lastDropInPath(unit: string): string {
  return path.join(path.dirname(dropInPath(unit)), 'zzz-vgpu.conf');
}

export function ourDropIns(unit: string): ReadonlySet<string> {
  return new Set([dropInPath(unit), lastDropInPath(unit)]);
}

export function wantedVariables(
  profile: Profile,
  facts: MachineFacts,
  unit: LoadedUnit,
): readonly WantedVariable[] {
  // A container gets the GPU as a device: what its unit sets does not come through.
  if (containerOf(unit) !== null) return [];
  const values = { store: storeCurrent, multiarch: facts.distribution.multiarch };
  return profile.environment.flatMap(({ name, entries, separator, why, preflight, without }) => {
    const ours = entries.map((entry) => expandVariables(entry, values)).filter((entry) => entry !== null);
    if (ours.length === 0) return [];
    const inherited = inheritedEntries(unit, name, separator).filter((entry) => !ours.includes(entry));
    if (without !== undefined && (sharesMemory(facts) || inherited.length > 0)) return [];
    return [
      { name, separator, why, preflight, entries: ours, inherited, overridden: overriddenBy(unit, name) },
    ];
  });
}

/** A unix socket that is forwarded to another machine is not recognized. */
function sharesMemory({ host, vmMemory }: MachineFacts): boolean {
  return splitHosts(host.endpoint).every(
    (endpoint) =>
      endpoint.startsWith('unix:') || (endpoint.startsWith('vsock:') && (vmMemory?.devices.length ?? 0) > 0),
  );
}

/** From the unit's files where they are known, else from the values that systemd has loaded. */
function inheritedEntries(unit: LoadedUnit, name: string, separator: string): readonly string[] {
  const assigned = assignedVariables(filesWithout(unit, ourDropIns(unit.name))).get(name);
  const inForce =
    unit.fragmentContent === undefined ? escapeSpecifiers(own(unit.environment, name) ?? '') : '';
  // An empty entry would mean the working directory to the loader: never taken over.
  const entries = (assigned ?? inForce).split(separator).filter((entry) => entry !== '' && !isInStore(entry));
  return [...new Set(entries)];
}

function overriddenBy(unit: LoadedUnit, name: string): string | null {
  const files = filesWithout(unit, ourDropIns(unit.name));
  if (unsetVariables(files).has(name)) return `UnsetEnvironment=${name} of the unit`;
  for (const file of [...(unit.environmentFileContents ?? [])].reverse()) {
    if (environmentFileVariables(file.content).has(name)) return file.path;
  }
  const last = path.basename(lastDropInPath(unit.name));
  const later = unit.dropIns.findLast(
    (dropIn) => path.basename(dropIn.path) > last && assignedVariables([dropIn.content]).has(name),
  );
  return later?.path ?? null;
}

/** The drop-ins to have: the usual one, and a last one when another that sorts after it sets or clears the same variable. */
function wantedDropIns(
  profile: Profile,
  unit: LoadedUnit,
  variables: readonly WantedVariable[],
): readonly WantedDropIn[] {
  const first = dropInPath(unit.name);
  const contested = contestedVariables(unit, variables);
  const wanted: WantedDropIn[] = [
    {
      path: first,
      content: `${dropInText(profile.name, variables, null)}${startRecordLines(unit)}`,
      reason: `sets ${variables.map((variable) => variable.name).join(' and ')} of ${unit.name}, and keeps the values that they have already`,
    },
  ];
  if (contested.variables.length > 0) {
    const names = contested.variables.map((variable) => variable.name).join(' and ');
    wanted.push({
      path: lastDropInPath(unit.name),
      content: dropInText(profile.name, contested.variables, contested.by),
      reason: `${contested.by} sets ${names} after ${path.basename(first)} and would override it; this one comes later and has both values`,
    });
  }
  return wanted;
}

function contestedVariables(
  unit: LoadedUnit,
  variables: readonly WantedVariable[],
): { readonly variables: readonly WantedVariable[]; readonly by: string } {
  const ours = ourDropIns(unit.name);
  const name = path.basename(dropInPath(unit.name));
  const later = unit.dropIns.filter((dropIn) => !ours.has(dropIn.path) && path.basename(dropIn.path) > name);
  const contested = variables.filter((variable) =>
    later.some((dropIn) => touches(dropIn.content, variable.name)),
  );
  const by = later.filter((dropIn) => contested.some((variable) => touches(dropIn.content, variable.name)));
  return { variables: contested, by: by.map((dropIn) => dropIn.path).join(' and ') };
}

function touches(content: string, name: string): boolean {
  const marker = 'Environment="vgpu-agent=before"';
  const after = assignedVariables([`[Service]\n${marker}\n`, content]);
  return after.has(name) || !after.has('vgpu-agent');
}

function dropInText(profile: string, variables: readonly WantedVariable[], after: string | null): string {
  const lines = [
    `# Written by vgpu-agent for the profile ${profile}. Taken away by: vgpu-agent uninstall`,
    '# Put settings of your own into another drop-in (systemctl edit): this one is written again when it differs.',
  ];
  if (after !== null) lines.push(`# It comes last because ${after} sets the same.`);
  lines.push('[Service]');
  for (const { name, why, entries, inherited, separator } of variables) {
    lines.push(`# ${why}`);
    if (inherited.length > 0) lines.push('# The values that the unit had before follow ours.');
    lines.push(environmentLine(name, [...entries.map(escapeSpecifiers), ...inherited].join(separator)));
  }
  return `${lines.join('\n')}\n`;
}

/**
 * Where the log goes to a file, each start says how long that file was before it (guest/unit/start-record.ts): old lines
 * must not speak for a new start. `-`: the consumer starts whatever becomes of it. Never `+`: the command has the
 * unit's LD_PRELOAD and LD_LIBRARY_PATH, which may name what the service's user can write. The sender lives on for a
 * moment: journald looks at its cgroup when it reads the line, and an entry of a process that has ended by then has no
 * invocation ID.
 */
function startRecordLines(unit: LoadedUnit): string {
  const target = outputTarget(unit);
  if (target?.kind !== 'append') return '';
  const stat = `stat -Lc "${escapeSpecifiers(startNote)}" /proc/self/fd/3`;
  return `# Where this start's lines begin in the log file: old ones must not count.
ExecStartPre=-/bin/sh -c 'exec 3>&${target.descriptor}; { ${stat}; sleep 0.3; } | systemd-cat -t vgpu-agent -p info'
`;
}

export function inForce(unit: LoadedUnit, variables: readonly WantedVariable[]): boolean {
  return variables
    .filter((variable) => variable.overridden === null)
    .every((variable) => hasEntries(own(unit.environment, variable.name), variable));
}

export function hasEntries(value: string | undefined, variable: WantedVariable): boolean {
  const present = new Set((value ?? '').split(variable.separator));
  return variable.entries.every((entry) => present.has(entry));
}

export function dropInChanges(
  profile: Profile,
  facts: MachineFacts,
  unit: LoadedUnit,
  variables: readonly WantedVariable[],
): readonly Change[] {
  const wanted = wantedDropIns(profile, unit, variables);
  const libraries = variables.filter((variable) => variable.preflight === 'library');
  const preflight = {
    user: facts.serviceUser,
    required: libraries.flatMap((variable) => variable.entries),
    inherited: libraries
      // The loader splits LD_PRELOAD at blanks too.
      .flatMap((variable) => variable.inherited.flatMap((entry) => entry.split(' ')))
      .filter((entry) => entry.startsWith('/') && !entry.includes('%') && !entry.includes('$')),
  };
  const changes: Change[] = [];
  for (const { path, content, reason } of wanted) {
    const present = presentDropIn(facts, unit, path);
    changes.push(...textChange(facts, present, content, reason, preflight));
  }
  const last = lastDropInPath(unit.name);
  if (wanted.some((one) => one.path === last)) return changes;
  return [
    ...changes,
    ...withdrawal(facts.manifest, last, 'no other drop-in sets the same variables any more'),
  ];
}

/** The facts list the first drop-in by itself; another is known from what systemd has read. */
function presentDropIn(facts: MachineFacts, unit: LoadedUnit, path: string): OwnedFileFacts {
  if (path === dropInPath(unit.name)) return facts.dropIn;
  const loaded = unit.dropIns.find((dropIn) => dropIn.path === path);
  if (loaded === undefined) return { path, state: { kind: 'absent' }, content: null };
  const { content } = loaded;
  const sha256 = createHash('sha256').update(content).digest('hex');
  const owner = { uid: 0, gid: 0, mtimeNs: '0' };
  const state = { kind: 'file' as const, size: Buffer.byteLength(content), sha256, mode: 0o644, ...owner };
  return { path, state, content };
}
