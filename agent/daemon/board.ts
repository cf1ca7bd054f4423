/** What the service knows now: one immutable snapshot, replaced as a whole, and whoever wants to hear of it. */
import type { Verdict } from '../confirm/types.js';
import type { StatusView } from '../output/status-text.js';

/**
 * - `starting`: not everything was looked at yet; `idle`: nothing is installed
 * - `settled`: the machine is as it shall be; `repairing`: on it
 * - `waiting`: for something that will end (a package manager, a back-off, requests, the consumer to be there)
 * - `degraded`: it could not be mended within the limits; a person has to look
 */
export type Phase = 'starting' | 'idle' | 'settled' | 'repairing' | 'waiting' | 'degraded';

export interface HostState {
  readonly endpoint: string;
  /** Null: not known yet. */
  readonly answers: boolean | null;
  readonly simulated: boolean;
  /** The device's name, or why it does not answer. */
  readonly detail: string;
}

export interface Counters {
  readonly checks: number;
  readonly drifts: number;
  readonly repairs: number;
  readonly failedRepairs: number;
  readonly restarts: number;
  readonly hostLosses: number;
  /** Of the last repair, from noticed to done. */
  readonly repairMilliseconds: number | null;
}

export interface Snapshot {
  readonly phase: Phase;
  /** Why it waits or is degraded, and what to do, in a sentence. */
  readonly problem: string | null;
  /** Why agent.json is not in force, or null. */
  readonly configProblem: string | null;
  readonly profile: string | null;
  readonly unit: string | null;
  readonly host: HostState;
  readonly verdict: Verdict | null;
  readonly view: StatusView | null;
  /** A restart of the consumer that is due: why, and what it waits for. */
  readonly pendingRestart: { readonly reason: string; readonly waitsFor: string } | null;
  readonly counters: Counters;
}

export type Listener = (now: Snapshot, before: Snapshot) => void;

export class Board {
  #now: Snapshot = {
    phase: 'starting',
    problem: null,
    configProblem: null,
    profile: null,
    unit: null,
    host: { endpoint: '', answers: null, simulated: false, detail: 'not asked yet' },
    verdict: null,
    view: null,
    pendingRestart: null,
    counters: {
      checks: 0,
      drifts: 0,
      repairs: 0,
      failedRepairs: 0,
      restarts: 0,
      hostLosses: 0,
      repairMilliseconds: null,
    },
  };
  readonly #listeners: Listener[] = [];

  get now(): Snapshot {
    return this.#now;
  }

  update(change: Partial<Omit<Snapshot, 'counters'>>): void {
    this.#replace({ ...this.#now, ...change });
  }

  count(name: Exclude<keyof Counters, 'repairMilliseconds'>): void {
    const { counters } = this.#now;
    this.#replace({ ...this.#now, counters: { ...counters, [name]: counters[name] + 1 } });
  }

  repaired(milliseconds: number): void {
    const { counters } = this.#now;
    const next = { ...counters, repairs: counters.repairs + 1, repairMilliseconds: milliseconds };
    this.#replace({ ...this.#now, counters: next });
  }

  listen(listener: Listener): void {
    this.#listeners.push(listener);
  }

  #replace(next: Snapshot): void {
    const before = this.#now;
    this.#now = next;
    for (const listener of this.#listeners) listener(next, before);
  }
}
