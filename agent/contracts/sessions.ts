/**
 * The output of `vgpu-probe --sessions`: the host's own list of the sessions that this guest has with it. The host
 * counts what it carries out, so this is the strongest witness of who uses the GPU. Who a session belongs to is a
 * claim of the guest's process. Checked when it is read.
 */

import {
  type Carrier,
  carrierCodes,
  type MemoryLimit,
  memoryLimitCodes,
  type SessionsFailure,
  type Status,
  sessionsFailureCodes,
  statusCodes,
} from './shim-codes.js';

export interface HostSession {
  readonly session: number;
  /** Milliseconds since it began. */
  readonly age: number;
  readonly memory: number;
  readonly launches: number;
  readonly calls: number;
  /** Calls that ended with an error; `lastRefusal` is the last CUresult or nvmlReturn_t, 0: none. */
  readonly refused: number;
  readonly lastRefusal: number;
  /** The transport of its calls; `none`: the host is too old to tell, or has not answered its greeting yet. */
  readonly carrier: Carrier;
  readonly claimed: {
    readonly library: 'libcuda' | 'libnvidia-ml' | '?';
    /** In the PID namespace below. */
    readonly pid: number;
    /** Inode of the process's PID namespace; 0: not told. */
    readonly pidNamespace: number;
    readonly program: string;
  };
}

/** Greetings of this guest that the host refused: those processes have no session. */
export interface TurnedAway {
  readonly count: number;
  /** The reason of the last one; null: there was none, or its number is not known here. */
  readonly status: Status | null;
  /** Seconds since the last one. */
  readonly age: number;
}

/** Launches of this guest of kernels that the host cannot run; a session that ended with one is among them. */
export interface RefusedKernels {
  readonly count: number;
  /** Seconds since the last one. */
  readonly age: number;
  /** The last one: the name that the program which launched it gave, and the kernel's name in its code. */
  readonly program: string;
  readonly kernel: string;
}

/** Device memory that this guest asked for and did not get; a session that ended over it is among them. */
export interface RefusedMemory {
  readonly count: number;
  /** Seconds since the last one; all below is of that one. */
  readonly age: number;
  readonly program: string;
  readonly bytes: number;
  /** The limit of its device memory, or that of the device; and how much of it was free. */
  readonly limit: number;
  readonly free: number;
  readonly by: MemoryLimit;
}

export interface MemoryTold {
  /** Bytes that a new session of this guest may hold at most; 0: only the devices limit it. */
  readonly limit: number;
  readonly by: MemoryLimit;
  /** The line of the host's hostd.conf that allows this guest; 0: the host has no such file. */
  readonly line: number;
  readonly refused: RefusedMemory | null;
}

export interface SessionsReport {
  /** `vgpu-hostd 0.1.0 software`. */
  readonly host: string;
  readonly simulated: boolean;
  readonly sessions: readonly HostSession[];
  readonly turnedAway: TurnedAway;
  /** Null: none, or the host is too old to tell. */
  readonly refusedKernels: RefusedKernels | null;
  /** Null: the host is too old to tell. */
  readonly memory: MemoryTold | null;
}

type SessionsDocument =
  | { readonly kind: 'told'; readonly report: SessionsReport }
  | { readonly kind: 'failed'; readonly code: SessionsFailure; readonly message: string }
  /** It is none of these documents. */
  | { readonly kind: 'bad'; readonly problem: string };

export function parseSessions(text: string): SessionsDocument {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return bad('it is not a JSON document');
  }
  const document = record(value);
  if (document === null || document['schema'] !== 1) return bad('it has no "schema": 1');
  if (document['ok'] === false) return failureOf(document['error']);
  const { host, simulated, sessions } = document;
  const turnedAway = turnedAwayOf(document['turnedAway']);
  if (document['ok'] !== true || typeof host !== 'string' || typeof simulated !== 'boolean')
    return bad('"ok", "host" or "simulated" is missing');
  if (!Array.isArray(sessions) || turnedAway === null) return bad('"sessions" or "turnedAway" is missing');
  const items: readonly unknown[] = sessions;
  const read = items.map(sessionOf);
  const at = read.indexOf(null);
  if (at !== -1) return bad(`sessions[${at}] is not a session`);
  const refusedKernels = refusedKernelsOf(document['refusedKernels']);
  const report = {
    host,
    simulated,
    sessions: read.filter((one) => one !== null),
    turnedAway,
    refusedKernels,
    memory: memoryOf(document['memory']),
  };
  return { kind: 'told', report };
}

