/** The parts of systemd that the rest sees. Implementations: bus.ts, journal-reader.ts, journal-writer.ts. */
import type { UnitFacts } from '../contracts/unit.js';

/** `done`, `canceled`, `timeout`, `failed`, `dependency`, `skipped` (org.freedesktop.systemd1(5), JobRemoved). */
export type JobResult = string;

/** systemd's manager over D-Bus. Every method throws a VgpuError (`failed`) that names the method and unit. */
export interface Manager {
  unit(name: string): Promise<UnitFacts>;
  reload(): Promise<void>;
  /** Resolves when the job is over, with its result; rejects when `timeoutMs` pass. */
  restart(name: string, timeoutMs: number): Promise<JobResult>;
  start(name: string, timeoutMs: number): Promise<JobResult>;
  /** The unit is then inactive, even if it had failed or had to be killed. */
  stop(name: string, timeoutMs: number): Promise<JobResult>;
  processes(name: string): Promise<readonly number[]>;
  /** Listens for the end of a transient unit that is about to be started. */
  watchExit(name: string): Promise<ExitWatch>;
  /** SIGKILL to every process of the unit; nothing when there is no such unit. */
  kill(name: string): Promise<void>;
  close(): void;
}

export interface JournalEntry {
  readonly cursor: string;
  readonly message: string;
  readonly pid: number | null;
  readonly invocationId: string | null;
}

/** `tail` and `read` reject when journalctl prints nothing for 30 s. */
export interface JournalReader {
  /** The newest cursor now, or null when the journal is empty. Rejects when `signal` aborts. */
  tail(signal: AbortSignal): Promise<string | null>;
  /** Across rotation, vacuum and a journalctl that could not be started. Ends when `signal` aborts. */
  follow(options: {
    readonly unit: string;
    readonly cursor: string | null;
    readonly signal: AbortSignal;
  }): AsyncIterable<JournalEntry>;
  /** Oldest first, as they are read: there may be millions. Ends early when `signal` aborts. */
  read(options: {
    readonly unit: string;
    readonly invocationId: string;
    readonly signal: AbortSignal;
  }): AsyncIterable<JournalEntry>;
}

export interface MainExit {
  /** systemd's word: `success`, `exit-code`, `signal`, `core-dump`, `timeout`, `resources`, ... */
  readonly result: string;
  /** Exit status of the main process; null when a signal ended it or it never was. */
  readonly exitCode: number | null;
  /** `SEGV`, `KILL`, ...; null when it exited. */
  readonly signal: string | null;
}

export interface ExitWatch {
  /** How the unit ended; null when it has not within `timeoutMs` from now, for instance because it never was. */
  ended(timeoutMs: number): Promise<MainExit | null>;
  stop(): Promise<void>;
}
