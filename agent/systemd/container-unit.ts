/**
 * Is the unit a container? Told by its command, which podman's quadlet generator, `podman generate systemd` and people
 * all write alike: `podman run ...`, `docker run ...`. Pure.
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
  /** The container's name; null: the command gives none, or takes one that is there. */
  readonly name: string | null;
  /** The file that quadlet made the unit from; null: no quadlet. */
  readonly quadlet: string | null;
  /** CDI devices (`vendor/class=name`) that the command gives it. */
  readonly devices: readonly string[];
}

const deviceName = /^[A-Za-z0-9.-]+\/[A-Za-z0-9._-]+=[A-Za-z0-9._:-]+$/;

export function containerOf(unit: Pick<LoadedUnit, 'execStart' | 'fragmentContent'>): ContainerUnit | null {
  const [program = '', ...words] = unit.execStart;
  const engine = path.basename(program);
  if (engine !== 'podman' && engine !== 'docker') return null;
  if (!words.includes('run')) return null;
  const source = assignments([unit.fragmentContent ?? ''], 'Unit', 'SourcePath').at(-1) ?? '';
  return {
    engine,
    program,
    name: valuesOf(words, '--name')[0] ?? null,
    quadlet: source.endsWith('.container') ? source : null,
    devices: valuesOf(words, '--device').filter((value) => deviceName.test(value)),
  };
}

/** `--name X` and `--name=X`. The container's own words come last, so of several the first is the engine's. */
function valuesOf(words: readonly string[], option: string): readonly string[] {
  return words.flatMap((word, at) => {
    if (word.startsWith(`${option}=`)) return [word.slice(option.length + 1)];
    const next = words[at + 1];
    return word === option && next !== undefined ? [next] : [];
  });
}

/** The engine's own programs in the unit, and the one that we put into the container ourselves, to ask. */
const notConsumers: ReadonlySet<string> = new Set([
  'podman',
  'docker',
  'conmon',
  'crun',
  'runc',
  'vgpu-probe',
]);

/**
 * Of the processes in the unit's cgroup, those of the consumer: what lives in the container's PID namespace, or, where
 * the container shares the guest's, what is not the engine's. Docker's daemon starts containers in a cgroup of their
 * own: then there are none.
 */
export function consumersOwn(unit: UnitFacts, processes: readonly ProcessFacts[]): readonly ProcessFacts[] {
  if (unit.kind !== 'loaded' || containerOf(unit) === null) return processes;
  const others = processes.filter(({ name }) => !notConsumers.has(name));
  const inside = others.filter(({ namespacePid }) => namespacePid !== undefined);
  return inside.length > 0 ? inside : others;
}
