/** host install, status and uninstall: the arrow of a machine that serves GPUs. */

import type { Emit } from '../../contracts/events.js';
import type { Plan } from '../../contracts/plan.js';
import type { HostDevice, ServingFacts, ServingRequest } from '../../contracts/serving.js';
import type { DaemonAnswer } from '../../guest/host/inspect.js';
import { VgpuError } from '../../lib/errors.js';
import type { Applied, Recovery } from '../apply/types.js';
import { planServingAway } from '../plan/serving/away.js';
import { planServing } from '../plan/serving/install.js';
import { askThenLock } from './ask-then-lock.js';
import { recoverFirst } from './recover-first.js';
import { refusal } from './refusal.js';
import type { ReadyPlan, Workplace } from './workplace.js';

/** The effects that it needs, passed in. */
export interface HostWorkplace extends Pick<Workplace, 'locked' | 'recover' | 'apply'> {
  /** The device that is set now; null: none. */
  device(): Promise<HostDevice | null>;
  look(request: ServingRequest, device: HostDevice): Promise<ServingFacts>;
  askDaemon(): Promise<DaemonAnswer>;
  recover(emit: Emit): Promise<Recovery>;
}

/** Nothing is asked for: everything as it is. */
export const asItIs: ServingRequest = {
  device: null,
  listen: null,
  limits: { memory: null, sessions: null },
  endSessions: false,
  force: false,
};

export interface HostChange {
  readonly intent: 'install' | 'uninstall';
  readonly request: ServingRequest;
  readonly signal: AbortSignal;
  readonly approve: (plan: ReadyPlan) => Promise<boolean>;
  /** `approve` asks a person: then the lock is taken after the answer. */
  readonly asks: boolean;
}

export type HostResult =
  | { readonly kind: 'declined'; readonly plan: ReadyPlan }
  | { readonly kind: 'done'; readonly plan: ReadyPlan; readonly applied: Applied };

export async function changeHost(work: HostWorkplace, change: HostChange, emit: Emit): Promise<HostResult> {
  const { intent, request, signal } = change;
  const asked = await askThenLock(
    work,
    {
      command: intent,
      tidy: () => recoverFirst(work, emit),
      plan: () => planHost(work, intent, request, emit),
      words: (plan) => (plan.changes.length === 0 ? null : JSON.stringify(plan.changes)),
      approve: change.approve,
      asks: change.asks,
      signal,
    },
    async (plan): Promise<HostResult> => {
      if (signal.aborted) {
        throw new VgpuError('stopped before anything was changed', {
          kind: 'interrupted',
          operation: `host ${intent}`,
        });
      }
      return { kind: 'done', plan, applied: await work.apply(plan, { keepUndo: false, signal }, emit) };
    },
    emit,
  );
  return asked.kind === 'declined' ? { kind: 'declined', plan: asked.planned } : asked.result;
}

/** Throws a VgpuError: `refused` with every reason; `usage` when no device was given. */
export async function planHost(
  work: HostWorkplace,
  intent: HostChange['intent'],
  request: ServingRequest,
  emit: Emit,
): Promise<ReadyPlan> {
  emit({ kind: 'phase', phase: 'inspect', text: 'inspecting this machine and vgpu-hostd' });
  const present = request.device ?? (await work.device());
  if (present === null && intent === 'install') throw noDevice();
  const facts = await work.look(request, present ?? 'software');
  const plan: Plan = intent === 'install' ? planServing(facts, request) : planServingAway(facts, request);
  if (plan.kind === 'refused') throw refusal(plan, `plan the ${intent} of the host`);
  return plan;
}

function noDevice(): VgpuError {
  return new VgpuError('no --device was given, and no device was installed before', {
    kind: 'usage',
    operation: 'plan the install of the host',
    remedy: '--device cuda for the GPU of this machine, --device software for a simulated one',
  });
}
