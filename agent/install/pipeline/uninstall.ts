import type { Emit } from '../../contracts/events.js';
import { stopIfAsked } from '../../lib/errors.js';
import type { Profile } from '../../profile/types.js';
import type { Applied } from '../apply/effects.js';
import { askThenLock, recoverFirst, refusal } from './ask-then-lock.js';
import type { ReadyPlan, Workplace } from './workplace.js';

interface UninstallRequest {
  readonly profile: Profile;
  readonly restart: boolean;
  readonly signal: AbortSignal;
  readonly approve: (plan: ReadyPlan) => Promise<boolean>;
  readonly asks: boolean;
}

type UninstallResult =
  | { readonly kind: 'declined'; readonly plan: ReadyPlan }
  | { readonly kind: 'done'; readonly plan: ReadyPlan; readonly applied: Applied };

/** Throws a VgpuError as `install` does. Nothing installed is no failure: the plan is then empty. */
export async function uninstall(
  work: Workplace,
  request: UninstallRequest,
  emit: Emit,
): Promise<UninstallResult> {
  const asked = await askThenLock(
    work,
    {
      command: 'uninstall',
      tidy: () => recoverFirst(work, emit),
      plan: () => planUninstall(work, request, emit),
      words: (plan) => (plan.changes.length === 0 ? null : JSON.stringify(plan.changes)),
      approve: request.approve,
      asks: request.asks,
      signal: request.signal,
    },
    (plan) => carryOut(work, request, plan, emit),
    emit,
  );
  return asked.kind === 'declined' ? { kind: 'declined', plan: asked.planned } : asked.result;
}

async function carryOut(
  work: Workplace,
  request: UninstallRequest,
  plan: ReadyPlan,
  emit: Emit,
): Promise<UninstallResult> {
  stopIfAsked(request.signal, 'stopped before anything was changed', { operation: 'uninstall' });
  const applied = await work.apply(plan, { keepUndo: false, signal: request.signal }, emit);
  if (applied.changes > 0) {
    await work.journal.write({
      kind: 'uninstalled',
      profile: plan.profile,
      unit: plan.unit,
      storeId: plan.storeId,
      changes: applied.changes,
    });
  }
  return { kind: 'done', plan, applied };
}

export async function planUninstall(
  work: Workplace,
  request: Pick<UninstallRequest, 'profile' | 'restart'>,
  emit: Emit,
): Promise<ReadyPlan> {
  emit({ kind: 'phase', phase: 'inspect', text: `inspecting this machine and ${request.profile.unit}` });
  const facts = await work.inspect(request.profile, null);
  emit({ kind: 'facts', facts });
  const plan = work.planUninstall(request.profile, facts, {
    endpoint: null,
    restart: request.restart,
    force: false,
  });
  if (plan.kind === 'refused') throw refusal(plan, 'plan the removal');
  return plan;
}
