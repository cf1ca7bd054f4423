import { broken, byHand, ok } from '../finding.js';
import type { Check } from '../types.js';

/** What blocks vgpu-agent: nothing can be repaired until it is gone. */
export const refused: Check = {
  id: 'refused',
  title: 'nothing is in the way of an install',
  looksAt:
    'why install would refuse to change anything: the service, the architecture, things in the place of its files',
  explains: [],
  examine({ plan }) {
    if (plan.kind === 'ready') return ok();
    const [first] = plan.refusals;
    return broken({
      cause: 'vgpu-agent can neither install nor repair anything here until this is settled.',
      evidence: plan.refusals.map(({ message }) => message),
      remedy: byHand(
        `${first?.remedy ?? 'settle it'}; then see whether that was all`,
        'sudo vgpu-agent plan',
      ),
    });
  },
};
