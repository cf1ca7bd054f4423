/** Waits until the service, which was just installed or asked for, is up and has settled. */
import type { UnitFacts } from '../contracts/unit.js';
import { VgpuError } from '../errors.js';
import { agentUnit } from '../paths.js';

export interface ServiceUpEffects {
  /** vgpu-agent.service as systemd sees it. */
  unit(): Promise<UnitFacts>;
  /** What the service says of itself on the bus; null while nobody is there. */
  state(): Promise<{ readonly state: string; readonly problem: string } | null>;
  now(): number;
  /** Resolves early when `signal` aborts. */
  sleep(milliseconds: number, signal: AbortSignal): Promise<void>;
}

/** A start takes a second; on a busy machine the first look at everything takes several. */
const limitMs = 60_000;
const everyMs = 100;
/** A service that ended so often since we began to look will not stay. */
const hopelessRestarts = 3;

/**
 * Resolves when the service has settled. Throws a VgpuError: `failed` when it does not within a minute, ends again and
 * again, or says that it cannot keep the installation true; `interrupted` when `signal` aborts.
 */
export async function serviceUp(effects: ServiceUpEffects, signal: AbortSignal): Promise<void> {
  const deadline = effects.now() + limitMs;
  let before: number | null = null;
  for (;;) {
    const [unit, said] = await Promise.all([effects.unit(), effects.state()]);
    if (said?.state === 'settled') return;
    if (said?.state === 'degraded') throw notUp(said.problem);
    if (unit.kind !== 'loaded') throw notUp(`systemd says that the unit is ${unit.kind}`);
    before ??= unit.restarts;
    if (unit.activeState === 'failed') throw notUp('systemd has given it up (failed)');
    if (unit.restarts - before >= hopelessRestarts) {
      throw notUp(`it was started ${unit.restarts} times and ended each time`);
    }
    if (effects.now() >= deadline) {
      const state = said === null ? `systemd says ${unit.activeState}` : `it says ${said.state}`;
      throw notUp(`after ${limitMs / 1000} s ${state}${said?.problem ? `: ${said.problem}` : ''}`);
    }
    if (signal.aborted) {
      throw new VgpuError('stopped while waiting for the service; what was installed stays', {
        kind: 'interrupted',
        operation: 'wait for the service',
        path: agentUnit,
        remedy: 'vgpu-agent status says how it is',
      });
    }
    await effects.sleep(everyMs, signal);
  }
}

function notUp(why: string): VgpuError {
  return new VgpuError(
    `${agentUnit} is installed but not up: ${why}. What was installed for the consumer stays`,
    {
      kind: 'failed',
      operation: 'wait for the service',
      path: agentUnit,
      remedy: `journalctl -u ${agentUnit} -n 20 says why; vgpu-agent install --no-service takes it away`,
    },
  );
}
