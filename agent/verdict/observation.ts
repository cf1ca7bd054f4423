/** Everything that was observed while waiting for a consumer, before any conclusion. */
import type { Emit } from '../contracts/events.js';
import type { HostFacts, ProcessFacts } from '../contracts/facts.js';
import type { ProbeResult, ProbeRun } from '../contracts/probe.js';
import type {
  HostSession,
  MemoryTold,
  RefusedKernels,
  SessionsReport,
  TurnedAway,
} from '../contracts/sessions.js';
import type { UnitFacts } from '../contracts/unit.js';
import type { Look } from '../contracts/verdict.js';
import type { Profile } from '../profile/types.js';
import type { JournalReader } from '../systemd/types.js';
import type { LogFindings } from './log/findings.js';

export type End = 'settled' | 'timed-out' | 'unit-failed' | 'unit-restarting';

export type ReadinessSeen =
  | { readonly kind: 'answered'; readonly url: string; readonly afterMs: number }
  | { readonly kind: 'silent'; readonly url: string; readonly lastError: string }
  /** The profile asks for none, or the unit has its own network namespace. */
  | { readonly kind: 'unasked'; readonly why: string };

type Role = 'main' | 'child';

export interface SeenProcess {
  readonly role: Role;
  readonly facts: ProcessFacts;
}

export interface Line {
  readonly text: string;
  readonly source: string;
}

export interface Observation {
  readonly profile: Profile;
  readonly unit: UnitFacts;
  readonly invocationId: string | null;
  /** The unit was restarted after its settings were written, so they apply to this start. */
  readonly restarted: boolean;
  readonly end: End;
  readonly elapsedMs: number;
  readonly restarts: number;
  readonly log: LogFindings;
  readonly lastWords: readonly Line[];
  readonly journalError: string | null;
  /** The journal has lost the first lines of this start, because it was rotated and vacuumed. */
  readonly journalCut?: boolean;
  readonly logFile: string | null;
  readonly readiness: ReadinessSeen;
  readonly processes: readonly SeenProcess[];
  /** The consumer's loaded models and its sessions at the host; read last. */
  readonly present: PresentSeen;
  readonly look?: Look;
  readonly probe: ProbeResult | null;
  readonly computeAsked?: boolean;
  readonly host: HostFacts['answer'] | null;
  readonly endpoint: string;
  /** All of them, as `HostFacts` has them; absent: `endpoint` is the only one. */
  readonly hosts?: string;
}

/** Monotonic time. `sleep` resolves early (without error) when `signal` aborts. */
export interface Clock {
  now(): number;
  sleep(milliseconds: number, signal: AbortSignal): Promise<void>;
}

export type HttpAnswer =
  | { readonly kind: 'answered'; readonly status: number; readonly body: string }
  | { readonly kind: 'failed'; readonly message: string };

export interface ConfirmEffects {
  readonly clock: Clock;
  readonly journal: JournalReader;
  readonly emit: Emit;
  stamp(): Look;
  unit(): Promise<UnitFacts>;
  pids(): Promise<readonly number[]>;
  processes(pids: readonly number[]): Promise<readonly ProcessFacts[]>;
  /** GET, without redirects and proxies; the body bounded. */
  get(url: string, timeoutMs: number, signal: AbortSignal): Promise<HttpAnswer>;
  probe(signal: AbortSignal): Promise<ProbeRun>;
  /** The host's list of this guest's sessions, asked as the service's user. */
  sessions(signal: AbortSignal): Promise<SessionsAnswer>;
  /** Does the host answer to root without a sandbox? Called only if the probe failed. */
  host(signal: AbortSignal): Promise<HostFacts>;
  /** Bytes added after `offset`, as they come. Ends when `signal` aborts. */
  followFile(path: string, offset: number, signal: AbortSignal): AsyncIterable<Buffer>;
  /** One item a container. Ends when `signal` aborts; at once where the unit has none. */
  containerLogs(signal: AbortSignal): AsyncIterable<ContainerLog>;
}

export interface ContainerLog {
  readonly source: string;
  readonly bytes: AsyncIterable<Buffer>;
}

/** The settings of a confirmation that its caller chooses. */
export interface Confirming {
  readonly profile: Profile;
  /** The caller has restarted the unit for this start since its settings were made. */
  readonly restarted?: boolean;
  /** Overrides the profile's time-outs, and ends our own reading and the probe, too: a person has named it. */
  readonly timeoutMs: number | null;
  /** Overrides the profile's time-outs for the consumer alone: our own work may take longer on a busy machine. */
  readonly patienceMs?: number | null;
  /** The probe runs kernels too: it is asked whatever the profile says, and GPU needs their numbers right. */
  readonly compute?: boolean;
  readonly signal: AbortSignal;
}

export interface ConfirmOptions extends Confirming {
  /** The start to judge; null: the one that the unit is in now. */
  readonly invocationId: string | null;
  /** Journal position before the restart (JournalReader.tail); null reads the invocation from its beginning. */
  readonly cursor: string | null;
  /** The unit's restart counter (NRestarts) right after our restart; null: taken from the unit now. */
  readonly restarts: number | null;
  /** How many directories of the profile's consumerLibraries exist here: the time-out grows with them. */
  readonly libraryDirectories: number;
  /** How long the unit's main process has been running; null: not known. */
  readonly ageMs: number | null;
  /** `unix:PATH`, `vsock:CID:PORT`, `tcp:ADDR:PORT`: decides which sandbox settings block it. */
  readonly endpoint: string;
  readonly hosts?: string;
  /**
   * Where the unit's output goes when not to the journal, and the file's size before the restart (0 for
   * `truncate:`). Null for `file:` too: that writes over the old content, and old and new lines mix.
   */
  readonly outputFile: { readonly path: string; readonly offset: number } | null;
  /** The unit's own output is that of `docker compose up`: each line begins with the name of a service. */
  readonly composed?: boolean;
  /** Begun before the restart; confirm() ends it. Without: it begins its own. */
  readonly looking?: ProcessWatch | null;
}

export interface ProcessWatch {
  seen(profile: Profile, mainPid: number): readonly SeenProcess[];
  look(): Promise<void>;
  forget(): void;
  stop(): void;
  readonly done: Promise<void>;
}

export interface LoadedModel {
  readonly name: string;
  readonly bytes: number;
  readonly gpuBytes: number;
}

export type LoadedSeen =
  | { readonly kind: 'told'; readonly url: string; readonly models: readonly LoadedModel[] }
  | { readonly kind: 'silent'; readonly url: string; readonly message: string }
  | { readonly kind: 'unasked' };

export type SessionsAnswer =
  | { readonly kind: 'told'; readonly report: SessionsReport; readonly seconds: number }
  /** The host is too old for this query, or does not answer. */
  | { readonly kind: 'unknown'; readonly message: string };

export type SessionsSeen =
  | {
      readonly kind: 'told';
      readonly own: readonly HostSession[];
      /** Seconds since the youngest of these processes began; absent: not known. */
      readonly youngest?: number;
      readonly processes: number;
      readonly others: number;
      /** Greetings that the host refused since this start; null: none. */
      readonly turnedAway: TurnedAway | null;
      readonly refusedKernels: RefusedKernels | null;
      /** The limit of its device memory, with what was refused within the last hour; null: not told. */
      readonly memory: MemoryTold | null;
    }
  | { readonly kind: 'unknown'; readonly message: string }
  | { readonly kind: 'unasked' };

export interface PresentSeen {
  readonly loaded: LoadedSeen;
  readonly sessions: SessionsSeen;
}
