/** Asks a libcuda for its devices, by running `vgpu-probe` as ourselves: no sandbox, no unit's environment. */
import { troubleOf } from '../../contracts/host-word.js';
import type { ProbeReport } from '../../contracts/probe.js';
import { parseProbeReport } from '../../contracts/probe-report.js';
import { VgpuError } from '../../lib/errors.js';
import type { CommandRunner } from '../../lib/run-command.js';
import { toolEnvironment } from '../../lib/run-command.js';

export interface ProbeQuestion {
  /** Path of vgpu-probe. */
  readonly program: string;
  /** The libcuda to ask; the libnvidia-ml beside it is asked too. */
  readonly library: string;
  /** `VGPU_HOST` for our shim; null leaves it unset. */
  readonly host: string | null;
  readonly timeoutMs: number;
}

export type ProbeAnswer =
  | {
      readonly kind: 'report';
      readonly report: ProbeReport;
      readonly milliseconds: number;
    }
  | { readonly kind: 'timed-out'; readonly message: string }
  | { readonly kind: 'failed'; readonly message: string };

/** The probe ends itself at its time-out; this is how much later it is ended. */
const graceMs = 1_000;

/** Never rejects because of what the library or the host does: no answer is an answer. */
export async function askProbe(runner: CommandRunner, question: ProbeQuestion): Promise<ProbeAnswer> {
  const { program, library, host, timeoutMs } = question;
  const { VGPU_HOST: _, VGPU_LOG: __, ...environment } = toolEnvironment(process.env);
  const started = performance.now();
  try {
    const result = await runner.run(
      program,
      ['--library', library, '--json', '--timeout', String(timeoutMs / 1000)],
      {
        env: host === null ? environment : { ...environment, VGPU_HOST: host },
        timeoutMs: timeoutMs + graceMs,
      },
    );
    const milliseconds = Math.round(performance.now() - started);
    if (result.timedOut) {
      return { kind: 'timed-out', message: `${program} did not end within ${timeoutMs} ms` };
    }
    const parsed = parseProbeReport(result.stdout.toString('utf8'));
    if (!('problem' in parsed)) return { kind: 'report', report: parsed, milliseconds };
    const said = result.stderr.toString('utf8').trim();
    return { kind: 'failed', message: said === '' ? parsed.problem : said };
  } catch (error) {
    if (error instanceof VgpuError) return { kind: 'failed', message: error.message };
    throw error;
  }
}

/** Why a report is not ok, in a sentence. */
export function describeFailure(report: ProbeReport): string {
  const noHost = troubleOf(report.host);
  if (noHost !== null) return noHost.message;
  if (report.error !== null) {
    const { step, message } = report.error;
    return message.includes(step) ? message : `${step}: ${message}`;
  }
  if (report.devices.length === 0) return 'the driver lists no device';
  return report.roundTrip === null
    ? 'the memory round trip was not made'
    : 'the memory round trip returned other bytes';
}
