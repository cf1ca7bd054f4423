import { broken, byHand, ok, unknown } from '../finding.js';
import type { Check } from '../types.js';

/** The guest is shown the driver version of the host; consumers have a lower limit of their own. */
export const driverVersion: Check = {
  id: 'driver-version',
  title: 'the driver is new enough for the service',
  looksAt: 'the driver and CUDA versions that the host reports, and what the service logged about them',
  explains: ['driver-too-old', 'driver-library-mismatch'],
  examine({ observation, verdict }) {
    const { log, probe } = observation;
    const report = probe?.kind === 'answered' ? probe.report : null;
    const shown = [
      ...(report?.driver === null || report === null
        ? []
        : [`CUDA ${report.driver}, as cuDriverGetVersion says`]),
      ...(report?.nvml.driver === null || report === null
        ? []
        : [`driver ${report.nvml.driver}, as NVML says`]),
    ];
    const said = log.reason ?? (log.mode === 'gpu' ? null : log.hint);
    const isOld = said === 'driver-too-old' || said === 'driver-library-mismatch';
    if (!isOld) {
      return shown.length === 0 && log.mode !== 'gpu' ? unknown('no driver answered') : ok(...shown);
    }
    const lines = log.evidence
      .filter(({ kind, text }) => kind === 'log-line' && /\bdriver\b(?!=)/i.test(text))
      .map(({ text }) => text);
    return broken({
      cause:
        said === 'driver-too-old'
          ? `${verdict.profile} needs a newer NVIDIA driver than the one of the host.`
          : 'The driver and its library on the host are of different versions.',
      evidence: [...lines, ...shown],
      remedy: byHand(
        said === 'driver-too-old'
          ? 'update the driver on the host (a simulated GPU: another device profile), restart vgpu-hostd there, then'
          : 'restart the host after its driver update, then',
        `sudo systemctl restart ${verdict.unit}`,
      ),
    });
  },
};
