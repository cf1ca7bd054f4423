/** Facts that only the doctor needs, in addition to those of install. Reads, never writes. */
import path from 'node:path';
import { isContainer } from '../../containers/container-unit.js';
import type { ElfFacts, MachineFacts, ShimBuild } from '../../contracts/facts.js';
import { kindOf } from '../../contracts/manifest.js';
import { messageOf } from '../../lib/errors.js';
import { own } from '../../lib/json.js';
import { storeVersions } from '../../lib/paths.js';
import type { CommandRunner } from '../../lib/run-command.js';
import { octal } from '../../lib/text.js';
import { readLimited } from '../../lib/trust/files.js';
import type { Profile } from '../../profile/types.js';
import { logNamespace } from '../../systemd/unit-facts.js';
import { type ContentCache, contentAt, pathState } from '../files/content.js';
import { Root } from '../files/root.js';
import { consumerDirectories, libraryOf } from '../libraries/candidates.js';
import { environmentOf } from '../unit/processes.js';
import type { LoaderEffects } from './ask-loader.js';
import { type LoaderLook, lookAtLoader } from './loader.js';
import { isSecure, readExecutables, readPreload } from './process.js';

export type CloserLook = Awaited<ReturnType<typeof lookCloser>>;

export interface ServiceState {
  readonly state: string;
  readonly problem: string | null;
  readonly configProblem: string | null;
}

interface LookEffects extends LoaderEffects {
  readonly root: string;
  readonly contents: ContentCache;
  /** Asks our own service, over the bus; null: it does not run. */
  serviceState(): Promise<ServiceState | null>;
}

/** A machine without the consumer gives empty lists; nothing is thrown for what may not be read. */
export async function lookCloser(effects: LookEffects, profile: Profile, facts: MachineFacts) {
  const { contents, runner } = effects;
  const { unit, processes, shim } = facts;
  const inContainer = isContainer(unit);
  const root = inContainer ? rootOfContainer(processes) : new Root(effects.root);
  const [consumer, executables, preload, damage, status, journald] = await Promise.all([
    readConsumer(root, contents, profile, facts),
    readExecutables(root, runner, contents, processes),
    readPreload(runner, contents, facts),
    facts.store.versions.some(({ id }) => id === shim.id)
      ? storeDamage(new Root(effects.root), contents, shim).catch((error: unknown) => [String(error)])
      : null,
    effects.serviceState().catch(() => null),
    readJournald(runner, logNamespace(unit)),
  ]);
  const asking = consumer.libraries.flatMap(({ path: file, elf }) => {
    const needed = elf?.needed.filter((name) => libraryOf(name) !== null) ?? [];
    return needed.length === 0 ? [] : [{ path: file, needed }];
  });
  const { runInUnit } = effects;
  // No program of an image is run outside of its container, its loader neither.
  const loader: LoaderLook = inContainer
    ? { processes: [], problem: null }
    : await lookAtLoader({ root, runner, runInUnit, contents, facts, openers: asking });
  return {
    consumer,
    security: processes.map(({ pid, name, executable }) => ({
      pid,
      name,
      executable,
      secure: isSecure(pid),
    })),
    executables,
    preload,
    /** In what the store differs from the shim that belongs to this agent; null: no such version is in the store. */
    storeDamage: damage,
    loader,
    /** The profile's override variables as the first process of the consumer's container has them. */
    containerEnvironment: inContainer ? environmentInContainer(processes, profile) : {},
    journald,
    /** The status of vgpu-agent.service by its own account; null: it does not run, or was not understood. */
    service: { status },
  };
}

/** As the container's first process sees it; where there is none, nothing is seen. */
function rootOfContainer(processes: MachineFacts['processes']): Root {
  const first = processes.find(({ namespacePid }) => namespacePid === 1) ?? processes[0];
  return new Root(`/proc/${first?.pid ?? 0}/root`);
}

/** Variables that make a consumer use the CPU: an image may set them too, and the unit does not show that. */
function environmentInContainer(
  processes: MachineFacts['processes'],
  profile: Profile,
): Readonly<Record<string, string>> {
  const first = processes.find(({ namespacePid }) => namespacePid === 1);
  const bytes = first === undefined ? null : readLimited(`/proc/${first.pid}/environ`, maxEnvironment);
  const all = bytes === null ? {} : environmentOf(bytes);
  return Object.fromEntries(
    profile.overrides.flatMap(({ variable }) => {
      const value = own(all, variable);
      return value === undefined ? [] : [[variable, value]];
    }),
  );
}

