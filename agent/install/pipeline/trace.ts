/**
 * doctor --trace: one start of the service with the tracer before everything that it loads, then one as before. The
 * lock is held from the first change to the last, so that no repair and no other command comes between.
 */
import { type Emit, note } from '../../contracts/events.js';
import type { MachineFacts } from '../../contracts/facts.js';
import type { ContentCache } from '../../guest/files/content.js';
import { readProcesses } from '../../guest/unit/processes.js';
import { stopIfAsked, VgpuError } from '../../lib/errors.js';
import type { Profile } from '../../profile/types.js';
import {
  type LiveProcess,
  librariesOf,
  liveProcess,
  readTrace,
  readTraceFile,
  type TracedStart,
  type TraceFacts,
  tracedProcesses,
  whoseLibraries,
} from '../../verdict/doctor/trace.js';
import type { Observation } from '../../verdict/observation.js';
import { restartNow } from '../apply/apply.js';
import type { ApplyEffects } from '../apply/effects.js';
import { beginTrace, disarmTrace, forgetTrace } from '../apply/trace.js';
import { planTrace, type TracePlan, traceLimitBytes } from '../plan/trace.js';
import { askThenLock } from './ask-then-lock.js';
import type { DoctorWorkplace, Mark, Tracing, Workplace } from './workplace.js';

export interface TraceRequest {
  readonly profile: Profile;
  /** Overrides the profile's time-outs, for each of the two starts. */
  readonly timeoutMs: number | null;
  readonly signal: AbortSignal;
  /** Asked only when a trace is possible. `serves`: the requests that the unit serves now; null: none. */
  readonly approve: (unit: string, serves: string | null) => Promise<boolean>;
  /** `approve` asks a person; if not, a unit that serves requests is not restarted. */
  readonly asks: boolean;
}

export interface Traced {
  readonly facts: TraceFacts;
  /** The restart that restored the unit: events after it are judged. Null: nothing was restarted. */
  readonly mark: Mark | null;
}

/**
 * Traces one start. Whatever happens, the service is restored before this returns or throws. Throws a VgpuError:
 * `interrupted` when `signal` aborted, `refused` when there is no one to ask and the unit serves requests,
 * `failed` when the machine refused, or when restoring failed (the next command tries again).
 */
export async function trace(work: DoctorWorkplace, request: TraceRequest, emit: Emit): Promise<Traced> {
  const { profile, signal } = request;
  if (!request.asks) await notWhileServing(work, request);
  const asked = await askThenLock<Prepared | string, Traced>(
    work,
    {
      command: 'trace',
      tidy: () => work.recoverTrace(emit),
      plan: async () => {
        emit({ kind: 'phase', phase: 'inspect', text: `inspecting this machine and ${profile.unit}` });
        const machine = await work.inspect(profile, null);
        const plan = planTrace(machine);
        return typeof plan === 'string' ? plan : { machine, plan };
      },
      words: (prepared) => (typeof prepared === 'string' ? null : JSON.stringify(prepared.plan)),
      approve: async (prepared) =>
        typeof prepared === 'string' ||
        request.approve(prepared.plan.unit, request.asks ? await work.serving(profile, signal) : null),
      asks: request.asks,
      signal,
    },
    async (prepared) => {
      if (typeof prepared === 'string') return notTraced(prepared);
      stopTraceIfAsked(request);
      return start(work, request, prepared, emit);
    },
    emit,
  );
  return asked.kind === 'declined' ? notTraced('nothing was restarted', true) : asked.result;
}

/** With --yes no one sees the requests: a unit that serves any is not restarted. */
async function notWhileServing(work: DoctorWorkplace, { profile, signal }: TraceRequest): Promise<void> {
  const serves = await work.serving(profile, signal);
  if (serves === null) return;
  throw new VgpuError(`${profile.unit} serves requests, and a trace restarts it: ${serves}`, {
    kind: 'refused',
    operation: 'trace',
    path: profile.unit,
    remedy: 'try again when it has none, or without --yes: it then shows the requests and asks',
  });
}

function notTraced(why: string, declined = false): Traced {
  return { facts: { kind: 'not-traced', why, declined }, mark: null };
}

interface Prepared {
  readonly machine: MachineFacts;
  readonly plan: TracePlan;
}

