import { choiceOf } from '../../../profile/instance.js';
import { broken, byHand, ok } from '../finding.js';
import type { Check } from '../types.js';

/** It looked for a GPU, and stopped waiting before one answered. */
export const discoveryTime: Check = {
  id: 'discovery-time',
  title: 'the service had time to find the GPU',
  looksAt: "time-outs of the service's own GPU discovery in its log of this start",
  explains: ['discovery-timeout', 'host-slow'],
  examine({ machine, observation, verdict }) {
    const { log, probe } = observation;
    if (log.mode === 'gpu' || (log.reason ?? log.hint) !== 'discovery-timeout') return ok();
    const lines = log.evidence.filter(({ kind }) => kind === 'log-line').map(({ text }) => text);
    const { answer } = machine.host;
    const now = [
      ...(answer.kind === 'answers' ? [`now the host answers after ${answer.milliseconds} ms`] : []),
      ...(probe?.kind === 'answered' && probe.report.ok
        ? [`now vgpu-probe finds the GPU after ${probe.milliseconds} ms, as the service would`]
        : []),
    ];
    return broken({
      cause: `${verdict.profile} stopped looking for GPUs before one answered. It looks only once, when it starts.`,
      evidence: [...lines, ...now],
      remedy: byHand(
        now.length > 0
          ? 'the host answers in time now: start it again'
          : 'once the host answers, start it again',
        `sudo systemctl restart ${verdict.unit} && sudo vgpu-agent verify ${choiceOf({ name: verdict.profile, unit: verdict.unit })}`,
      ),
    });
  },
};