/** The kernel gives an environment of a quarter of the stack's limit: 2 MiB. */
const maxEnvironment = 2 * 1024 * 1024;
/** Ollama has some twenty; each is read through, and the directory may be the service's user's. */
const mostLibraries = 100;

async function readConsumer(
  root: Root,
  contents: ContentCache,
  profile: Profile,
  { distribution }: MachineFacts,
) {
  const directories = consumerDirectories(root, profile, distribution);
  const files = directories.flatMap((directory) =>
    root
      .readdir(directory)
      .filter((name) => /\.so(\.|$)/.test(name))
      .map((name) => path.join(directory, name)),
  );
  return {
    directories,
    libraries: await Promise.all(
      files.slice(0, mostLibraries).map((file) => readLibrary(root, contents, file)),
    ),
  };
}

/** `elf` is null when it is no ELF file, or may not be read: then `problem` says why. */
async function readLibrary(root: Root, contents: ContentCache, file: string) {
  const read = await contentAt(root, file, contents)
    .then((content) => content?.elf ?? ({ kind: 'problem', reason: 'it is not a regular file' } as const))
    .catch((error: unknown) => ({ kind: 'problem', reason: messageOf(error) }) as const);
  const elf: ElfFacts | null = read.kind === 'elf' ? read.facts : null;
  const problem: string | null = read.kind === 'elf' ? null : read.reason;
  return { path: file, elf, problem };
}

/** A line for each file of the version that differs from `shim`, is missing, unexpected or unreadable. */
async function storeDamage(root: Root, contents: ContentCache, shim: ShimBuild): Promise<readonly string[]> {
  const directory = path.join(storeVersions, shim.id);
  const lines = await Promise.all([
    ...shim.files.map(async (file): Promise<string | null> => {
      const at = path.join(directory, file.name);
      const state = await pathState(root, at, contents);
      if (state.kind !== 'file') return `${at} is ${kindOf(state)}`;
      if (state.size !== file.size) return `${at} has ${state.size} bytes, ${file.size} were installed`;
      if (state.sha256 !== file.sha256) return `${at} has other bytes than were installed`;
      if (state.mode !== file.mode)
        return `${at} has mode ${octal(state.mode)}, ${octal(file.mode)} was installed`;
      return null;
    }),
    ...shim.links.map(async (link): Promise<string | null> => {
      const at = path.join(directory, link.name);
      const state = await pathState(root, at, contents);
      if (state.kind === 'link' && state.target === link.target) return null;
      return `${at} is not a link to ${link.target}`;
    }),
  ]);
  const known = new Set([...shim.files, ...shim.links].map(({ name }) => name));
  const more = root.readdir(directory).filter((name) => !known.has(name));
  return [
    ...lines.filter((line) => line !== null),
    ...more.map((name) => `${path.join(directory, name)} was not made by vgpu-agent`),
  ];
}

// journald's settings that decide which lines it keeps (journald.conf(5)).

const keys = ['Storage', 'MaxLevelStore', 'RateLimitBurst', 'RateLimitIntervalSec'] as const;

export interface JournaldSetting {
  readonly value: string;
  readonly file: string;
}

export type JournaldLook = Readonly<Partial<Record<(typeof keys)[number], JournaldSetting>>>;

/** systemd-analyze prints the files in their order, each below a comment with its path. */
export async function readJournald(runner: CommandRunner, namespace: string): Promise<JournaldLook> {
  const name = namespace === '' ? 'journald.conf' : `journald@${namespace}.conf`;
  const ran = await runner.run('systemd-analyze', ['cat-config', `systemd/${name}`]).catch(() => null);
  const look: Partial<Record<(typeof keys)[number], JournaldSetting>> = {};
  let file = '';
  for (const line of ran?.stdout.toString('utf8').split('\n') ?? []) {
    file = /^# (\/\S+\.conf)$/.exec(line)?.[1] ?? file;
    const [, given, value = ''] = /^\s*(\w+)\s*=\s*(.*?)\s*$/.exec(line) ?? [];
    const key = keys.find((one) => one === given);
    if (key !== undefined && value !== '') look[key] = { value, file };
  }
  return look;
}
