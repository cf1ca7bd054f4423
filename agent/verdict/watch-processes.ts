/**
 * Polls the libraries that the consumer's processes have loaded. The children that look for GPUs live for less than a
 * second and are the only processes that load libcuda (Ollama since 0.12.4), so the facts of each process are kept after
 * it has ended.
 */
import path from 'node:path';
import type { ProcessFacts } from '../contracts/facts.js';
import { containerLibraryDirectories, isInStore } from '../lib/paths.js';
import type { Profile } from '../profile/types.js';
import type { Clock, ConfirmEffects, Observation, ProcessWatch, SeenProcess } from './observation.js';

const lookEveryMs = 25;
const lookSlowlyMs = 100;
const slowAfterMs = 60_000;
const maxProcesses = 256;

/** A caller that restarts the unit begins before the restart, because discovery may end before the restart's job. */
export function watchProcesses(
  effects: Pick<ConfirmEffects, 'pids' | 'processes'> & { readonly clock: Clock },
  outer: AbortSignal,
): ProcessWatch {
  const closing = new AbortController();
  const signal = AbortSignal.any([closing.signal, outer]);
  const kept = new Map<string, ProcessFacts>();
  let living: ReadonlySet<string> = new Set();
  let generation = 0;

  const look = async (): Promise<void> => {
    const mine = generation;
    const pids = await effects.pids();
    const processes = await effects.processes(pids);
    if (mine !== generation) return;
    for (const facts of processes) keep(kept, facts);
    if (processes.length > 0) living = new Set(processes.map(keyOf));
  };
  // A cgroup disappears when its unit ends; the unit's state shows that.
  const lookIfThere = (): Promise<void> => look().catch(() => {});

  const run = async (): Promise<void> => {
    const start = effects.clock.now();
    while (!signal.aborted) {
      await lookIfThere();
      const slowly = effects.clock.now() - start > slowAfterMs;
      await effects.clock.sleep(slowly ? lookSlowlyMs : lookEveryMs, signal);
    }
  };

  return {
    seen: (profile, mainPid) => withRoles([...kept.values()], living, profile, mainPid),
    look: lookIfThere,
    forget() {
      generation += 1;
      kept.clear();
    },
    stop: () => closing.abort(),
    done: run(),
  };
}

/** The kernel reuses process IDs, but not with the same start time. */
function keyOf({ pid, startTicks }: ProcessFacts): string {
  return `${pid} ${startTicks}`;
}

/** Keeps the latest look at a process. A process that is ending shows no libraries: those seen before stay. */
function keep(kept: Map<string, ProcessFacts>, facts: ProcessFacts): void {
  const key = keyOf(facts);
  const before = kept.get(key);
  if (before === undefined && kept.size >= maxProcesses) return;
  const ending = before !== undefined && mappedBy(before) !== 'none' && facts.libraries.length === 0;
  if (!ending) kept.set(key, facts);
}

/**
 * The first process of the consumer's container. A process in it with its own PID namespace does not count. Of several
 * containers of a compose file, the consumer's is the one with a process that the profile names; if the profile names
 * none, the oldest running one. Ended containers were replaced by the newest.
 */
function firstInContainer(
  processes: readonly ProcessFacts[],
  living: ReadonlySet<string>,
  names: readonly string[],
): ProcessFacts | undefined {
  const byPid = new Map(processes.map((facts) => [facts.pid, facts]));
  const firsts = processes
    .filter(({ namespacePid, parent }) => namespacePid === 1 && !byPid.has(parent))
    .sort((one, other) => Number(BigInt(one.startTicks) - BigInt(other.startTicks)));
  const named = new Set(
    processes.filter(({ name }) => names.includes(name)).map((facts) => top(facts, byPid)),
  );
  const bearing = firsts.filter((first) => named.has(first));
  const candidates = bearing.length > 0 ? bearing : firsts;
  return candidates.find((first) => living.has(keyOf(first))) ?? candidates.at(-1);
}

function top(facts: ProcessFacts, byPid: ReadonlyMap<number, ProcessFacts>): ProcessFacts {
  const passed = new Set<number>();
  let now = facts;
  for (let parent = byPid.get(now.parent); parent !== undefined && !passed.has(now.pid); ) {
    passed.add(now.pid);
    now = parent;
    parent = byPid.get(now.parent);
  }
  return now;
}

