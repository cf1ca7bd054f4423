/**
 * Waits until the service, which was just installed or asked for, is up. It settles only when no process has the lock;
 * the caller that may still take the installation back has it, and waits until the service has begun.
 */
import type { UnitFacts } from '../../contracts/unit.js';
import type { ServiceState } from '../../guest/look/closer-look.js';
import { stopIfAsked, VgpuError } from '../../lib/errors.js';
import { member } from '../../lib/json.js';
import { agentUnit } from '../../lib/paths.js';
import type { Profile } from '../../profile/types.js';
import { findAgent, nullWhenBusy } from '../../systemd/agent-client.js';
import { BusError } from '../../systemd/connection.js';
import { text } from '../../systemd/properties.js';

interface ServiceUpEffects {
  unit(): Promise<UnitFacts>;
  /** The service's state on the bus; null while it is not there. */
  state(): Promise<{ readonly state: string; readonly problem: string } | null>;
  now(): number;
  /** Resolves early when `signal` aborts. */
  sleep(milliseconds: number, signal: AbortSignal): Promise<void>;
}

/** `begun`: systemd calls it active and it answers on the bus. `settled`: it has found everything as it shall be. */
export type ServiceGoal = 'begun' | 'settled';

/** A start takes a second; on a busy machine the first look at everything takes several. */
const limitMs = 60_000;
const everyMs = 100;
/** A service that ended so often since we began to look will not stay. */
const hopelessRestarts = 3;

/** Throws `failed` after a minute, after repeated ends or when it cannot repair; `interrupted`. */
export async function serviceUp(
  effects: ServiceUpEffects,
  goal: ServiceGoal,
  signal: AbortSignal,
): Promise<void> {
  const deadline = effects.now() + limitMs;
  let before: number | null = null;
  for (;;) {
    const [unit, said] = await Promise.all([effects.unit(), effects.state()]);
    if (said?.state === 'settled' || said?.state === 'restart-pending') return;
    if (said?.state === 'degraded') throw notUp(goal, said.problem);
    if (goal === 'begun' && said !== null && unit.kind === 'loaded' && unit.activeState === 'active') return;
    if (unit.kind !== 'loaded') throw notUp(goal, `systemd says that the unit is ${unit.kind}`);
    before ??= unit.restarts;
    if (unit.activeState === 'failed') throw notUp(goal, 'systemd does not start it any more (failed)');
    if (unit.restarts - before >= hopelessRestarts) {
      throw notUp(goal, `it was started ${unit.restarts} times and ended each time`);
    }
    if (effects.now() >= deadline) {
      const state = said === null ? `systemd says ${unit.activeState}` : `it says ${said.state}`;
      throw notUp(goal, `after ${limitMs / 1000} s ${state}${said?.problem ? `: ${said.problem}` : ''}`);
    }
    stopIfAsked(signal, 'stopped while waiting for the service; what was installed stays', {
      operation: 'wait for the service',
      path: agentUnit,
      remedy: 'vgpu-agent status says how it is',
    });
    await effects.sleep(everyMs, signal);
  }
}

function notUp(goal: ServiceGoal, why: string): VgpuError {
  const reason = `journalctl -u ${agentUnit} -n 20 says why`;
  return new VgpuError(`${agentUnit} is installed but not up: ${why}`, {
    kind: 'failed',
    operation: 'wait for the service',
    path: agentUnit,
    remedy:
      goal === 'begun'
        ? reason
        : `${reason}; what was installed for the consumer stays, and vgpu-agent install --no-service takes the service away`,
  });
}

// The status of vgpu-agent.service for the doctor: its own status document, read with care.

/** Null when it does not run, does not look after this one, or is of a version that says it in another way. */
export async function serviceState(profile: Profile): Promise<ServiceState | null> {
  const agent = await findAgent();
  if (agent === null) return null;
  try {
    const properties = await agent.properties();
    const document: unknown = JSON.parse(text(properties, 'Status', 'null'));
    const mine = stateOf(document, profile.unit);
    if (mine === null) return null;
    return { ...mine, configProblem: textOrNull(member(member(document, 'service'), 'configProblem')) };
  } finally {
    agent.close();
  }
}

/** State and problem of the service for one consumer; null when the service does not answer. */
export async function agentState(
  unit: string,
): Promise<{ readonly state: string; readonly problem: string } | null> {
  // Asked again and again: a bus that is busy now answers a later question.
  const agent = await findAgent().catch(nullWhenBusy);
  if (agent === null) return null;
  try {
    const properties = await agent.properties();
    const mine = stateOf(JSON.parse(text(properties, 'Status', 'null')), unit);
    // agent.json may name others only: then the service as a whole is what there is to wait for.
    return mine === null
      ? { state: text(properties, 'State'), problem: text(properties, 'Problem') }
      : { state: mine.state, problem: mine.problem ?? '' };
  } catch (error) {
    // It ended while it was asked.
    if (error instanceof BusError || error instanceof VgpuError) return null;
    throw error;
  } finally {
    agent.close();
  }
}

function stateOf(
  document: unknown,
  unit: string,
): { readonly state: string; readonly problem: string | null } | null {
  const consumers = member(document, 'consumers');
  const mine: unknown = Array.isArray(consumers)
    ? consumers.find((one: unknown) => member(member(one, 'unit'), 'name') === unit)
    : undefined;
  const service = member(mine, 'service');
  const state = member(service, 'state');
  return typeof state === 'string' ? { state, problem: textOrNull(member(service, 'problem')) } : null;
}

function textOrNull(value: unknown): string | null {
  return typeof value === 'string' ? value : null;
}
