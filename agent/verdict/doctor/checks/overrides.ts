import { editCommand, isContainer } from '../../../containers/container-unit.js';
import { own } from '../../../lib/own.js';
import { effectiveEnvironment } from '../../../systemd/unit-environment.js';
import { broken, byHand, editUnit, notApplicable, ok, takeOut, warning } from '../finding.js';
import type { Check } from '../types.js';

/** Variables by which a person once sent the service to the CPU, or to another GPU. */
export const overrides: Check = {
  id: 'overrides',
  title: 'no variable keeps the service from the GPU',
  looksAt:
    "the profile's override variables (such as CUDA_VISIBLE_DEVICES) in Environment=, in environment files and in a container",
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
    const fromImage = profile.overrides.filter(({ variable, value }) => {
      const found = set.has(variable) ? undefined : own(facts.look.containerEnvironment, variable);
      return found !== undefined && new RegExp(value, 'u').test(found);
    });
    if (hits.length === 0 && fromImage.length > 0) {
      const names = fromImage.map(({ variable }) => variable);
      return broken({
        cause: `The container of ${unit.name} is configured not to use the GPU, and not by its command: ${fromImage.map(({ why }) => why).join('; ')}.`,
        evidence: names.map(
          (name) =>
            `${name}=${own(facts.look.containerEnvironment, name) ?? ''} [the image of its container, or its compose file]`,
        ),
        remedy: byHand(
          `take ${names.join(' and ')} out of the image (ENV) or of the compose file, or give the container another value with --env, then start it again`,
          `sudo ${editCommand(unit)}`,
        ),
      });
    }
    if (hits.length > 0) {
      return broken({
        cause: `${unit.name} is configured not to use the GPU: ${hits.map(({ rule }) => rule.why).join('; ')}.`,
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
        cause: 'A variable selects a device or library, and may select one that does not exist.',
        evidence: doubtful.map(({ message }) => message),
        remedy: editUnit(facts, 'remove it unless it is intended'),
      });
    }
    return ok();
  },
};
