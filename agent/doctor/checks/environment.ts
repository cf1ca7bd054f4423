import { broken, byHand, notApplicable, ok } from '../finding.js';
import type { Check } from '../types.js';

/** The drop-in says it, and something else of the unit takes it away again. */
export const environment: Check = {
  id: 'environment',
  title: 'nothing overrides what our drop-in sets',
  looksAt:
    "UnsetEnvironment=, environment files and later drop-ins of the unit that set or clear the loader's variables",
  explains: [],
  examine({ machine, plan }) {
    if (machine.unit.kind !== 'loaded') return notApplicable(`${machine.unit.name} is ${machine.unit.kind}`);
    const taken = plan.warnings.filter(({ code }) => code === 'environment-overridden');
    const [first] = taken;
    if (first === undefined) return ok();
    return broken({
      cause: 'The service does not get the variables that lead the loader to the shim.',
      evidence: taken.map(({ message }) => message),
      remedy: byHand(first.remedy ?? 'take it out', `systemctl cat ${machine.unit.name}`),
    });
  },
};
