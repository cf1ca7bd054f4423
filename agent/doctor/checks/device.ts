import { otherDevice, probeTrouble } from '../../confirm/diagnosis.js';
import type { Reason } from '../../contracts/verdict.js';
import { choiceOf } from '../../profile/instance.js';
import { broken, byHand, ok, onTheHost, unknown } from '../finding.js';
import type { Check, DoctorFacts, Remedy } from '../types.js';

/** What is told here, and no check before this one knows more of. */
const causes: Partial<Readonly<Record<Reason, string>>> = {
  'driver-init-failed': 'A GPU is offered, and its driver cannot be started.',
  'compute-capability-unreadable':
    'A GPU is offered, and the service cannot read its compute capability, so it does without.',
  'context-create-failed':
    'A GPU is there, and no CUDA context can be made on it: the host refuses it, or has no memory left for it.',
  'probe-crashed':
    'A process that looked for GPUs was ended by a signal; that may happen again at the first model.',
};

/** The driver was reached, and goes no further. */
export const device: Check = {
  id: 'device',
  title: 'the GPU works where the service would use it',
  looksAt:
    'how far vgpu-probe comes as the user of the service and in its environment, and what the service says of the device',
  explains: [
    'driver-init-failed',
    'compute-capability-unreadable',
    'context-create-failed',
    'probe-crashed',
    'probe-disagrees',
  ],
  examine(facts) {
    const { observation } = facts;
    const { log, probe } = observation;
    const met = probeTrouble(probe);
    const cause = met === null ? undefined : causes[met.reason];
    if (met !== null && cause !== undefined) {
      const evidence = `vgpu-probe, in place of the service: ${met.detail ?? 'it found no working GPU'}`;
      return broken({ cause, evidence: [evidence], remedy: remedyOf(met.reason, facts) });
    }
    const own = log.mode === 'gpu' ? null : log.reason;
    const said = own === null ? undefined : causes[own];
    // An init that failed once and goes well now is the order of the start.
    const over = own === 'driver-init-failed' && probe?.kind === 'answered' && probe.report.ok;
    if (own !== null && said !== undefined && !over) {
      const lines = log.evidence.filter(({ kind }) => kind === 'log-line').map(({ text }) => text);
      return broken({ cause: said, evidence: lines, remedy: remedyOf(own, facts) });
    }
    const other = met === null ? otherDevice(observation) : null;
    if (other !== null) {
      return broken({
        cause:
          'The service uses another GPU than the host gives: the host has another one since, or the service found its own through another library.',
        evidence: [other.detail ?? ''],
        remedy: again(facts),
      });
    }
    if (probe?.kind === 'not-run') return unknown('vgpu-probe could not be run', probe.message);
    return ok();
  },
};

function remedyOf(reason: Reason, facts: DoctorFacts): Remedy {
  if (reason !== 'probe-crashed') {
    return onTheHost(
      'see what vgpu-hostd says of it; the library in the guest says its part with VGPU_LOG=stderr',
      'journalctl -u vgpu-hostd --lines=50',
    );
  }
  const { invocationId, unit } = facts.verdict;
  const start = invocationId === null ? `--unit=${unit}` : `_SYSTEMD_INVOCATION_ID=${invocationId}`;
  return byHand(
    'read what it said before it ended; coredumpctl(1) has the process, if cores are kept',
    `sudo journalctl ${start}`,
  );
}

function again({ verdict, profile }: DoctorFacts): Remedy {
  return byHand(
    'start it again',
    `sudo systemctl restart ${verdict.unit} && sudo vgpu-agent verify ${choiceOf(profile)}`,
  );
}