function bad(problem: string): SessionsDocument {
  return { kind: 'bad', problem };
}

function failureOf(value: unknown): SessionsDocument {
  const error = record(value);
  const code = sessionsFailureCodes.find((one) => one.code === error?.['code'])?.code;
  const message = error?.['message'];
  return code === undefined || typeof message !== 'string'
    ? bad('"error" has an unknown code')
    : { kind: 'failed', code, message };
}

function sessionOf(value: unknown): HostSession | null {
  const item = record(value);
  const claimed = claimOf(item?.['claimed']);
  if (item === null || claimed === null) return null;
  const { session, age, memory, launches, calls, refused, lastRefusal } = item;
  if (
    !isCount(session) ||
    !isCount(age) ||
    !isCount(memory) ||
    !isCount(launches) ||
    !isCount(calls) ||
    !isCount(refused) ||
    !isCount(lastRefusal)
  )
    return null;
  const carrier = carrierCodes.find(({ code }) => code === item['carrier'])?.code ?? 'none';
  return { session, age, memory, launches, calls, refused, lastRefusal, carrier, claimed };
}

const libraries = ['libcuda', 'libnvidia-ml', '?'] as const;

function claimOf(value: unknown): HostSession['claimed'] | null {
  const item = record(value);
  if (item === null) return null;
  const { pid, pidNamespace, program } = item;
  const library = libraries.find((one) => one === item['library']);
  if (library === undefined || !isCount(pid) || !isCount(pidNamespace) || typeof program !== 'string')
    return null;
  return { library, pid, pidNamespace, program };
}

function turnedAwayOf(value: unknown): TurnedAway | null {
  const item = record(value);
  if (item === null) return null;
  const { count, status, age } = item;
  if (!isCount(count) || !isCount(status) || !isCount(age)) return null;
  const known = statusCodes.find(({ number }) => number === status)?.code ?? null;
  return { count, status: count === 0 ? null : known, age };
}

function refusedKernelsOf(value: unknown): RefusedKernels | null {
  const item = record(value);
  if (item === null) return null;
  const { count, age, program, kernel } = item;
  if (!isCount(count) || !isCount(age) || typeof program !== 'string' || typeof kernel !== 'string')
    return null;
  return count === 0 ? null : { count, age, program, kernel };
}

function memoryOf(value: unknown): MemoryTold | null {
  const item = record(value);
  if (item === null) return null;
  const { limit, line } = item;
  const by = limitOf(item['by']);
  if (!isSize(limit) || !isCount(line) || by === null) return null;
  return { limit, by, line, refused: refusedMemoryOf(item['refused']) };
}

function refusedMemoryOf(value: unknown): RefusedMemory | null {
  const item = record(value);
  if (item === null) return null;
  const { count, age, program, bytes, limit, free } = item;
  const by = limitOf(item['by']);
  if (!isCount(count) || !isCount(age) || typeof program !== 'string' || by === null) return null;
  if (!isSize(bytes) || !isSize(limit) || !isSize(free)) return null;
  return count === 0 ? null : { count, age, program, bytes, limit, free, by };
}

function limitOf(value: unknown): MemoryLimit | null {
  return memoryLimitCodes.find(({ code }) => code === value)?.code ?? null;
}

/** Bytes: a program may ask for more than the largest whole number of this language. */
function isSize(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0;
}

function isCount(value: unknown): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;
}

function record(value: unknown): Readonly<Record<string, unknown>> | null {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? { ...value } : null;
}
