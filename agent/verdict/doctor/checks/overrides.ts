import { editCommand, isContainer } from '../../../containers/container-unit.js';
import { own } from '../../../lib/own.js';
import { effectiveEnvironment, overridesOf } from '../../../systemd/unit-environment.js';
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
    const { profile, machine, verdict } = facts;
    const { unit } = machine;
    if (unit.kind !== 'loaded') return notApplicable(`${unit.name} is ${unit.kind}`);
    const found = overridesOf(unit, profile.overrides);
    const set = effectiveEnvironment(unit);
    const { mode, reason } = verdict;
    // One that only may be the cause is it where the verdict says so.
    const hits = found.filter(
      ({ rule }) => rule.scope !== 'doubtful' || (mode !== 'gpu' && rule.reason === reason),
    );
    const fromImage = profile.overrides.filter(({ variable, value, scope }) => {
      const inImage = set.has(variable) ? undefined : own(facts.look.containerEnvironment, variable);
      return scope !== 'doubtful' && inImage !== undefined && new RegExp(value, 'u').test(inImage);
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
        evidence: hits.map(lineOf),
        remedy: takeOut(
          unit,
          hits.map(({ rule, found }) => ({ variable: rule.variable, file: found.file })),
        ),
      });
    }
    if (found.length > 0) {
      return warning({
        cause: 'A variable selects a device or library, and may select one that does not exist.',
        evidence: found.map(lineOf),
        remedy: editUnit(facts, 'remove it unless it is intended'),
      });
    }
    return ok();

    function lineOf({ rule, found: { value, file } }: (typeof found)[number]): string {
      const place = file ?? (isContainer(unit) ? 'the command of its container' : 'Environment=');
      return `${rule.variable}=${value} [${place}]`;
    }
  },
};
