import { machine } from 'node:os';
import type { Emit } from '../../contracts/events.js';
import type { Plan, ReadyPlan } from '../../contracts/plan.js';
import type { ServedFacts, ServingFacts, ServingRequest } from '../../contracts/serving.js';
import { ContentCache } from '../../guest/files/content.js';
import { Root } from '../../guest/files/root.js';
import { readServed, readServing, type ServingEffects } from '../../guest/host/inspect.js';
import { agentVersion } from '../../lib/build-info.js';
import { hostState } from '../../lib/paths.js';
import { spawnRunner } from '../../lib/run-command.js';
import { openManager } from '../../systemd/bus.js';
import { apply, recover } from '../apply/apply.js';
import { nodeDisk, systemEffects } from '../apply/disk.js';
import { underLock } from '../apply/lock.js';
import { readManifest } from '../apply/manifest.js';
import { planServing, planServingAway } from '../plan/serving.js';
import { type Approval, changeByPlan, type Declined, type Done, refusal } from './ask-then-lock.js';
import type { Workplace } from './workplace.js';

export interface HostWorkplace extends Pick<Workplace, 'locked' | 'recover' | 'apply'> {
  look(): Promise<ServedFacts>;
  lookToInstall(request: ServingRequest): Promise<ServingFacts>;
}

type Intent = 'install' | 'uninstall';

export function changeHost(
  work: HostWorkplace,
  request: Approval & { readonly intent: Intent; readonly request: ServingRequest },
  emit: Emit,
): Promise<Declined | Done> {
  const { intent } = request;
  const plan = () => planHost(work, intent, request.request, emit);
  return changeByPlan(work, { command: intent, operation: `host ${intent}`, plan, request }, emit);
}

/** Throws a VgpuError: `refused` with every reason; `usage` if no device is requested or installed. */
export async function planHost(
  work: HostWorkplace,
  intent: Intent,
  request: ServingRequest,
  emit: Emit,
): Promise<ReadyPlan> {
  emit({ kind: 'phase', phase: 'inspect', text: 'inspecting this machine and vgpu-hostd' });
  const plan: Plan =
    intent === 'install'
      ? planServing(await work.lookToInstall(request), request)
      : planServingAway(await work.look(), request);
  if (plan.kind === 'refused') throw refusal(plan, `plan the ${intent} of the host`);
  return plan;
}

const jobTimeoutMs = 100_000;
const lockWaitMs = 10_000;

export async function openHost(): Promise<{ readonly work: HostWorkplace; close(): void }> {
  const manager = await openManager();
  const runner = spawnRunner();
  const disk = nodeDisk(runner, '', hostState);
  const effects = {
    ...systemEffects({ runner, manager, agentVersion: agentVersion(), restartTimeoutMs: jobTimeoutMs }),
    disk,
  };
  // A new view each time: it remembers directories, and a plan is made again after the lock was waited for.
  const serving = (): ServingEffects => ({
    root: new Root('/'),
    contents: new ContentCache(),
    runner,
    manager,
    architecture: machine(),
    readManifest: () => readManifest(disk),
  });
  const work: HostWorkplace = {
    look: () => readServed(serving()),
    lookToInstall: (request) => readServing(serving(), request),
    recover: (emit) => recover(effects, emit),
    apply: (plan, options, emit) => apply(plan, effects, emit, options),
    locked: (command, task, { waitMs = lockWaitMs, signal } = {}) =>
      underLock(disk, { command, waitMs, signal }, task),
  };
  return { work, close: () => manager.close() };
}
