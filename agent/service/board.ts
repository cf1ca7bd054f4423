/** The service's state: one immutable snapshot, replaced as a whole, and its subscribers. */
import type { Verdict } from '../contracts/verdict.js';
import type { StatusView } from '../contracts/views.js';
import { reportUnexpected } from '../lib/errors.js';
import type { JournalMessage, JournalWriter } from '../systemd/journal-writer.js';

/**
 * - `starting`: the first inspection is not finished; `idle`: nothing is installed
 * - `settled`: the machine matches the manifest; `repairing`: a repair is running
 * - `waiting`: for a package manager, a back-off, the end of requests, or the consumer's unit
 * - `restart-pending`: settled, but the consumer runs with old files until a pending restart
 * - `degraded`: repairs failed or reached their limit; an administrator must act
 */
export type Phase =
  | 'starting'
  | 'idle'
  | 'settled'
  | 'repairing'
  | 'waiting'
  | 'restart-pending'
  | 'degraded';

/** A member of a union of events or effects. */
export type Kind<Name extends string, Fields> = { readonly kind: Name } & Readonly<Fields>;

export interface HostState {
  readonly endpoint: string;
  readonly answers: boolean | null;
  readonly simulated: boolean;
  readonly detail: string;
}

export interface OneOfSeveral extends HostState {
  readonly inUse: boolean;
}

export interface Counters {
  readonly checks: number;
  readonly drifts: number;
  readonly repairs: number;
  readonly failedRepairs: number;
  readonly restarts: number;
}

export interface Due {
  readonly reason: string;
  readonly waitsFor: string;
}

export interface ConsumerState {
  readonly profile: string;
  readonly unit: string;
  readonly phase: Phase;
  readonly problem: string | null;
  readonly verdict: Verdict | null;
  readonly view: StatusView | null;
  readonly pendingRestart: Due | null;
  readonly counters: Counters;
}

export interface Snapshot {
  readonly configProblem: string | null;
  readonly host: HostState;
  /** Empty: there is one host, or none. */
  readonly hosts: readonly OneOfSeveral[];
  readonly hostLosses: number;
  readonly hostMoves: number;
  /** Milliseconds from detection to repair, of the last repair; null: there was none. */
  readonly repairMilliseconds: number | null;
  readonly consumers: readonly ConsumerState[];
}

type Listener = (now: Snapshot, before: Snapshot) => void;

function newConsumer(profile: string, unit: string, phase: Phase): ConsumerState {
  const counters = { checks: 0, drifts: 0, repairs: 0, failedRepairs: 0, restarts: 0 };
  const state = { problem: null, verdict: null, view: null, pendingRestart: null };
  return { profile, unit, phase, ...state, counters };
}

export class Board {
  #now: Snapshot = {
    configProblem: null,
    host: { endpoint: '', answers: null, simulated: false, detail: 'not asked yet' },
    hosts: [],
    hostLosses: 0,
    hostMoves: 0,
    repairMilliseconds: null,
    consumers: [],
  };
  readonly #listeners: Listener[] = [];

  get now(): Snapshot {
    return this.#now;
  }

  update(change: Partial<Pick<Snapshot, 'configProblem' | 'host' | 'hosts' | 'repairMilliseconds'>>): void {
    this.#replace({ ...this.#now, ...change });
  }

  count(name: 'hostLosses' | 'hostMoves'): void {
    this.#replace({ ...this.#now, [name]: this.#now[name] + 1 });
  }

  /** Replaces the list of consumers, in this order; the state of those that stay is kept. */
  setConsumers(wanted: readonly { readonly profile: string; readonly unit: string }[]): void {
    const consumers = wanted.map(
      ({ profile, unit }): ConsumerState =>
        this.#now.consumers.find((one) => one.unit === unit && one.profile === profile) ??
        newConsumer(profile, unit, 'starting'),
    );
    this.#replace({ ...this.#now, consumers });
  }

  /** Nothing is recorded for a consumer that was removed. */
  updateConsumer(unit: string, change: (now: ConsumerState) => Partial<ConsumerState>): void {
    const consumers = this.#now.consumers.map((one) =>
      one.unit === unit ? { ...one, ...change(one) } : one,
    );
    this.#replace({ ...this.#now, consumers });
  }

  listen(listener: Listener): void {
    this.#listeners.push(listener);
  }

  #replace(next: Snapshot): void {
    const before = this.#now;
    this.#now = next;
    for (const listener of this.#listeners) {
      try {
        listener(next, before);
      } catch (error) {
        // A listener's failure must not stop the keeper or judge that updates the board.
        reportUnexpected(error);
      }
    }
  }
}

export interface ConsumerBoard {
  readonly now: ConsumerState;
  update(change: Partial<Omit<ConsumerState, 'profile' | 'unit' | 'counters'>>): void;
  count(name: keyof Counters): void;
  repaired(milliseconds: number): void;
}

export function consumerBoard(board: Board, profile: string, unit: string): ConsumerBoard {
  const gone = newConsumer(profile, unit, 'idle');
  const count = (name: keyof Counters): void =>
    board.updateConsumer(unit, ({ counters }) => ({ counters: { ...counters, [name]: counters[name] + 1 } }));
  return {
    get now() {
      return board.now.consumers.find((one) => one.unit === unit) ?? gone;
    },
    update: (change) => board.updateConsumer(unit, () => change),
    count,
    repaired(milliseconds) {
      board.update({ repairMilliseconds: milliseconds });
      count('repairs');
    },
  };
}

export interface Record {
  write(message: JournalMessage): void;
  say(text: string): void;
}

/** `line` takes messages without an ID; under systemd standard error goes to the journal, too. */
export function recordTo(journal: JournalWriter, line: (text: string) => void): Record {
  return {
    // Nothing waits for the journal; the writer never rejects.
    write: (message) => void journal.write(message),
    say: line,
  };
}
