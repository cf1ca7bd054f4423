import { effectiveEnvironment } from '../../plan/unit/environment.js';
import { isContainer } from '../../systemd/container-unit.js';
import { broken, editUnit, notApplicable, ok, takeOut, warning } from '../finding.js';
import type { Check } from '../types.js';

/** Variables by which a person once sent the service to the CPU, or to another GPU. */
export const overrides: Check = {
  id: 'overrides',
  title: 'no variable keeps the service from the GPU',
  looksAt:
    "the profile's override variables (CUDA_VISIBLE_DEVICES and the like) in Environment= and in environment files",
  explains: ['devices-hidden-by-environment', 'library-forced-to-cpu', 'not-cuda'],
  examine(facts) {
    const { profile, machine, plan } = facts;
    const { unit } = machine;
    if (unit.kind !== 'loaded') return notApplicable(`${unit.name} is ${unit.kind}`);
    const set = effectiveEnvironment(unit);
    const hits = profile.overrides.flatMap((rule) => {
      const found = set.get(rule.variable);
      if (found === undefined || !new RegExp(rule.value, 'u').test(found.value)) return [];
      return [{ rule, found }];
    });
    if (hits.length > 0) {
      return broken({
        cause: `${unit.name} is told to leave the GPU alone: ${hits.map(({ rule }) => rule.why).join('; ')}.`,
        evidence: hits.map(
          ({ rule, found }) =>
            `${rule.variable}=${found.value} [${found.file ?? (isContainer(unit) ? 'the command of its container' : 'Environment=')}]`,
        ),
        remedy: takeOut(
          unit,
          hits.map(({ rule, found }) => ({ variable: rule.variable, file: found.file })),
        ),
      });
    }
    const doubtful = plan.warnings.filter(
      ({ code }) => code === 'devices-hidden-by-environment' || code === 'library-forced',
    );
    if (doubtful.length > 0) {
      return warning({
        cause: 'A variable chooses among devices or libraries, and may choose one that is not there.',
        evidence: doubtful.map(({ message }) => message),
        remedy: editUnit(facts, 'take it out unless it is meant'),
      });
    }
    return ok();
  },
};
