/**
 * Is the unit a container? Told by its command, which podman's quadlet generator, `podman generate systemd` and people
 * all write alike: `podman run ...`, `docker run ...`, `docker start ...`, `docker compose up`. Pure.
 */
import path from 'node:path';
import type { ProcessFacts } from '../contracts/facts.js';
import type { ComposedContainer, LoadedUnit, UnitFacts } from '../contracts/unit.js';
import { assignments } from '../lib/unit-file.js';
import { isOurDevice } from './cdi.js';

type ContainerEngine = 'podman' | 'docker';

export interface ContainerUnit {
  readonly engine: ContainerEngine;
  readonly program: string;
  /** The engine's own options before its command: `--host`, `--root`. */
  readonly options: readonly string[];
  readonly command: 'run' | 'start' | 'compose';
  readonly compose: ComposeProject | null;
  readonly name: string | null;
  /** It does not wait for the container, whose output then goes elsewhere. */
  readonly detached: boolean;
  /** The file that quadlet made the unit from; null: no quadlet. */
  readonly quadlet: string | null;
  readonly devices: readonly string[];
  /** The command changes nothing of the engine's seccomp profile. */
  readonly defaultSeccomp: boolean;
  readonly environment: Readonly<Record<string, string>>;
  /** `--env-file FILE`. What `environment` has wins over them. */
  readonly environmentFiles: readonly string[];
}

interface ComposeProject {
  readonly project: string | null;
  readonly files: readonly string[];
  readonly directory: string | null;
}

const deviceName = /^[A-Za-z0-9.-]+\/[A-Za-z0-9._-]+=[A-Za-z0-9._:-]+$/;
const commands: ReadonlySet<string> = new Set(['run', 'start', 'compose', 'container']);
const composeProgram = /^(?:docker|podman)-compose$/;
const composeCommands: ReadonlySet<string> = new Set(['up', 'start', 'run', 'restart']);
/** The engine's own program, because `docker-compose` cannot run a program in a container by the container's name. */
const dockerProgram = '/usr/bin/docker';

type CommandFacts = Pick<LoadedUnit, 'execStart' | 'fragmentContent' | 'composed'>;

export function containerOf(unit: CommandFacts): ContainerUnit | null {
  const [program = '', ...all] = unit.execStart;
  const base = path.basename(program);
  const engine = base.startsWith('podman') ? 'podman' : 'docker';
  if (composeProgram.test(base)) return composed(unit, engine, dockerProgram, [], all);
  const at = commandAt(all);
  if (base !== engine || at === null) return null;
  const [verb, ...rest] = all.slice(all[at] === 'container' ? at + 1 : at);
  if (verb === 'compose') return composed(unit, engine, program, all.slice(0, at), rest);
  if (verb !== 'run' && verb !== 'start') return null;
  const source = assignments([unit.fragmentContent ?? ''], 'Unit', 'SourcePath').at(-1) ?? '';
  const isRun = verb === 'run';
  return {
    engine,
    program,
    options: all.slice(0, at),
    command: verb,
    compose: null,
    name: isRun ? optionOf(rest, '--name') : (rest.findLast((word) => !word.startsWith('-')) ?? null),
    detached: isRun ? isSet(rest, 'd', '--detach') : !isSet(rest, 'a', '--attach'),
    quadlet: source.endsWith('.container') ? source : null,
    devices: valuesOf(rest, '--device').filter((value) => deviceName.test(value)),
    defaultSeccomp:
      !rest.includes('--privileged') &&
      !valuesOf(rest, '--security-opt').some((value) => value.startsWith('seccomp')),
    environment: assigned([...valuesOf(rest, '--env'), ...valuesOf(rest, '-e')]),
    environmentFiles: valuesOf(rest, '--env-file'),
  };
}

export function editCommand(unit: UnitFacts): string {
  const container = unit.kind === 'loaded' ? containerOf(unit) : null;
  if (container === null) return `systemctl edit ${unit.name}`;
  if (container.quadlet === null) return `systemctl edit --full ${unit.name}`;
  return `editor ${container.quadlet} && sudo systemctl daemon-reload`;
}

/** Is its podman another user's (`User=`)? Root's podman does not know the containers of that one. */
export function isRootless(unit: LoadedUnit): boolean {
  const root = ['', 'root', '0'].includes(unit.user) && !unit.dynamicUser;
  return !root && containerOf(unit)?.engine === 'podman';
}

