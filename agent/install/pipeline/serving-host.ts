import { machine } from 'node:os';
import type { Emit } from '../../contracts/events.js';
import type { Plan, ReadyPlan } from '../../contracts/plan.js';
import type { HostDevice, ServingFacts, ServingRequest } from '../../contracts/serving.js';
import { ContentCache } from '../../guest/files/content.js';
import { Root } from '../../guest/files/root.js';
import {
  askDaemon,
  type DaemonAnswer,
  presentDevice,
  readServing,
  type ServingEffects,
} from '../../guest/host/inspect.js';
import { agentVersion } from '../../lib/build-info.js';
import { VgpuError } from '../../lib/errors.js';
import { hostState } from '../../lib/paths.js';
import { spawnRunner } from '../../lib/run-command.js';
import { openManager } from '../../systemd/bus.js';
import { apply, recover } from '../apply/apply.js';
import { nodeDisk, systemEffects } from '../apply/disk.js';
import type { Recovery } from '../apply/effects.js';
import { underLock } from '../apply/lock.js';
import { readManifest } from '../apply/manifest.js';
import { planServing, planServingAway } from '../plan/serving.js';
import { type Approval, changeByPlan, type Declined, type Done, refusal } from './ask-then-lock.js';
import type { Workplace } from './workplace.js';

export interface HostWorkplace extends Pick<Workplace, 'locked' | 'recover' | 'apply'> {
  device(): Promise<HostDevice | null>;
  look(request: ServingRequest, device: HostDevice): Promise<ServingFacts>;
  askDaemon(): Promise<DaemonAnswer>;
  recover(emit: Emit): Promise<Recovery>;
}

interface HostChange extends Approval {
  readonly intent: 'install' | 'uninstall';
  readonly request: ServingRequest;
}

export function changeHost(work: HostWorkplace, change: HostChange, emit: Emit): Promise<Declined | Done> {
  const { intent, request } = change;
  const plan = () => planHost(work, intent, request, emit);
  const what = { command: intent, operation: `host ${intent}`, plan, request: change };
  return changeByPlan(work, what, emit);
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
    device: () => presentDevice(serving()),
    look: (request, device) => readServing(serving(), request, device),
    askDaemon: () => askDaemon(runner),
    recover: (emit) => recover(effects, emit),
    apply: (plan, options, emit) => apply(plan, effects, emit, options),
    locked: (command, task, { waitMs = lockWaitMs, signal } = {}) =>
      underLock(disk, { command, waitMs, signal }, task),
  };
  return { work, close: () => manager.close() };
}
