/** Taking an install back whose verdict, or whose service, was not what was asked for. */

import type { Emit } from '../../contracts/events.js';
import { VgpuError } from '../../lib/errors.js';
import type { RestartOutcome } from '../apply/types.js';
import type { ReadyPlan, Workplace } from './workplace.js';

/** With the lock, after `apply` with `keepUndo`. */
export async function takeBack(work: Workplace, plan: ReadyPlan, emit: Emit): Promise<void> {
  await tellTakenBack(work, plan, await work.rollback(plan.unit, emit), emit);
}

/** Says what became of the consumer, and leaves an entry in the journal. */
export async function tellTakenBack(
  work: Pick<Workplace, 'journal'>,
  plan: ReadyPlan,
  restart: RestartOutcome,
  emit: Emit,
): Promise<void> {
  if (restart.kind === 'failed') {
    emit({
      kind: 'note',
      level: 'warning',
      code: 'restart-failed',
      text: restart.message,
      remedy: `systemctl restart ${plan.unit}`,
    });
  }
  await work.journal.write({
    kind: 'rolledBack',
    profile: plan.profile,
    unit: plan.unit,
    storeId: plan.storeId,
    changes: plan.changes.length,
  });
}

/** The error of a take-back: why, and that nothing of the install is left. */
export function takenBack(error: VgpuError, remedy: string | undefined): VgpuError {
  return new VgpuError(`${error.message}. Everything was undone`, {
    kind: 'rolled-back',
    operation: error.operation,
    ...(error.path === undefined ? {} : { path: error.path }),
    ...(remedy === undefined ? {} : { remedy }),
    cause: error,
  });
}
