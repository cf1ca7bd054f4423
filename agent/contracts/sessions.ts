/**
 * The output of `vgpu-probe --sessions`: the host's own list of the sessions that this guest has with it. The host
 * counts what it carries out, so this is the strongest witness of who uses the GPU. Who a session belongs to is a
 * claim of the guest's process. Checked when it is read.
 */

import {
  anyOf,
  boolean,
  constant,
  type Described,
  describing,
  list,
  object,
  oneOfCodes,
  orNull,
  readAs,
  text,
} from '../lib/schema.js';
import {
  carrierCodes,
  memoryLimitCodes,
  type SessionsFailure,
  type Status,
  sessionsFailureCodes,
  statusCodes,
} from './shim-codes.js';

const count = describing<number>({ type: 'integer', minimum: 0, maximum: Number.MAX_SAFE_INTEGER });
/** A program may ask for more than the largest integer that a JavaScript number holds exactly. */
const bytes = describing<number>({ type: 'number', minimum: 0 });
const limitedBy = oneOfCodes(memoryLimitCodes);
/** `age`: seconds since the last refusal, of which the rest is. `program`: the name that it gave itself. */
const refusals = { count, age: count, program: text };

const session = object({
  session: count,
  age: count,
  memory: count,
  launches: count,
  calls: count,
  /** Calls that ended with an error; `lastRefusal` is the last CUresult or nvmlReturn_t, 0: none. */
  refused: count,
  lastRefusal: count,
  /** The transport of its calls; `none`: the host is too old to tell, or has not answered its greeting yet. */
  carrier: oneOfCodes(carrierCodes),
  claimed: object({
    library: anyOf('libcuda', 'libnvidia-ml', '?'),
    /** In the PID namespace below. */
    pid: count,
    /** Inode of the process's PID namespace; 0: not told. */
    pidNamespace: count,
    program: text,
  }),
});
export type HostSession = Described<typeof session>;

/** Launches of this guest of kernels that the host cannot run; a session that ended with one is among them. */
const kernels = object({ ...refusals, kernel: text });
export type RefusedKernels = Described<typeof kernels>;

/** Device memory that this guest asked for and did not get; a session that ended over it is among them. */
const refusedMemory = object({
  ...refusals,
  bytes,
  /** The limit of its device memory, or that of the device; and how much of it was free. */
  limit: bytes,
  free: bytes,
  by: limitedBy,
});
export type RefusedMemory = Described<typeof refusedMemory>;

const memory = object({
  /** Bytes that a new session of this guest may hold at most; 0: only the devices limit it. */
  limit: bytes,
  by: limitedBy,
  /** The line of the host's hostd.conf that allows this guest; 0: the host has no such file. */
  line: count,
  refused: refusedMemory,
});
export type MemoryTold = Omit<Described<typeof memory>, 'refused'> & {
  readonly refused: RefusedMemory | null;
};

const turnedAway = object({ count, status: count, age: count });
/** Greetings of this guest that the host refused: those processes have no session. */
export interface TurnedAway extends Omit<Described<typeof turnedAway>, 'status'> {
  /** The reason of the last one; null: there was none, or its number is not known here. */
  readonly status: Status | null;
}

const told = object({
  schema: constant(1),
  ok: constant(true),
  host: text,
  simulated: boolean,
  turnedAway,
  refusedKernels: kernels,
  /** Null: the host is too old to tell. */
  memory: orNull(memory),
  sessions: list(session),
});
const failed = object({
  schema: constant(1),
  ok: constant(false),
  error: object({ code: oneOfCodes(sessionsFailureCodes), message: text }),
});
type Printed = Described<typeof told> | Described<typeof failed>;

export const sessionsSchema = describing<Printed>({
  type: 'object',
  required: ['schema', 'ok'],
  properties: { schema: constant(1), ok: boolean },
  if: { properties: { ok: constant(false) } },
  // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema
  then: failed,
  else: told,
});

export interface SessionsReport
  extends Omit<Described<typeof told>, 'schema' | 'ok' | 'turnedAway' | 'refusedKernels' | 'memory'> {
  readonly turnedAway: TurnedAway;
  readonly refusedKernels: RefusedKernels | null;
  readonly memory: MemoryTold | null;
}

type SessionsDocument =
  | { readonly kind: 'told'; readonly report: SessionsReport }
  | { readonly kind: 'failed'; readonly code: SessionsFailure; readonly message: string }
  | { readonly kind: 'bad'; readonly problem: string };

export function parseSessions(printed: string): SessionsDocument {
  const checked = readAs(sessionsSchema, printed);
  if (checked.kind === 'wrong') return { kind: 'bad', problem: checked.problem };
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
