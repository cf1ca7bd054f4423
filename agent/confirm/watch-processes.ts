/**
 * Looks again and again at what the consumer's processes have loaded. The
 * children that do the looking for GPUs live for less than a second and are the
 * only ones that load libcuda (Ollama since 0.12.4), so what was seen of each
 * process is kept after it ended.
 */
import type { ProcessFacts } from '../contracts/facts.js';
import type { Profile } from '../profile/types.js';
import type { Clock, ConfirmEffects } from './effects.js';
import { mappedBy } from './maps.js';
import type { SeenProcess } from './observation.js';

/** Milliseconds between two looks while the consumer looks for GPUs, and after the first minute. */
const lookEveryMs = 25;
const lookSlowlyMs = 100;
const slowAfterMs = 60_000;
const maxProcesses = 256;

export interface ProcessWatch {
  /** Everything seen of the start whose main process this is (0: not known). */
  seen(profile: Profile, mainPid: number): readonly SeenProcess[];
  /** Looks once more, now. Never rejects. */
  look(): Promise<void>;
  /** A new start: forget the former one's processes. */
  forget(): void;
  stop(): void;
  readonly done: Promise<void>;
}

/**
 * Begins to look, until `stop` or `signal`. A caller that restarts the unit begins
 * before that: discovery can be over before the restart's job is reported done.
 */
export function watchProcesses(
  effects: Pick<ConfirmEffects, 'pids' | 'processes'> & { readonly clock: Clock },
  outer: AbortSignal,
): ProcessWatch {
  const closing = new AbortController();
  const signal = AbortSignal.any([closing.signal, outer]);
  const kept = new Map<string, ProcessFacts>();
  let generation = 0;

  const look = async (): Promise<void> => {
    const mine = generation;
    const pids = await effects.pids();
    const processes = await effects.processes(pids);
    if (mine !== generation) return;
    for (const facts of processes) keep(kept, facts);
  };
  // A cgroup that vanishes under our hands is how a unit ends; the unit's state tells that.
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
    seen: (profile, mainPid) => withRoles([...kept.values()], profile, mainPid),
    look: lookIfThere,
    forget() {
      generation += 1;
      kept.clear();
    },
    stop: () => closing.abort(),
    done: run(),
  };
}

/** Keeps the latest look at a process, but never replaces what it had loaded by the emptiness of its end. */
function keep(kept: Map<string, ProcessFacts>, facts: ProcessFacts): void {
  const key = `${facts.pid} ${facts.startTicks}`;
  const before = kept.get(key);
  if (before === undefined && kept.size >= maxProcesses) return;
  const ending = before !== undefined && mappedBy(before) !== 'none' && facts.libraries.length === 0;
  if (!ending) kept.set(key, facts);
}

/** Only the newest container, where one replaced another. A process in it with its own PID namespace does not count. */
function firstInContainer(processes: readonly ProcessFacts[]): ProcessFacts | undefined {
  const inside = new Set(processes.map(({ pid }) => pid));
  return processes
    .filter(({ namespacePid, parent }) => namespacePid === 1 && !inside.has(parent))
    .sort((one, other) => Number(BigInt(other.startTicks) - BigInt(one.startTicks)))[0];
}

/**
 * Which of the processes is the main one, which are the children that count;
 * others, and those that are older than the main process (of a former start), are left out.
 */
function withRoles(
  processes: readonly ProcessFacts[],
  profile: Profile,
  mainPid: number,
): readonly SeenProcess[] {
  const { main, children } = profile.processes;
  // In a container's unit systemd's main process is the engine's, which is no part of the consumer.
  const first = processes.find(({ pid }) => pid === mainPid) ?? firstInContainer(processes);
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
  // Behind a wrapper script the consumer is the first of its name; else only systemd's main process is it.
  const wrapped = !bears(first);
  const seen: SeenProcess[] = [];
  for (const facts of current) {
    const isMain = wrapped ? !bears(byPid.get(facts.parent)) : facts.pid === first?.pid;
    if (bears(facts) && isMain) seen.push({ role: 'main', facts });
    else if (children.includes(facts.name)) seen.push({ role: 'child', facts });
  }
  return seen;
}
