/**
 * The processes of a container that a unit runs. Only with quadlet's `--cgroups=split` are they in the unit's cgroup:
 * docker's daemon, and podman without that, keep them in a separate one. docker's daemon reports the container's first
 * process; for podman the kernel does, because podman's monitor is its parent. The kernel also reports its cgroup.
 */
import path from 'node:path';
import {
  type ContainerUnit,
  consumersContainers,
  containerOf,
  isMonitor,
} from '../../containers/container-unit.js';
import type { LoadedUnit } from '../../contracts/unit.js';
import type { Manager } from '../../systemd/types.js';
import { cgroupOf, cgroupTree, pidsBelow, readStat, type Stat, textOf } from './processes.js';

/** While a container starts docker is asked again and again, with this pause after an answer. */
const askEveryMs = 100;
const dockerClients: ReadonlySet<string> = new Set(['docker', 'docker-compose']);

interface Process extends Stat {
  readonly pid: number;
}

interface DockerWord {
  /** The first process of the unit's container; null: it does not run, or it is not known. */
  pid(container: ContainerUnit): Promise<number | null>;
  composed(unit: LoadedUnit): Promise<LoadedUnit>;
}

/** A manager whose `processes` tells also those of the unit's containers, and whose `unit` those of its compose file. */
export function withContainers(manager: Manager, docker: DockerWord): Manager {
  const known = new Map<string, readonly Process[]>();
  const answered = new Map<string, number>();
  /** Questions without an answer yet: a caller that comes meanwhile waits for the same answer. */
  const asking = new Map<string, Promise<readonly Process[]>>();

  /** The first process of each container; none: they do not run yet. */
  const ofDocker = async (name: string): Promise<readonly Process[]> => {
    const before = known.get(name) ?? [];
    if (before.length > 0) {
      const stats = await Promise.all(before.map(({ pid }) => readStat(`/proc/${pid}`)));
      if (before.every(({ startTicks }, at) => stats[at]?.startTicks === startTicks)) return before;
      known.delete(name);
    }
    const under = asking.get(name);
    if (under !== undefined) return under;
    if (performance.now() - (answered.get(name) ?? Number.NEGATIVE_INFINITY) < askEveryMs) return [];
    const question = ask(name).finally(() => {
      asking.delete(name);
      answered.set(name, performance.now());
    });
    asking.set(name, question);
    return question;
  };

  const ask = async (name: string): Promise<readonly Process[]> => {
    const unit = await manager.unit(name);
    if (unit.kind !== 'loaded' || unit.activeState === 'failed') return [];
    const found = await firstOf(unit);
    if (found.length > 0) known.set(name, found);
    return found;
  };

  const firstOf = async (unit: LoadedUnit): Promise<readonly Process[]> => {
    const container = containerOf(unit);
    if (container?.engine !== 'docker') return [];
    if (container.command === 'compose') {
      // `up` goes on with containers that run already, so they may be older than it.
      const { composed = [] } = await docker.composed(unit);
      return existing(await Promise.all(consumersContainers(composed).map(({ pid }) => processOf(pid))));
    }
    const first = await processOf(await docker.pid(container));
    if (first === null) return [];
    // Not one of the same name that a former start left behind.
    const main = await processOf(unit.mainPid);
    return main !== null && BigInt(first.startTicks) < BigInt(main.startTicks) ? [] : [first];
  };

  return {
    ...manager,
    unit: async (name) => {
      const unit = await manager.unit(name);
      return unit.kind === 'loaded' ? docker.composed(unit) : unit;
    },
    processes: async (name) => {
      const pids = await manager.processes(name);
      const own = existing(await Promise.all(pids.map(processOf)));
      const monitor = own.find((one) => isMonitor(one.name));
      // Asked for at every look at any consumer: of one that is no container nothing else is read.
      const mayBeDocker = own.length === 0 || own.some((one) => dockerClients.has(one.name));
      const firsts =
        monitor !== undefined
          ? [childOf(monitor.pid)].filter((pid) => pid !== null)
          : mayBeDocker
            ? (await ofDocker(name)).map(({ pid }) => pid)
            : [];
      return [...new Set([...pids, ...firsts.flatMap(groupOf)])];
    },
  };
}

function existing(all: readonly (Process | null)[]): readonly Process[] {
  return all.filter((one) => one !== null);
}

async function processOf(pid: number | null): Promise<Process | null> {
  const stat = pid === null || pid === 0 ? null : await readStat(`/proc/${pid}`);
  return pid === null || stat === null ? null : { pid, ...stat };
}

/** A monitor has one child: the container's first process, or the runtime that is about to become it. */
function childOf(pid: number): number | null {
  const child = /^\d+/.exec(textOf(`/proc/${pid}/task/${pid}/children`))?.[0];
  return child === undefined ? null : Number(child);
}

/** All processes of the cgroup that a process is in, and below; on a machine without cgroup v2 that process alone. */
function groupOf(pid: number): readonly number[] {
  const group = cgroupOf(pid);
  if (group === null || group === '/' || group.startsWith('/..')) return [pid];
  return [pid, ...pidsBelow(path.join(cgroupTree, group)).pids];
}
