import { type Emit, note } from '../../contracts/events.js';
import type { MachineFacts } from '../../contracts/facts.js';
import type { ReadyPlan } from '../../contracts/plan.js';
import type { Verdict } from '../../contracts/verdict.js';
import { stopIfAsked, VgpuError } from '../../lib/errors.js';
import { agentUnit } from '../../lib/paths.js';
import type { Profile } from '../../profile/types.js';
import { planEntry } from '../../systemd/journal-writer.js';
import type { Applied } from '../apply/effects.js';
import {
  type Approval,
  aboutPlan,
  askThenLock,
  changeByPlan,
  type Declined,
  type Done,
  refusal,
} from './ask-then-lock.js';
import type { Mark, Workplace } from './workplace.js';

export interface InstallRequest extends Approval {
  readonly profile: Profile;
  readonly host: string | null;
  readonly force: boolean;
  readonly allowUnreachable?: boolean;
  readonly restart: boolean;
  readonly service?: boolean | null;
  readonly rollbackOnFailure: boolean;
  readonly timeoutMs: number | null;
  readonly compute?: boolean;
}

export type InstallResult =
  | Declined
  | (Done & { readonly verdict: Verdict | null })
  | { readonly kind: 'rolled-back'; readonly plan: ReadyPlan; readonly verdict: Verdict };

/**
 * Carries out an install. Throws a VgpuError:
 * - `refused`: the plan is refused.
 * - `rolled-back`, or `interrupted` while changes are applied: all changes are undone.
 * - `interrupted` while the verdict is awaited: the installation stays.
 * - `failed`: the requested service does not settle. The installation stays. If the service does not even start, the
 *   error with `rollbackOnFailure` is `rolled-back`, and all changes are undone.
 */
export async function install(work: Workplace, request: InstallRequest, emit: Emit): Promise<InstallResult> {
  const marks: Mark[] = [];
  try {
    const asked = await askThenLock(
      work,
      {
        command: 'install',
        plan: () => inspectAndPlan(work, request, emit),
        ...aboutPlan(work, request, emit),
      },
      (planned) => change(work, request, planned, marks, emit),
      emit,
    );
    if (asked.kind === 'declined') return { kind: 'declined', plan: asked.planned.plan };
    const changed = asked.result;
    if (changed.kind !== 'changed') {
      if (changed.kind === 'done') await serviceIfWanted(work, request, changed.plan, emit);
      return changed;
    }
    const verdict = request.restart ? await judge(work, request, changed, emit) : null;
    await serviceIfWanted(work, request, changed.plan, emit);
    return { ...done(changed), verdict };
  } finally {
    for (const mark of marks) mark.looking.stop();
  }
}

/** Not under the lock, which the service needs to settle. */
async function serviceIfWanted(
  work: Workplace,
  request: InstallRequest,
  plan: ReadyPlan,
  emit: Emit,
): Promise<void> {
  if (!serviceWanted(request, plan)) return;
  emit({ kind: 'phase', phase: 'service', text: `waiting until ${agentUnit} has settled` });
  await work.serviceUp(plan.unit, 'settled', request.signal);
}

function serviceWanted(request: InstallRequest, plan: ReadyPlan): boolean {
  const started = plan.changes.some((one) => one.kind === 'service' && one.action !== 'stop');
  return request.service === true || started;
}

/** The work under the lock. Marks that it makes go to `marks`: the caller ends them. */
async function change(
  work: Workplace,
  request: InstallRequest,
  { facts, plan }: { readonly facts: MachineFacts; readonly plan: ReadyPlan },
  marks: Mark[],
  emit: Emit,
): Promise<Changed | InstallResult> {
  stopIfAsked(request.signal, 'stopped before anything was changed', { operation: 'install' });
  const restarts = plan.changes.some((one) => one.kind === 'restart');
  const mark = restarts ? await work.mark(facts.unit, request.signal) : null;
  if (mark !== null) marks.push(mark);
  const keepUndo = request.rollbackOnFailure && request.restart;
  const applied = await work.apply(plan, { keepUndo, signal: request.signal }, emit);
  if (plan.changes.length > 0) {
    await work.journal.write(planEntry('installed', plan));
  }
  const state: Changed = { kind: 'changed', facts, plan, applied, mark };
  // A caller that may still take it back keeps the lock until that is decided. A plan of only a restart has no undo log.
  return applied.undoKept ? concludeOrTakeBack(work, request, state, emit) : state;
}

