/**
 * Is the unit a container? Told by its command, which podman's quadlet generator, `podman generate systemd` and people
 * all write alike: `podman run ...`, `docker run ...`, `docker start ...`, `docker compose up`. Pure.
 */
import path from 'node:path';
import type { ProcessFacts } from '../contracts/facts.js';
import type { LoadedUnit, UnitFacts } from '../contracts/unit.js';
import { assignments } from './unit-file.js';

export type ContainerEngine = 'podman' | 'docker';

export interface ContainerUnit {
  readonly engine: ContainerEngine;
  /** As the unit names it: `/usr/bin/podman`. */
  readonly program: string;
  /** The engine's own options that stand before its command: `--host`, `--root`. */
  readonly options: readonly string[];
  /** `compose`: containers of a compose file, of which the unit names none. */
  readonly command: 'run' | 'start' | 'compose';
  /** The container's name; null: the command gives none. */
  readonly name: string | null;
  /** It does not wait for the container, whose output then goes elsewhere. */
  readonly detached: boolean;
  /** The file that quadlet made the unit from; null: no quadlet. */
  readonly quadlet: string | null;
  /** CDI devices (`vendor/class=name`) that the command gives it. */
  readonly devices: readonly string[];
  /** The command changes nothing of the engine's seccomp profile. */
  readonly defaultSeccomp: boolean;
  /** What the command sets in it: `--env NAME=VALUE`. */
  readonly environment: Readonly<Record<string, string>>;
}

const deviceName = /^[A-Za-z0-9.-]+\/[A-Za-z0-9._-]+=[A-Za-z0-9._:-]+$/;
const commands: ReadonlySet<string> = new Set(['run', 'start', 'compose', 'container']);
const composeProgram = /^(?:docker|podman)-compose$/;
export function containerOf(unit: Pick<LoadedUnit, 'execStart' | 'fragmentContent'>): ContainerUnit | null {
  const [program = '', ...all] = unit.execStart;
  const base = path.basename(program);
  const engine = base.startsWith('podman') ? 'podman' : 'docker';
  if (composeProgram.test(base)) return unnamed(engine, program, 'compose');
  const at = commandAt(all);
  if (base !== engine || at === null) return null;
  const [verb, ...rest] = all.slice(all[at] === 'container' ? at + 1 : at);
  if (verb === 'compose') return unnamed(engine, program, verb);
  if (verb !== 'run' && verb !== 'start') return null;
  const source = assignments([unit.fragmentContent ?? ''], 'Unit', 'SourcePath').at(-1) ?? '';
  const isRun = verb === 'run';
  return {
    engine,
    program,
    options: all.slice(0, at),
    command: verb,
    name: isRun ? optionOf(rest, '--name') : (rest.findLast((word) => !word.startsWith('-')) ?? null),
    detached: isRun ? isSet(rest, 'd', '--detach') : !isSet(rest, 'a', '--attach'),
    quadlet: source.endsWith('.container') ? source : null,
    devices: valuesOf(rest, '--device').filter((value) => deviceName.test(value)),
    defaultSeccomp:
      !rest.includes('--privileged') &&
      !valuesOf(rest, '--security-opt').some((value) => value.startsWith('seccomp')),
    environment: assigned([...valuesOf(rest, '--env'), ...valuesOf(rest, '-e')]),
  };
}

/** Where a person changes what the consumer is started with. */
export function editCommand(unit: UnitFacts): string {
  const container = unit.kind === 'loaded' ? containerOf(unit) : null;
  if (container === null) return `systemctl edit ${unit.name}`;
  if (container.quadlet === null) return `systemctl edit --full ${unit.name}`;
  return `editor ${container.quadlet} && sudo systemctl daemon-reload`;
}

export function isContainer(unit: UnitFacts): boolean {
  return unit.kind === 'loaded' && containerOf(unit) !== null;
}

function unnamed(engine: ContainerEngine, program: string, command: 'compose'): ContainerUnit {
  const nothing = {
    options: [],
    name: null,
    detached: false,
    quadlet: null,
    devices: [],
    defaultSeccomp: false,
    environment: {},
  };
  return { engine, program, command, ...nothing };
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

/** The value of an option; null: it is not there. */
export function optionOf(words: readonly string[], option: string): string | null {
  return valuesOf(words, option)[0] ?? null;
}

/** `-d`, `-itd`, `--detach`. */
function isSet(words: readonly string[], letter: string, long: string): boolean {
  const short = new RegExp(`^-[itPq]*${letter}[itPq]*$`);
  return words.some((word) => word === long || word === `${long}=true` || short.test(word));
}

/**
 * The engine's own programs (in brackets: systemd, before it has executed one), and the one that we put into the
 * container ourselves, to ask.
 */
const notConsumers =
  /^(?:\(?(?:podman(?:-compose)?|docker(?:-compose)?|conmon|crun|runc)\)?|runc:\[.*|vgpu-probe)$/;

/** podman's monitor, the parent of the container's first process. */
export function isMonitor(name: string): boolean {
  return name === 'conmon';
}

/**
 * Of the unit's processes (those in its cgroup, and those in the cgroup of its container) the consumer's: what lives in
 * the container's PID namespace, or, where the container shares the guest's, what is not the engine's.
 */
export function consumersOwn(unit: UnitFacts, processes: readonly ProcessFacts[]): readonly ProcessFacts[] {
  if (!isContainer(unit)) return processes;
  const others = processes.filter(({ name }) => !notConsumers.test(name));
  const inside = others.filter(({ namespacePid }) => namespacePid !== undefined);
  return inside.length > 0 ? inside : others;
}
