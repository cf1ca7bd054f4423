/**
 * Waits until the service, which was just installed or asked for, is up. It settles only when no process has the lock;
 * the caller that may still take the installation back has it, and waits until the service has begun.
 */
import type { UnitFacts } from '../../contracts/unit.js';
import type { ServiceState } from '../../guest/look/closer-look.js';
import { stopIfAsked, VgpuError } from '../../lib/errors.js';
import { agentUnit } from '../../lib/paths.js';
import { askAgent } from '../../systemd/agent-client.js';
import { BusError } from '../../systemd/connection.js';
import { structs, text } from '../../systemd/properties.js';

type Told = ServiceState & { readonly problem: string };

interface ServiceUpEffects {
  unit(): Promise<UnitFacts>;
  /** Null: the service is not on the bus. */
  state(): Promise<Pick<Told, 'state' | 'problem'> | null>;
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

/** The state that the service reports of this consumer, or of itself if it does not keep it; null: it does not answer. */
export async function serviceState(unit: string): Promise<Told | null> {
  try {
    return await askAgent(async (agent) => {
      const properties = await agent.properties();
      const mine = structs(properties, 'Consumers').find(([name]) => name === unit);
      const [, , state, problem] = mine ?? ['', '', text(properties, 'State'), text(properties, 'Problem')];
      const configProblem = text(properties, 'ConfigProblem') || null;
      return { state: String(state), problem: String(problem), configProblem };
    });
  } catch (error) {
    // It ended while it was asked.
    if (error instanceof BusError || error instanceof VgpuError) return null;
    throw error;
  }
}
