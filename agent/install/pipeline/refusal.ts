/** A refused plan as the error that ends a command. */

import type { Plan } from '../../contracts/plan.js';
import { VgpuError } from '../../lib/errors.js';

/** All reasons in one message, so that they can be repaired in one go. */
export function refusal(plan: Extract<Plan, { kind: 'refused' }>, operation: string): VgpuError {
  const { refusals } = plan;
  return new VgpuError(refusals.map((one) => one.message).join('\n'), {
    kind: 'refused',
    operation,
    remedy: refusals.map((one) => one.remedy).join('\n'),
  });
}
