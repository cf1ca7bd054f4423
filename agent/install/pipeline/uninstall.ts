import type { Emit } from '../../contracts/events.js';
import type { ReadyPlan } from '../../contracts/plan.js';
import type { Profile } from '../../profile/types.js';
import { planEntry } from '../../systemd/journal-writer.js';
import { type Approval, changeByPlan, type Declined, type Done, refusal } from './ask-then-lock.js';
import type { Workplace } from './workplace.js';

interface UninstallRequest extends Approval {
  readonly profile: Profile;
  readonly restart: boolean;
}

/** Throws a VgpuError as `install` does. Nothing installed is no failure: the plan is then empty. */
export function uninstall(work: Workplace, request: UninstallRequest, emit: Emit): Promise<Declined | Done> {
  const plan = () => planUninstall(work, request, emit);
  const what = { command: 'uninstall', operation: 'uninstall', plan, request } as const;
  return changeByPlan(work, what, emit, (done) => work.journal.write(planEntry('uninstalled', done)));
}

export async function planUninstall(
  work: Workplace,
  request: Pick<UninstallRequest, 'profile' | 'restart'>,
  emit: Emit,
): Promise<ReadyPlan> {
  emit({ kind: 'phase', phase: 'inspect', text: `inspecting this machine and ${request.profile.unit}` });
  const facts = await work.inspect(request.profile, null);
  emit({ kind: 'facts', facts });
  const plan = work.planUninstall(request.profile, facts, request);
  if (plan.kind === 'refused') throw refusal(plan, 'plan the removal');
  return plan;
}
