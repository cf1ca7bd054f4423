import { isRunning } from '../../../containers/container-unit.js';
import { agentUnit } from '../../../lib/paths.js';
import { choiceOf } from '../../../profile/instance.js';
import { broken, byHand, notApplicable, ok } from '../finding.js';
import type { Check } from '../types.js';

/** After a boot, or after the host was away: it looked when there was nothing to find. */
export const startOrder: Check = {
  id: 'start-order',
  title: 'the GPU was available when the service started',
  looksAt: 'what the service logged at its start, compared with what vgpu-probe finds now in its environment',
  // Any other broken check is the likelier cause: this one comes first only when it is alone.
  explains: [],
  examine({ machine, observation, verdict }) {
    const { log, probe, unit } = observation;
    if (machine.manifest === null) return notApplicable('nothing is installed');
    if (unit.kind !== 'loaded' || !isRunning(unit)) return notApplicable(`${verdict.unit} does not run`);
    // When the service logged its own reason, the check for that reason reports it.
    const vague = log.reason === null || log.reason === 'no-device' || log.reason === 'driver-init-failed';
    if (log.mode !== 'cpu') return ok();
    if (!vague) return notApplicable('the service logged another reason');
    if (probe?.kind !== 'answered' || !probe.report.ok) return notApplicable('no GPU answers now either');
    const lines = log.evidence.filter(({ kind }) => kind === 'log-line').map(({ text }) => text);
    const guarded = machine.service?.activeState === 'active';
    return broken({
      cause:
        `A GPU answers now, and ${verdict.profile} found none when it started: ` +
        'it started before the host or the shim was available. It looks only once.',
      evidence: [
        ...lines,
        `now vgpu-probe finds ${probe.report.devices[0]?.name ?? 'a device'}, as its user and in its unit`,
        ...(guarded ? [] : [`${agentUnit} does not run; it would have restarted it`]),
      ],
      remedy: byHand(
        guarded
          ? 'start it again'
          : 'start it again; vgpu-agent install --service sets the order at boot and does this automatically',
        `sudo systemctl restart ${verdict.unit} && sudo vgpu-agent verify ${choiceOf({ name: verdict.profile, unit: verdict.unit })}`,
      ),
    });
  },
};
