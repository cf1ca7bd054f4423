/** Runs vgpu-probe the way the consumer runs: what it cannot see there, the consumer cannot see either. */

import { type ContainerUnit, containerOf, isRootless } from '../containers/container-unit.js';
import type { ProbeRun } from '../contracts/probe.js';
import type { LoadedUnit } from '../contracts/unit.js';
import { runInUnit, type UnitCommand, type UnitCommandEffects } from './run-in-unit.js';

export interface ProbeQuestion {
  readonly unit: LoadedUnit;
  /** Absolute path of vgpu-probe, readable and executable for the service's user. */
  readonly program: string;
  /** The same where the consumer runs in a container that has our CDI device; default: `program`. */
  readonly programInContainer?: string;
  /** Limit for the probe's own work, handed to it as `--timeout`. */
  readonly timeoutMs: number;
  /** Run kernels too. */
  readonly compute?: boolean;
}

/** systemd ends the probe this long after its own limit. */
const graceMs = 2_000;

/** Never throws: a probe that could not be run is a result too (`not-run`, with the reason). */
export async function runProbe(question: ProbeQuestion & UnitCommandEffects): Promise<ProbeRun> {
  const container = containerOf(question.unit);
  if (container?.name === null) return { kind: 'not-run', message: unnamed(container) };
  if (isRootless(question.unit) && question.unit.dynamicUser)
    return {
      kind: 'not-run',
      message: 'the container is in the podman of a user that exists only for this unit (DynamicUser=)',
    };
  const ran = await runInUnit(probeCommand(question), question);
  return container === null || ran.kind === 'not-run' ? ran : ofContainer(ran);
}

export function probeCommand(question: ProbeQuestion): UnitCommand {
  const { unit, program, timeoutMs, compute = false } = question;
  const args = [
    '--json',
    '--timeout',
    String(Math.ceil(timeoutMs / 1000)),
    ...(compute ? ['--compute'] : []),
  ];
  const container = containerOf(unit);
  const common = { unit, purpose: 'vgpu-probe', user: null, directory: '/', limitMs: timeoutMs + graceMs };
  if (container !== null) {
    // The engine itself puts the probe into the container, with the container's own rights: what an image holds is
    // never executed as root of the guest.
    const inside = [...container.options, 'exec', container.name ?? ''];
    // Where a user's podman keeps its containers depends on its environment too: XDG_RUNTIME_DIR, HOME.
    const rootless = isRootless(unit);
    return {
      ...common,
      program: container.program,
      args: [...inside, question.programInContainer ?? program, ...args],
      environment: rootless ? unit.environment : {},
      environmentFiles: rootless ? unit.environmentFiles : [],
      outside: rootless ? 'user' : 'root',
    };
  }
  return {
    ...common,
    program,
    args,
    environment: unit.environment,
    environmentFiles: unit.environmentFiles,
  };
}

function unnamed({ engine, command }: ContainerUnit): string {
  return command === 'compose'
    ? 'no container of the compose file is known'
    : `the container has no name, so it cannot be found: add --name NAME to ${engine} run`;
}

/** Where the program ran it printed its document, or a signal ended it (128 and above). */
function ofContainer(ran: Extract<ProbeRun, { kind: 'ran' }>): ProbeRun {
  const { exitCode, stdout, stderr } = ran;
  // podman-exec(1), docker-exec: the engine could not execute it, and says so on either output.
  const refused = exitCode === 126 || exitCode === 127;
  if (!refused && (stdout !== '' || exitCode === null || exitCode >= 128))
    return { ...ran, inContainer: true };
  // The libraries ask for less of the image's C library than the probe does.
  if (/version `GLIBC_[\d.]+' not found/.test(stderr))
    return { kind: 'not-run', message: "vgpu-probe needs a newer C library than the container's image has" };
  const said = `${stdout}\n${stderr}`.trim().split('\n').at(-1)?.slice(0, 300) ?? '';
  const why = exitCode === 127 ? 'it does not exist there, so the container does not have the device' : said;
  return { kind: 'not-run', message: `vgpu-probe could not be executed in the container: ${why}` };
}
