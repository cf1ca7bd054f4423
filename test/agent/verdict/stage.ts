/**
 * A stage for the live confirmation: time that passes only while no task has
 * anything else to do, a journal that is fed from real logs, a unit, processes and
 * a host that change when the script says so.
 */
import { setImmediate as turn } from 'node:timers/promises';
import type { Event } from '../../../agent/contracts/events.js';
import type { HostFacts, ProcessFacts } from '../../../agent/contracts/facts.js';
import type { ProbeRun } from '../../../agent/contracts/probe.js';
import type { UnitFacts } from '../../../agent/contracts/unit.js';
import type { Verdict } from '../../../agent/contracts/verdict.js';
import type { Profile } from '../../../agent/profile/types.js';
import type { JournalEntry } from '../../../agent/systemd/types.js';
import { observe } from '../../../agent/verdict/confirm.js';
import { decideVerdict } from '../../../agent/verdict/decide.js';
import { stamps } from '../../../agent/verdict/node-effects.js';
import type {
  Clock,
  ConfirmEffects,
  ConfirmOptions,
  HttpAnswer,
  SessionsAnswer,
} from '../../../agent/verdict/observation.js';
import { ollama, processFacts, report, unit } from './support.js';

interface Timer {
  readonly at: number;
  readonly wake: () => void;
}

/** Virtual milliseconds. */
export class FakeClock implements Clock {
  #now = 0;
  #timers: Timer[] = [];

  now(): number {
    return this.#now;
  }

  sleep(milliseconds: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      if (signal.aborted) {
        resolve();
        return;
      }
      const wake = (): void => {
        signal.removeEventListener('abort', wake);
        this.#timers = this.#timers.filter((timer) => timer.wake !== wake);
        resolve();
      };
      signal.addEventListener('abort', wake, { once: true });
      this.#timers.push({ at: this.#now + Math.max(0, milliseconds), wake });
    });
  }

  at(milliseconds: number, act: () => void): void {
    this.#timers.push({
      at: milliseconds,
      wake: () => {
        this.#timers = this.#timers.filter((timer) => timer.at !== milliseconds || timer.wake !== act);
        act();
      },
    });
  }

  /** Lets time pass until `work` is done. */
  async run<T>(work: Promise<T>): Promise<T> {
    let over = false;
    const watched = work.finally(() => {
      over = true;
    });
    watched.catch(() => {});
    while (!over) {
      // Everything that is ready now happens before time moves.
      for (let count = 0; count < 4; count += 1) await turn();
      if (over) break;
      const next = this.#timers.reduce<Timer | null>(
        (best, timer) => (best === null || timer.at < best.at ? timer : best),
        null,
      );
      if (next === null) continue;
      this.#timers = this.#timers.filter((timer) => timer !== next);
      this.#now = Math.max(this.#now, next.at);
      next.wake();
    }
    return watched;
  }
}

/** The pipeline's steps for a start: watch, then judge. */
export async function confirm(options: ConfirmOptions, effects: ConfirmEffects): Promise<Verdict> {
  return decideVerdict(await observe(options, effects));
}

export const firstStart = 'a'.repeat(32);
export const secondStart = 'b'.repeat(32);

/** A journal that grows while it is followed. */
export class FakeJournal {
  readonly entries: JournalEntry[] = [];
  readonly #waiting = new Set<() => void>();
  failure: Error | null = null;
  /** As journald is at its slowest: a reader that follows is not told, one that begins to read sees everything. */
  quiet = false;
  /** Reads the earlier entries: of a long journal this takes long. */
  reading: () => Promise<void> = async () => {};

