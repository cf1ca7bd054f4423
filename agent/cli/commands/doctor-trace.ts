/** `doctor --trace`: asks, traces one start, and makes the document of it. */

import { type Traced, trace } from '../../install/pipeline/trace.js';
import type { DoctorWorkplace } from '../../install/pipeline/workplace.js';
import { oneLine } from '../../lib/text.js';
import type { Profile } from '../../profile/types.js';
import type { TracedProcess } from '../../verdict/doctor/trace/bindings.js';
import type { TraceFacts } from '../../verdict/doctor/trace/types.js';
import { approved } from './common.js';
import type { CommandContext } from './types.js';

export interface TraceOutcome {
  /** `not-possible`: `why` says what is in the way. */
  readonly outcome: 'traced' | 'not-possible' | 'declined';
  readonly why: string | null;
  /** The output of the processes in lines; those that could not be read; whether the trace reached its limit. */
  readonly lines: number;
  readonly strange: number;
  readonly cut: boolean;
  readonly processes: readonly TracedProcess[];
  /** Processes that had to go without the tracer, and why. */
  readonly deaf: readonly { readonly pid: number; readonly program: string; readonly why: string | null }[];
}

/** Throws a VgpuError (`usage`) without `--yes` and without a terminal. */
export async function traceStart(
  work: DoctorWorkplace,
  { profile, timeoutMs }: { readonly profile: Profile; readonly timeoutMs: number | null },
  yes: boolean,
  context: CommandContext,
): Promise<Traced> {
  const approve = async (unit: string, serves: string | null): Promise<boolean> => {
    context.talk.pause();
    const now = serves === null ? '' : ` It serves requests now: ${oneLine(serves)}.`;
    const question = `Restart ${oneLine(unit)} twice, to trace one start and to put it back?${now}`;
    return approved(context, 'doctor --trace', yes, question, 'vgpu-agent doctor');
  };
  return trace(work, { profile, timeoutMs, signal: context.signal, approve, asks: !yes }, context.talk.emit);
}

export function traceOutcome(facts: TraceFacts | null): TraceOutcome | null {
  if (facts === null) return null;
  if (facts.kind === 'not-traced') {
    const outcome = facts.declined ? 'declined' : 'not-possible';
    return { outcome, why: facts.why, lines: 0, strange: 0, cut: false, processes: [], deaf: [] };
  }
  const { lines, strange, cut, processes, live } = facts;
  const deaf = live
    .filter(({ traced }) => traced === false)
    .map(({ pid, program, deaf: why }) => ({ pid, program, why }));
  return { outcome: 'traced', why: null, lines, strange, cut, processes, deaf };
}
