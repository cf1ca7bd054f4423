/**
 * The output of `vgpu-probe --sessions`: the host's own list of the sessions that this guest has with it. The host
 * counts what it carries out, so this is the strongest witness of who uses the GPU. Who a session belongs to is a
 * claim of the guest's process. Checked when it is read.
 */

import { firstProblem, object, oneOfCodes, orNull, schemaCheck } from '../lib/schema.js';
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
  readonly age: number;
}

/** Launches of this guest of kernels that the host cannot run; a session that ended with one is among them. */
export interface RefusedKernels {
  readonly count: number;
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
  readonly host: string;
  readonly simulated: boolean;
  readonly sessions: readonly HostSession[];
  readonly turnedAway: TurnedAway;
  readonly refusedKernels: RefusedKernels | null;
  /** Null: the host is too old to tell. */
  readonly memory: MemoryTold | null;
}

type SessionsDocument =
  | { readonly kind: 'told'; readonly report: SessionsReport }
  | { readonly kind: 'failed'; readonly code: SessionsFailure; readonly message: string }
  | { readonly kind: 'bad'; readonly problem: string };

const text = { type: 'string' } as const;
const count = { type: 'integer', minimum: 0, maximum: Number.MAX_SAFE_INTEGER } as const;
/** Bytes: a program may ask for more than the largest integer that a JavaScript number holds exactly. */
const bytes = { type: 'number', minimum: 0 } as const;
const limitedBy = oneOfCodes(memoryLimitCodes);
const refusals = { count, age: count, program: text };

export const sessionsSchema = {
  ...object({ schema: { const: 1 }, ok: { type: 'boolean' } }),
  if: { properties: { ok: { const: false } } },
  // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema
  then: object({ error: object({ code: oneOfCodes(sessionsFailureCodes), message: text }) }),
  else: object({
    host: text,
    simulated: { type: 'boolean' },
    turnedAway: object({ count, status: count, age: count }),
    refusedKernels: object({ ...refusals, kernel: text }),
    memory: orNull(
      object({
        limit: bytes,
        by: limitedBy,
        line: count,
        refused: object({ ...refusals, bytes, limit: bytes, free: bytes, by: limitedBy }),
      }),
    ),
    sessions: {
      type: 'array',
      items: object({
        session: count,
        age: count,
        memory: count,
        launches: count,
        calls: count,
        refused: count,
        lastRefusal: count,
        carrier: oneOfCodes(carrierCodes),
        claimed: object({
          library: { enum: ['libcuda', 'libnvidia-ml', '?'] },
          pid: count,
          pidNamespace: count,
          program: text,
        }),
      }),
    },
  }),
};

type Printed =
  | {
      readonly ok: false;
      readonly error: { readonly code: SessionsFailure; readonly message: string };
    }
  | {
      readonly ok: true;
      readonly host: string;
      readonly simulated: boolean;
      readonly sessions: readonly HostSession[];
      readonly turnedAway: { readonly count: number; readonly status: number; readonly age: number };
      readonly refusedKernels: RefusedKernels;
      readonly memory: (MemoryTold & { readonly refused: RefusedMemory }) | null;
    };

export function parseSessions(printed: string): SessionsDocument {
  let value: unknown;
  try {
    value = JSON.parse(printed);
  } catch {
    return { kind: 'bad', problem: 'it is not a JSON document' };
  }
  const checked = schemaCheck<Printed>(sessionsSchema)(value);
  if (checked.kind === 'wrong') return { kind: 'bad', problem: firstProblem(checked.errors) };
  const document = checked.value;
  if (!document.ok) return { kind: 'failed', code: document.error.code, message: document.error.message };
  const { host, simulated, sessions, turnedAway, refusedKernels, memory } = document;
  const status = statusCodes.find(({ number }) => number === turnedAway.status)?.code ?? null;
  return {
    kind: 'told',
    report: {
      host,
      simulated,
      sessions,
      turnedAway: { ...turnedAway, status: turnedAway.count === 0 ? null : status },
      refusedKernels: happened(refusedKernels),
      memory: memory === null ? null : { ...memory, refused: happened(memory.refused) },
    },
  };
}

function happened<T extends { readonly count: number }>(refused: T): T | null {
  return refused.count === 0 ? null : refused;
}
