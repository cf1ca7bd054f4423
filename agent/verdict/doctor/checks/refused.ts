import { broken, byHand, ok } from '../finding.js';
import type { Check } from '../types.js';

/** An obstacle to vgpu-agent: nothing can be repaired until it is removed. */
export const refused: Check = {
  id: 'refused',
  title: 'nothing prevents an install',
  looksAt:
    'reasons for which install refuses to change anything: the service, the architecture, other files at the paths that it needs',
  explains: [],
  examine({ plan }) {
    if (plan.kind === 'ready') return ok();
    const [first] = plan.refusals;
    return broken({
      cause: 'vgpu-agent can neither install nor repair anything here until this is resolved.',
      evidence: plan.refusals.map(({ message }) => message),
      remedy: byHand(
        `${first?.remedy ?? 'settle it'}; then see whether anything else prevents it`,
        'sudo vgpu-agent plan',
      ),
    });
  },
};
