import { containerOf } from '../../../containers/container-unit.js';
import { wantedVariables } from '../../../install/plan/unit/drop-in.js';
import { broken, byHand, editUnit, notApplicable, ok } from '../finding.js';
import type { Check } from '../types.js';

/** The drop-in says it, and something else of the unit takes it away again. */
export const environment: Check = {
  id: 'environment',
  title: 'no setting overrides the drop-in of vgpu-agent',
  looksAt:
    "UnsetEnvironment=, environment files and later drop-ins of the unit that set or clear the loader's variables",
  explains: ['consumer-not-restarted', 'shim-not-loaded', 'foreign-library-loaded'],
  examine(facts) {
    const { machine, profile } = facts;
    const { unit } = machine;
    if (unit.kind !== 'loaded') return notApplicable(`${unit.name} is ${unit.kind}`);
    if (machine.manifest === null) return notApplicable('nothing is installed');
    if (containerOf(unit) !== null) return notApplicable('a container gets the GPU without variables');
    const taken = wantedVariables(profile, machine, unit).flatMap(({ name, overridden }) =>
      overridden === null ? [] : [{ name, overridden }],
    );
    const [first] = taken;
    if (first === undefined) return ok();
    const isFile = first.overridden.startsWith('/');
    const settings = taken
      .filter(({ overridden }) => !overridden.startsWith('/'))
      .map(({ overridden }) => overridden.replace(' of the unit', ''));
    return broken({
      cause: 'The service does not get the variables by which the loader finds the shim.',
      evidence: taken.map(({ name, overridden }) => `${overridden} overrides the ${name} of vgpu-agent`),
      remedy: isFile
        ? byHand(
            `take ${first.name} out of that file, then start the service again`,
            `sudoedit ${first.overridden} && sudo systemctl restart ${unit.name}`,
          )
        : editUnit(facts, `take ${settings.join(' and ')} out`),
    });
  },
};
