/**
 * Asks the user without holding the lock: plan, ask, take the lock, plan again, and continue only if the plan is the
 * one that the user accepted. So a slow answer delays no repair and no other command.
 */
import { type Emit, note } from '../../contracts/events.js';
import type { Plan, ReadyPlan } from '../../contracts/plan.js';
import { stopIfAsked, VgpuError } from '../../lib/errors.js';
import type { Applied } from '../apply/effects.js';
import type { LockedCommand, Workplace } from './workplace.js';

export interface Asking<P> {
  readonly command: LockedCommand;
  /** Clears up what a former run left half done, under the lock; it is no part of any plan. */
  readonly tidy: () => Promise<unknown>;
  /** Looks at the machine and decides. Called before the question and again under the lock. */
  readonly plan: () => Promise<P>;
  /** Two plans with the same words are the same; null: there is nothing to ask about. */
  readonly words: (planned: P) => string | null;
  readonly approve: (planned: P) => Promise<boolean>;
  readonly asks: boolean;
  readonly signal: AbortSignal;
}

type Asked<P, R> =
  | { readonly kind: 'declined'; readonly planned: P }
  | { readonly kind: 'done'; readonly result: R };

/** `task` runs under the lock, with a plan that was agreed to. Throws what the parts throw. */
export async function askThenLock<P, R>(
  work: Pick<Workplace, 'locked'>,
  asking: Asking<P>,
  task: (planned: P) => Promise<R>,
  emit: Emit,
): Promise<Asked<P, R>> {
  const { command, words, signal } = asking;
  let agreed: string | null = null;
  if (asking.asks) {
    await work.locked('repair', asking.tidy, { signal });
  }
  for (;;) {
    if (asking.asks) {
      const planned = await asking.plan();
      const about = words(planned);
      if (about !== null && about !== agreed && !(await asking.approve(planned))) {
        return { kind: 'declined', planned };
      }
      agreed = about;
    }
    const outcome = await work.locked<Asked<P, R> | 'another plan'>(
      command,
      async () => {
        await asking.tidy();
        const planned = await asking.plan();
        const about = words(planned);
        if (asking.asks && about !== null && about !== agreed) return 'another plan';
        if (!asking.asks && about !== null && !(await asking.approve(planned))) {
          return { kind: 'declined', planned };
        }
        return { kind: 'done', result: await task(planned) };
      },
      { signal },
    );
    if (outcome !== 'another plan') return outcome;
    const text = 'the machine changed while the question was open; this is the new plan';
    note(emit, 'warning', 'plan-changed', text);
  }
}

export interface Approval {
  /** Asked again when the plan has changed meanwhile. False stops without a change. */
  readonly approve: (plan: ReadyPlan) => Promise<boolean>;
  readonly asks: boolean;
  readonly signal: AbortSignal;
}

export interface Declined {
  readonly kind: 'declined';
  readonly plan: ReadyPlan;
}

export interface Done {
  readonly kind: 'done';
  readonly plan: ReadyPlan;
  readonly applied: Applied;
}

export function aboutPlan<P extends { readonly plan: ReadyPlan }>(
  work: Pick<Workplace, 'recover'>,
  { approve, asks, signal }: Approval,
  emit: Emit,
): Pick<Asking<P>, 'tidy' | 'words' | 'approve' | 'asks' | 'signal'> {
  return {
    tidy: () => recoverFirst(work, emit),
    words: ({ plan }) => (plan.changes.length === 0 ? null : JSON.stringify(plan.changes)),
    approve: ({ plan }) => approve(plan),
    asks,
    signal,
  };
}

export async function changeByPlan(
  work: Pick<Workplace, 'locked' | 'recover' | 'apply'>,
  what: {
    readonly command: 'install' | 'uninstall';
    readonly operation: string;
    readonly plan: () => Promise<ReadyPlan>;
    readonly request: Approval;
  },
  emit: Emit,
  applied: (plan: ReadyPlan) => Promise<void> = async () => {},
): Promise<Declined | Done> {
  const { command, operation, request } = what;
  const { signal } = request;
  const planned = async () => ({ plan: await what.plan() });
  const asked = await askThenLock(
    work,
    { command, plan: planned, ...aboutPlan(work, request, emit) },
    async ({ plan }): Promise<Done> => {
      stopIfAsked(signal, 'stopped before anything was changed', { operation });
      const done = await work.apply(plan, { keepUndo: false, signal }, emit);
      if (plan.changes.length > 0) await applied(plan);
      return { kind: 'done', plan, applied: done };
    },
    emit,
  );
  return asked.kind === 'declined' ? { kind: 'declined', plan: asked.planned.plan } : asked.result;
}

/** The first step of a command, before it plans: it undoes or finishes what a former run left, and says so. */
export async function recoverFirst(work: Pick<Workplace, 'recover'>, emit: Emit): Promise<void> {
  const recovery = await work.recover(emit);
  if (recovery.kind === 'nothing') return;
  const text =
    recovery.kind === 'rolled-back'
      ? `an earlier ${recovery.intent} was interrupted; it was undone`
      : `an earlier ${recovery.intent} was interrupted at its end; it was finished`;
  note(emit, 'warning', `recovered-${recovery.kind}`, text);
}

export function refusal(plan: Extract<Plan, { kind: 'refused' }>, operation: string): VgpuError {
  const { refusals } = plan;
  return new VgpuError(refusals.map((one) => one.message).join('\n'), {
    kind: 'refused',
    operation,
    remedy: refusals.map((one) => one.remedy).join('\n'),
  });
}
