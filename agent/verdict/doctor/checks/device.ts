import type { Reason } from '../../../contracts/verdict.js';
import { choiceOf } from '../../../profile/instance.js';
import { otherDevice, probeTrouble } from '../../diagnosis.js';
import { broken, byHand, ok, onTheHost, unknown } from '../finding.js';
import type { Check, DoctorFacts, Remedy } from '../types.js';

/** Reasons that this check reports; no earlier check knows more about them. */
const causes: Partial<Readonly<Record<Reason, string>>> = {
  'driver-init-failed': 'The service finds a GPU, but cannot start its driver.',
  'compute-capability-unreadable':
    'The service finds a GPU, but cannot read its compute capability, so it does not use it.',
  'context-create-failed':
    'The service finds a GPU, but cannot create a CUDA context on it: the host refuses it, or has no memory left for it.',
  'probe-crashed':
    'A signal ended a process that looked for GPUs; that may happen again when the first model is loaded.',
};

/** The driver was reached, and goes no further. */
export const device: Check = {
  id: 'device',
  title: 'the GPU works in the environment of the service',
  looksAt:
    "how far vgpu-probe gets as the service's user and in its environment, and what the service logged about the device",
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
      const evidence = `vgpu-probe, run as the service: ${met.detail ?? 'it found no working GPU'}`;
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
          "The service uses another GPU than the one that the host offers: the host's GPU has changed since, or the service found one through another library.",
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
      'read the log of vgpu-hostd; VGPU_LOG=stderr shows the log of the library in the guest',
      'journalctl -u vgpu-hostd --lines=50',
    );
  }
  const { invocationId, unit } = facts.verdict;
  const start = invocationId === null ? `--unit=${unit}` : `_SYSTEMD_INVOCATION_ID=${invocationId}`;
  return byHand(
    'read its log before it ended; coredumpctl(1) has the core dump if the system keeps them',
    `sudo journalctl ${start}`,
  );
}

function again({ verdict, profile }: DoctorFacts): Remedy {
  return byHand(
    'start it again',
    `sudo systemctl restart ${verdict.unit} && sudo vgpu-agent verify ${choiceOf(profile)}`,
  );
}