interface Seen {
  readonly observation: Observation;
  readonly live: readonly LiveProcess[];
}

async function start(
  work: DoctorWorkplace,
  request: TraceRequest,
  { machine, plan }: Prepared,
  emit: Emit,
): Promise<Traced> {
  const { tracing } = work;
  const { unit } = plan;
  const restart = async (how: string): Promise<{ readonly mark: Mark; readonly problem: string | null }> => {
    const mark = await work.mark(machine.unit, request.signal);
    emit({ kind: 'phase', phase: 'restart', text: `${unit}, ${how}` });
    const outcome = await tracing.restart(unit);
    return { mark, problem: outcome.kind === 'failed' ? outcome.message : null };
  };
  let restarts = false;
  const tracedStart = async (): Promise<Seen> => {
    await tracing.begin(plan);
    restarts = true;
    const { mark, problem } = await restart('traced');
    try {
      if (problem !== null) {
        throw new VgpuError(`${unit} could not be started with the tracer: ${problem}`, {
          kind: 'failed',
          operation: 'trace',
          path: unit,
          remedy: `run vgpu-agent doctor without --trace; systemctl status ${unit} shows the failure`,
        });
      }
      stopTraceIfAsked(request);
      emit({ kind: 'phase', phase: 'confirm', text: `finding out where ${unit} runs, with the tracer` });
      const { profile, timeoutMs, signal } = request;
      const observation = await work.observe({ profile, facts: machine, mark, timeoutMs, signal }, emit);
      return { observation, live: await tracing.live(unit) };
    } finally {
      mark.looking.stop();
    }
  };
  const seen = await tracedStart().catch((error: unknown) => ({ error }));
  // While the drop-in is there the record stays: the next command takes up from there.
  await tracing.disarm(unit);
  let mark: Mark | null = null;
  try {
    // Not to be stopped half way: only a second signal, which ends the process, does.
    if (restarts) {
      const back = await restart('as before');
      mark = back.mark;
      if (back.problem !== null)
        note(emit, 'warning', 'restart-failed', back.problem, `systemctl restart ${unit}`);
    }
    if ('error' in seen) throw seen.error;
    const facts = await conclude(tracing, seen);
    await tracing.forget();
    return { facts, mark };
  } catch (error) {
    mark?.looking.stop();
    await tracing.forget();
    stopTraceIfAsked(request);
    throw error;
  }
}

/** After the restart, because processes write their lazy bindings when they end. */
async function conclude(tracing: Tracing, { observation, live }: Seen): Promise<TracedStart> {
  const { text, cut } = tracing.read();
  const read = readTrace(text);
  const { more, lines, strange } = read;
  const processes = tracedProcesses(read, await tracing.vendors(librariesOf(read)), live);
  const complete = observation.end === 'settled';
  return { kind: 'traced', processes, more, live, lines, strange, cut, complete };
}

function stopTraceIfAsked({ signal, profile }: TraceRequest): void {
  const message = 'stopped on request; the trace was removed completely';
  stopIfAsked(signal, message, { operation: 'trace', path: profile.unit });
}

/** For commands that change nothing else. True: a trace was removed, and the service may have restarted. */
export async function takeBackTrace(work: Workplace, emit: Emit): Promise<boolean> {
  if (!(await work.traceLeft())) return false;
  try {
    return await work.locked('repair', () => work.recoverTrace(emit), { waitMs: 0 });
  } catch (error) {
    if (!(error instanceof VgpuError) || error.kind !== 'refused') throw error;
    const text = `the service is being traced: ${error.message}`;
    note(emit, 'warning', 'trace-under-way', text, 'run the same command again when that is done');
    return false;
  }
}

export function tracing(
  effects: () => Promise<ApplyEffects>,
  pids: (unit: string) => Promise<readonly number[]>,
  contents: ContentCache,
): Tracing {
  return {
    begin: async (plan) => beginTrace(plan, await effects()),
    restart: async (unit) => restartNow(unit, await effects()),
    live: async (unit) => (await readProcesses(await pids(unit), contents)).map(liveProcess),
    read: () => readTraceFile(traceLimitBytes),
    vendors: (files) => whoseLibraries(files, contents),
    disarm: async (unit) => disarmTrace(unit, await effects()),
    forget: async () => forgetTrace(await effects()),
  };
}
