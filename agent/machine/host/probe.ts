/** Asks a libcuda for its devices, by running `vgpu-probe` as ourselves: no sandbox, no unit's environment. */
import type { ProbeReport } from '../../contracts/probe.js';
import { parseProbeReport } from '../../contracts/probe-report.js';
import { VgpuError } from '../../errors.js';
import type { CommandRunner } from '../../run-command.js';
import { toolEnvironment } from '../../run-command.js';

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
      /** What our shim said of the transport, without its prefix; null: nothing. */
      readonly noHost: string | null;
    }
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
        // The shim's own word on why there is no host comes on standard error, and only when it is asked.
        env: host === null ? environment : { ...environment, VGPU_HOST: host, VGPU_LOG: 'stderr' },
        timeoutMs: timeoutMs + graceMs,
      },
    );
    const milliseconds = Math.round(performance.now() - started);
    if (result.timedOut) return { kind: 'failed', message: `${program} did not end within ${timeoutMs} ms` };
    const parsed = parseProbeReport(result.stdout.toString('utf8'));
    const said = result.stderr.toString('utf8').trim();
    if (!('problem' in parsed)) {
      return { kind: 'report', report: parsed, milliseconds, noHost: noHostIn(said) };
    }
    return { kind: 'failed', message: said === '' ? parsed.problem : said };
  } catch (error) {
    if (error instanceof VgpuError) return { kind: 'failed', message: error.message };
    throw error;
  }
}

/** `no host: ...` of our shim, without that prefix. */
export function noHostIn(stderr: string): string | null {
  return /^.{0,80}?no host: (.*)$/m.exec(stderr)?.[1]?.trim() ?? null;
}

/** Why a report is not ok, in a sentence. */
export function describeFailure(report: ProbeReport): string {
  if (report.error !== null) {
    const { step, message } = report.error;
    return message.includes(step) ? message : `${step}: ${message}`;
  }
  if (report.devices.length === 0) return 'the driver lists no device';
  return report.roundTrip === null
    ? 'the memory round trip was not made'
    : 'the memory round trip brought back other bytes';
}
