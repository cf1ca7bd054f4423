/**
 * The processes of a container that a unit runs. Only with quadlet's `--cgroups=split` are they in the unit's cgroup:
 * docker's daemon, and podman without that, keep them in one of their own. Which process is the container's first is
 * told by docker's daemon, and for podman by the kernel: podman's monitor is its parent. The kernel also tells in which
 * cgroup that is.
 */
import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { type ContainerUnit, containerOf, isMonitor } from '../../systemd/container-unit.js';
import type { Manager } from '../../systemd/types.js';
import { readLimited } from '../../trust/files.js';
import { readStat, type Stat } from './processes.js';

const cgroupRoot = '/sys/fs/cgroup';
/** While a container starts docker is asked again and again. */
const askEveryMs = 100;
const maxBytes = 64 * 1024;
/** Cgroups below a container's: systemd in a container makes one a service. */
const maxCgroups = 64;

interface Process extends Stat {
  readonly pid: number;
}

/** A manager whose `processes` tells also those of the unit's container. `ask`: docker, for the container's first. */
export function withContainers(
  manager: Manager,
  ask: (container: ContainerUnit) => Promise<number | null>,
): Manager {
  const known = new Map<string, Process>();
  const asked = new Map<string, number>();

  const ofDocker = async (name: string): Promise<Process | null> => {
    const before = known.get(name);
    if (before !== undefined) {
      if ((await readStat(`/proc/${before.pid}`))?.startTicks === before.startTicks) return before;
      known.delete(name);
    }
    const now = performance.now();
    if (now - (asked.get(name) ?? Number.NEGATIVE_INFINITY) < askEveryMs) return null;
    asked.set(name, now);
    const unit = await manager.unit(name);
    if (unit.kind !== 'loaded' || unit.activeState === 'failed') return null;
    const container = containerOf(unit);
    const first = container?.engine === 'docker' ? await processOf(await ask(container)) : null;
    if (first === null) return null;
    // Not one of the same name that a former start left behind.
    const main = await processOf(unit.mainPid);
    if (main !== null && BigInt(first.startTicks) < BigInt(main.startTicks)) return null;
    known.set(name, first);
    return first;
  };

  return {
    ...manager,
    processes: async (name) => {
      const pids = await manager.processes(name);
      const own = (await Promise.all(pids.map(processOf))).filter((one) => one !== null);
      const monitor = own.find((one) => isMonitor(one.name));
      // Asked for at every look at any consumer: of one that is no container nothing else is read.
      const mayBeDocker = own.length === 0 || own.some((one) => one.name === 'docker');
      const first =
        monitor !== undefined
          ? await childOf(monitor.pid)
          : mayBeDocker
            ? ((await ofDocker(name))?.pid ?? null)
            : null;
      return first === null ? pids : [...new Set([...pids, ...(await cgroupOf(first))])];
    },
  };
}

/** Null: there is none. */
async function processOf(pid: number | null): Promise<Process | null> {
  const stat = pid === null || pid === 0 ? null : await readStat(`/proc/${pid}`);
  return pid === null || stat === null ? null : { pid, ...stat };
}

/** A monitor has one child: the container's first process, or the runtime that is about to become it. */
async function childOf(pid: number): Promise<number | null> {
  const child = /^\d+/.exec(read(`/proc/${pid}/task/${pid}/children`))?.[0];
  return child === undefined ? null : Number(child);
}

/** All processes of the cgroup that a process is in, and below; on a machine without cgroup v2 that process alone. */
async function cgroupOf(pid: number): Promise<readonly number[]> {
  const group = /^0::(\/.+)$/m.exec(read(`/proc/${pid}/cgroup`))?.[1];
  if (group === undefined || group.startsWith('/..')) return [pid];
  const found = new Set([pid]);
  const open = [path.join(cgroupRoot, group)];
  for (let count = 0; count < maxCgroups; count += 1) {
    const directory = open.shift();
    if (directory === undefined) break;
    for (const line of read(path.join(directory, 'cgroup.procs')).split('\n')) {
      // 0: a process that this PID namespace does not have (cgroups(7)).
      if (/^[1-9]\d*$/.test(line)) found.add(Number(line));
    }
    const below = await readdir(directory, { withFileTypes: true }).catch(() => []);
    open.push(...below.filter((one) => one.isDirectory()).map((one) => path.join(directory, one.name)));
  }
  return [...found];
}

/** Empty when it is not there any more. */
function read(file: string): string {
  try {
    return readLimited(file, maxBytes)?.toString('utf8') ?? '';
  } catch {
    return '';
  }
}
