/** From the probe's process to what it found. */

import type { ProbeResult, ProbeRun } from '../contracts/probe.js';
import { parseProbeReport } from '../contracts/probe-report.js';

/** Reads a run of `vgpu-probe --json`. Output that is not the agreed document is a crash, never an answer. */
export function probeResult(run: ProbeRun): ProbeResult {
  if (run.kind === 'not-run') return run;
  if (run.timedOut) return { kind: 'timed-out', milliseconds: run.milliseconds };
  if (run.signal !== null) return { kind: 'crashed', message: `vgpu-probe was ended by ${run.signal}` };
  // vgpu-probe's usage error: it is of another version than we are.
  if (run.exitCode === 2) {
    const message =
      'the vgpu-probe that is installed does not know these options; sudo vgpu-agent install brings its own';
    return { kind: 'not-run', message };
  }
  const report = parseProbeReport(run.stdout);
  if ('problem' in report) {
    const said = run.stderr.trim().slice(0, 300);
    return { kind: 'crashed', message: said === '' ? report.problem : `${report.problem}; it said: ${said}` };
  }
  // The document and the exit status tell the same story, or neither is believed.
  if ((run.exitCode === 0) !== report.ok) {
    return { kind: 'crashed', message: `vgpu-probe says ok=${report.ok} but exits with ${run.exitCode}` };
  }
  return {
    kind: 'answered',
    report,
    milliseconds: run.milliseconds,
    ...(run.inContainer === true ? { inContainer: true } : {}),
  };
}