function withRoles(
  processes: readonly ProcessFacts[],
  living: ReadonlySet<string>,
  profile: Profile,
  mainPid: number,
): readonly SeenProcess[] {
  const { main, children } = profile.processes;
  // In a container's unit systemd's main process is the engine's, not the consumer's.
  const first = processes.find(({ pid }) => pid === mainPid) ?? firstInContainer(processes, living, main);
  const begin = first?.startTicks;
  const current = processes.filter(
    ({ startTicks }) => begin === undefined || BigInt(startTicks) >= BigInt(begin),
  );
  if (main.length === 0) {
    return current.map((facts) => ({ role: facts.pid === first?.pid ? 'main' : 'child', facts }));
  }
  const byPid = new Map(current.map((facts) => [facts.pid, facts]));
  const bears = (facts: ProcessFacts | undefined): boolean =>
    facts !== undefined && main.includes(facts.name);
  // With a wrapper script the consumer is the first process of its name; else it is systemd's main process.
  const wrapped = !bears(first);
  const seen: SeenProcess[] = [];
  for (const facts of current) {
    const isMain = wrapped ? !bears(byPid.get(facts.parent)) : facts.pid === first?.pid;
    if (bears(facts) && isMain) seen.push({ role: 'main', facts });
    else if (children.includes(facts.name)) seen.push({ role: 'child', facts });
  }
  return seen;
}

/**
 * - `shim`: our libcuda, the current file
 * - `stale`: the shim, but its file is gone (an older version, still mapped)
 * - `foreign`: another library; `mixed`: another library beside the shim
 * - `none`: no libcuda; `unknown`: the maps or the file could not be read
 */
export type Mapped = 'shim' | 'stale' | 'foreign' | 'mixed' | 'none' | 'unknown';

/** By its name: `libcuda.so`, `libcuda.so.1`, `libcuda.so.550.163.01`. */
export function isLibcuda(file: string): boolean {
  return path.basename(file).startsWith('libcuda.so');
}

/** By the content that guest/ found, never by name. Only libcuda counts: NVML alone computes nothing. */
export function mappedBy(facts: ProcessFacts): Mapped {
  const libraries = facts.libraries.filter((library) => isLibcuda(library.path));
  const ours = libraries.filter(({ vendor }) => vendor === 'vgpu');
  const foreign = libraries.some(({ vendor }) => vendor === 'nvidia' || vendor === 'foreign');
  if (foreign) return ours.length > 0 ? 'mixed' : 'foreign';
  if (ours.some(({ deleted }) => !deleted)) return 'shim';
  if (ours.length > 0) return 'stale';
  // A deleted file of the store cannot be examined any more, but only vgpu-agent writes files there.
  if (libraries.some((library) => library.deleted && isInStore(library.path))) return 'stale';
  if (libraries.length > 0 || facts.unreadable?.includes('maps') === true) return 'unknown';
  return 'none';
}

/** The processes whose maps count by the profile's evidence rules. */
export function processesThatCount({ profile, processes }: Observation): readonly SeenProcess[] {
  switch (profile.evidence.mapsOf) {
    case 'main':
      return processes.filter(({ role }) => role === 'main');
    case 'children':
      return processes.filter(({ role }) => role === 'child');
    case 'either':
      return processes;
    case 'none':
      return [];
  }
}

/** LD_PRELOAD loads our libcuda into every process, so its mapping proves nothing about the process. */
export function isPreloaded({ loaderEnvironment }: ProcessFacts): boolean {
  const preload = loaderEnvironment['LD_PRELOAD'] ?? '';
  return preload.split(/[: ]/).some((file) => isInStore(file) && isLibcuda(file));
}

export function libcudaPaths(facts: ProcessFacts): string {
  const paths = facts.libraries.filter((library) => isLibcuda(library.path));
  return paths.map((library) => `${library.path}${library.deleted ? ' (deleted)' : ''}`).join(', ');
}

/**
 * Is a path that the probe reported one of the installed libraries? The probe has resolved links. In a container our CDI
 * file also mounts the libraries where its loader looks without a cache.
 */
export function isOurLibrary(file: string, inContainer: boolean): boolean {
  if (isInStore(file)) return true;
  return inContainer && containerLibraryDirectories.includes(path.dirname(file));
}
