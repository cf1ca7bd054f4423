import type { LoadedUnit } from '../../machine/types.js';
import { environmentFileVariables } from '../../plan/unit-environment.js';
import { broken, editUnit, notApplicable, ok, warning } from '../finding.js';
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
    const set = environmentOf(unit);
    const hits = profile.overrides.flatMap((rule) => {
      const found = set.get(rule.variable);
      if (found === undefined || !new RegExp(rule.value, 'u').test(found.value)) return [];
      return [{ rule, found }];
    });
    if (hits.length > 0) {
      const names = [...new Set(hits.map(({ rule }) => rule.variable))].join(' and ');
      return broken({
        cause: `${unit.name} is told to leave the GPU alone: ${hits.map(({ rule }) => rule.why).join('; ')}.`,
        evidence: hits.map(({ rule, found }) => `${rule.variable}=${found.value} [${found.from}]`),
        remedy: editUnit(facts, `take ${names} out${fileHint(hits.map(({ found }) => found.from))}`),
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

interface Assigned {
  readonly value: string;
  readonly from: string;
}

/** Files win over Environment=, later ones over earlier ones. */
function environmentOf(unit: LoadedUnit): ReadonlyMap<string, Assigned> {
  const set = new Map<string, Assigned>();
  for (const [name, value] of Object.entries(unit.environment))
    set.set(name, { value, from: 'Environment=' });
  for (const file of unit.environmentFileContents ?? []) {
    for (const [name, value] of environmentFileVariables(file.content))
      set.set(name, { value, from: file.path });
  }
  return set;
}

function fileHint(from: readonly string[]): string {
  const files = [...new Set(from.filter((one) => one.startsWith('/')))];
  return files.length === 0 ? '' : ` of ${files.join(' and ')}`;
}