interface Changed {
  readonly kind: 'changed';
  readonly facts: MachineFacts;
  readonly plan: ReadyPlan;
  readonly applied: Applied;
  /** Null when nothing was restarted: the start that the unit is in is judged. */
  readonly mark: Mark | null;
}

function done(state: Changed): Done {
  return { kind: 'done', plan: state.plan, applied: state.applied };
}

export async function inspectAndPlan(
  work: Workplace,
  request: Pick<InstallRequest, 'profile' | 'host' | 'force' | 'allowUnreachable' | 'restart' | 'service'>,
  emit: Emit,
): Promise<{ readonly facts: MachineFacts; readonly plan: ReadyPlan }> {
  const { profile, host, force, allowUnreachable = false, restart, service = null } = request;
  emit({ kind: 'phase', phase: 'inspect', text: `inspecting this machine and ${profile.unit}` });
  const facts = await work.inspect(profile, host);
  emit({ kind: 'facts', facts });
  const options = { endpoint: host, force, allowUnreachable, restart, service };
  const plan = work.planInstall(profile, facts, options);
  if (plan.kind === 'refused') throw refusal(plan, 'plan the installation');
  return { facts, plan };
}

async function judge(work: Workplace, request: InstallRequest, state: Changed, emit: Emit): Promise<Verdict> {
  const { facts, mark } = state;
  emit({ kind: 'phase', phase: 'confirm', text: `finding out where ${state.plan.unit} runs` });
  try {
    const verdict = await work.confirm(
      {
        profile: request.profile,
        facts,
        mark,
        timeoutMs: request.timeoutMs,
        compute: request.compute === true,
        signal: request.signal,
      },
      emit,
    );
    request.signal.throwIfAborted();
    emit({ kind: 'verdict', verdict });
    await work.journal.write({ kind: 'verdict', verdict });
    return verdict;
  } catch (error) {
    if (!request.signal.aborted) throw error;
    throw new VgpuError('stopped while waiting for the verdict; what was installed stays', {
      kind: 'interrupted',
      operation: 'confirm',
      path: state.plan.unit,
      remedy: 'vgpu-agent verify continues; vgpu-agent uninstall removes everything',
      cause: error,
    });
  }
}

async function concludeOrTakeBack(
  work: Workplace,
  request: InstallRequest,
  state: Changed,
  emit: Emit,
): Promise<InstallResult> {
  const wanted = serviceWanted(request, state.plan);
  let verdict: Verdict;
  try {
    verdict = await judge(work, request, state, emit);
    if (wanted && verdict.mode === 'gpu') {
      emit({ kind: 'phase', phase: 'service', text: `waiting until ${agentUnit} has started` });
      await work.serviceUp(state.plan.unit, 'begun', request.signal);
    }
  } catch (error) {
    // Stopped by the user: keep the installation. Any other failure: undo it.
    if (request.signal.aborted) await work.settle(emit);
    else await takeBack(work, state.plan, emit);
    if (request.signal.aborted || !(error instanceof VgpuError)) throw error;
    throw takenBack(error, error.remedy);
  }
  if (verdict.mode === 'gpu') {
    await work.settle(emit);
    return { ...done(state), verdict };
  }
  await takeBack(work, state.plan, emit);
  return { kind: 'rolled-back', plan: state.plan, verdict };
}

async function takeBack(work: Workplace, plan: ReadyPlan, emit: Emit): Promise<void> {
  const restart = await work.rollback(plan.unit, emit);
  if (restart.kind === 'failed')
    note(emit, 'warning', 'restart-failed', restart.message, `systemctl restart ${plan.unit}`);
  await work.journal.write(planEntry('rolledBack', plan));
}

function takenBack(error: VgpuError, remedy: string | undefined): VgpuError {
  return new VgpuError(`${error.message}. Everything was undone`, {
    kind: 'rolled-back',
    operation: error.operation,
    path: error.path,
    remedy,
    cause: error,
  });
}

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
