/** Runs vgpu-probe the way the consumer runs: what it cannot see there, the consumer cannot see either. */
import type { ProbeRun } from '../contracts/probe.js';
import type { LoadedUnit } from '../contracts/unit.js';
import { runInUnit, type UnitCommand, type UnitCommandEffects } from './run-in-unit.js';

export interface ProbeQuestion {
  readonly unit: LoadedUnit;
  /** Absolute path of vgpu-probe, readable and executable for the service's user. */
  readonly program: string;
  /** Limit for the probe's own work, handed to it as `--timeout`. */
  readonly timeoutMs: number;
  /** Run kernels too. */
  readonly compute?: boolean;
}

/** systemd ends the probe this long after its own limit. */
const graceMs = 2_000;

/** Never throws: a probe that could not be run is a result too (`not-run`, with the reason). */
export function runProbe(question: ProbeQuestion & UnitCommandEffects): Promise<ProbeRun> {
  return runInUnit(probeCommand(question), question);
}

export function probeCommand({ unit, program, timeoutMs, compute = false }: ProbeQuestion): UnitCommand {
  return {
    unit,
    purpose: 'vgpu-probe',
    program,
    args: ['--json', '--timeout', String(Math.ceil(timeoutMs / 1000)), ...(compute ? ['--compute'] : [])],
    // The shim's own word on why there is no host comes on standard error, and only when it is asked.
    environment: { ...unit.environment, VGPU_LOG: 'stderr' },
    environmentFiles: unit.environmentFiles,
    user: null,
    directory: '/',
    limitMs: timeoutMs + graceMs,
  };
}
