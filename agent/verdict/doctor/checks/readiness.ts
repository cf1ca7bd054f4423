import { choiceOf } from '../../../profile/instance.js';
import { broken, byHand, notApplicable, ok } from '../finding.js';
import type { Check } from '../types.js';

/** It runs, and whether it found the GPU is known only when it answers. */
export const readiness: Check = {
  id: 'readiness',
  title: 'the service answers requests',
  looksAt: 'whether the service answers at its address, in the time that its profile allows',
  explains: ['readiness-timeout'],
  examine({ observation, verdict, profile }) {
    const { readiness: seen, elapsedMs } = observation;
    if (seen.kind === 'unasked') return notApplicable('it was not asked');
    if (seen.kind === 'answered') return ok(`${seen.url} answers`);
    if (verdict.reason !== 'readiness-timeout') return notApplicable('another check says what it waits for');
    return broken({
      cause: `${verdict.unit} runs and does not answer requests: it is still starting, hangs, or listens elsewhere.`,
      evidence: [`${seen.url}: no answer in ${(elapsedMs / 1000).toFixed(1)} s: ${seen.lastError}`],
      remedy: byHand(
        'read its log; if it only needs longer, verify again with a longer timeout',
        `sudo journalctl --unit=${verdict.unit} --lines=50; sudo vgpu-agent verify ${choiceOf(profile)} --timeout 600`,
      ),
    });
  },
};