  add(message: string, invocationId: string | null, pid = 100): void {
    const number = this.entries.length + 1;
    this.entries.push({ cursor: `c${number}`, message, pid, invocationId });
    if (this.quiet) return;
    for (const wake of this.#waiting) wake();
    this.#waiting.clear();
  }

  async tail(): Promise<string | null> {
    return this.entries.at(-1)?.cursor ?? null;
  }

  async *read({ invocationId }: { readonly invocationId: string }): AsyncIterable<JournalEntry> {
    if (this.failure !== null) throw this.failure;
    await this.reading();
    yield* this.entries.filter((entry) => entry.invocationId === invocationId);
  }

  async *follow({
    cursor,
    signal,
  }: {
    readonly cursor: string | null;
    readonly signal: AbortSignal;
  }): AsyncIterable<JournalEntry> {
    if (this.failure !== null) throw this.failure;
    let at = cursor === null ? 0 : this.entries.findIndex((entry) => entry.cursor === cursor) + 1;
    while (!signal.aborted) {
      const entry = this.entries[at];
      if (entry !== undefined) {
        at += 1;
        yield entry;
        continue;
      }
      await new Promise<void>((resolve) => {
        this.#waiting.add(resolve);
        signal.addEventListener('abort', () => resolve(), { once: true });
      });
    }
  }
}

export interface Stage {
  readonly clock: FakeClock;
  readonly journal: FakeJournal;
  readonly events: Event[];
  readonly asked: string[];
  unit: UnitFacts;
  processes: readonly ProcessFacts[];
  http: HttpAnswer;
  probe: (signal: AbortSignal) => Promise<ProbeRun>;
  host: HostFacts['answer'];
  sessions: SessionsAnswer;
  file: Buffer;
  readonly effects: ConfirmEffects;
  options(changes?: Partial<ConfirmOptions>): ConfirmOptions;
  /** Feeds a log's lines from `from` on, all at that moment. */
  say(at: number, lines: readonly string[], invocationId?: string | null): void;
  hostAsked: number;
}

export const refused: HttpAnswer = { kind: 'failed', message: 'ECONNREFUSED' };
export const ready: HttpAnswer = { kind: 'answered', status: 200, body: '{"version":"0.32.9"}' };

export function probeRun(changes: Parameters<typeof report>[0] = {}): ProbeRun {
  const document = report(changes);
  return {
    kind: 'ran',
    exitCode: document.ok ? 0 : 1,
    signal: null,
    timedOut: false,
    stdout: JSON.stringify(document),
    stderr: '',
    milliseconds: 100,
  };
}

export function createStage(profile: Profile = ollama): Stage {
  const clock = new FakeClock();
  const journal = new FakeJournal();
  const never = new AbortController().signal;
  const stage: Stage = {
    clock,
    journal,
    events: [],
    asked: [],
    unit: unit({ invocationId: firstStart }),
    processes: [processFacts()],
    http: refused,
    probe: async (signal) => {
      await clock.sleep(100, signal);
      return probeRun();
    },
    host: { kind: 'answers', device: 'NVIDIA H100 80GB HBM3', simulated: false, milliseconds: 20 },
    sessions: { kind: 'unknown', message: 'this host tells no sessions' },
    file: Buffer.alloc(0),
    hostAsked: 0,
    effects: {
      clock,
      journal,
      stamp: stamps(() => clock.now()),
      emit: (event) => {
        stage.events.push(event);
      },
      unit: async () => stage.unit,
      pids: async () => stage.processes.map(({ pid }) => pid),
      processes: async (pids) => stage.processes.filter(({ pid }) => pids.includes(pid)),
      get: async (url) => {
        stage.asked.push(url);
        return stage.http;
      },
      probe: (signal) => stage.probe(signal),
      sessions: async () => stage.sessions,
      host: async () => {
        stage.hostAsked += 1;
        return { endpoint: 'unix:/run/vgpu/hostd.sock', from: 'guest.conf', answer: stage.host };
      },
      async *containerLogs() {},
      async *followFile(_path, offset, signal) {
        let at = offset;
        while (!signal.aborted) {
          if (stage.file.length > at) yield stage.file.subarray(at);
          at = stage.file.length;
          await clock.sleep(50, signal);
        }
      },
    },
    options: (changes = {}) => ({
      profile,
      invocationId: firstStart,
      cursor: null,
      restarts: 0,
      libraryDirectories: 1,
      ageMs: null,
      timeoutMs: null,
      endpoint: 'unix:/run/vgpu/hostd.sock',
      outputFile: null,
      looking: null,
      signal: never,
      ...changes,
    }),
    say(at, lines, invocationId = firstStart) {
      clock.at(at, () => {
        for (const line of lines) journal.add(line, invocationId);
      });
    },
  };
  return stage;
}