export function isContainer(unit: UnitFacts): boolean {
  return unit.kind === 'loaded' && containerOf(unit) !== null;
}

function composed(
  unit: CommandFacts,
  engine: ContainerEngine,
  program: string,
  options: readonly string[],
  words: readonly string[],
): ContainerUnit {
  const at = words.findIndex((word) => composeCommands.has(word));
  const before = words.slice(0, at === -1 ? words.length : at);
  const after = words.slice(before.length + 1);
  const own = (...names: readonly string[]) => names.flatMap((name) => valuesOf(before, name));
  const [first] = consumersContainers(unit.composed ?? []);
  return {
    engine,
    program,
    options,
    command: 'compose',
    compose: {
      project: own('-p', '--project-name').at(-1) ?? null,
      files: own('-f', '--file'),
      directory: own('--project-directory').at(-1) ?? null,
    },
    name: first?.name ?? null,
    detached: words[at] !== 'up' || isSet(after, 'd', '--detach') || after.includes('--wait'),
    quadlet: null,
    devices: first?.devices ?? [],
    defaultSeccomp: false,
    environment: {},
    environmentFiles: [],
  };
}

/** The containers of a compose file that were given the GPU; when there are none, all of them. */
export function consumersContainers(all: readonly ComposedContainer[]): readonly ComposedContainer[] {
  const given = all.filter(({ devices }) => devices.some(isOurDevice));
  return given.length > 0 ? given : all;
}

/** Is there something to look at? The client of a detached container has ended, and the unit has no process of its own. */
export function isRunning(unit: LoadedUnit): boolean {
  return unit.mainPid !== 0 || (unit.activeState === 'active' && containerOf(unit)?.detached === true);
}

/** Where the engine's command stands: before it are only the engine's own options, and their values. */
function commandAt(words: readonly string[]): number | null {
  const at = words.findIndex((word) => commands.has(word));
  const before = words.slice(0, Math.max(at, 0));
  const plain = before.some((word, index) => !word.startsWith('-') && !before[index - 1]?.startsWith('-'));
  return at === -1 || plain ? null : at;
}

/** `--name X` and `--name=X`. The container's own words come last, so of several the first is the engine's. */
function valuesOf(words: readonly string[], option: string): readonly string[] {
  return words.flatMap((word, at) => {
    if (word.startsWith(`${option}=`)) return [word.slice(option.length + 1)];
    const next = words[at + 1];
    return word === option && next !== undefined ? [next] : [];
  });
}

function assigned(words: readonly string[]): Readonly<Record<string, string>> {
  return Object.fromEntries(
    words.flatMap((word) => {
      const at = word.indexOf('=');
      return at > 0 ? [[word.slice(0, at), word.slice(at + 1)]] : [];
    }),
  );
}

export function optionOf(words: readonly string[], option: string): string | null {
  return valuesOf(words, option)[0] ?? null;
}

function isSet(words: readonly string[], letter: string, long: string): boolean {
  const short = new RegExp(`^-[itPq]*${letter}[itPq]*$`);
  return words.some((word) => word === long || word === `${long}=true` || short.test(word));
}

/**
 * The engine's own programs (in brackets: systemd, before it has executed one), and the one that we put into the
 * container ourselves, to ask. A user's podman executes itself as /proc/self/exe, and leaves `podman pause` behind.
 */
const notConsumers =
  /^(?:\(?(?:podman(?:-compose| pause)?|docker(?:-compose)?|conmon|crun|runc)\)?|exe|runc:\[.*|vgpu-probe)$/;

export function isMonitor(name: string): boolean {
  return name === 'conmon';
}

/**
 * The consumer's part of the unit's processes (those in its cgroup, and those in the cgroup of its container): those in
 * the container's PID namespace, or, when the container shares the guest's, those that do not belong to the engine.
 */
export function consumersOwn(unit: UnitFacts, processes: readonly ProcessFacts[]): readonly ProcessFacts[] {
  if (!isContainer(unit)) return processes;
  const others = processes.filter(({ name }) => !notConsumers.test(name));
  const inside = others.filter(({ namespacePid }) => namespacePid !== undefined);
  return inside.length > 0 ? inside : others;
}
