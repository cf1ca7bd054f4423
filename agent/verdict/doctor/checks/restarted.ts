import { isRunning } from '../../../containers/container-unit.js';
import { outdatedReason, takenAwayFrom } from '../../../install/plan/restart.js';
import { wantedVariables } from '../../../install/plan/unit/drop-in.js';
import { broken, editUnit, fixes, notApplicable, ok } from '../finding.js';
import type { Check } from '../types.js';

/** A program looks for GPUs once, at its start: what was set later does not count for it. */
export const restarted: Check = {
  id: 'restarted',
  title: 'the running service has the present settings',
  looksAt: 'the loader variables and the mapped libraries of its processes against what is installed now',
  explains: ['consumer-not-restarted', 'environment-removed'],
  examine(facts) {
    const { unit, manifest, processes } = facts.machine;
    if (unit.kind !== 'loaded') return notApplicable(`${unit.name} is ${unit.kind}`);
    if (manifest === null) return notApplicable('nothing is installed');
    if (!isRunning(unit)) return notApplicable(`${unit.name} does not run`);
    const variables = wantedVariables(facts.profile, facts.machine, unit);
    const taken = takenAwayFrom(facts.machine, unit, variables);
    if (taken !== null) {
      return broken({
        cause: `A wrapper takes the variables away that ${unit.name} sets. Another restart changes nothing.`,
        evidence: [taken],
        remedy: editUnit(facts, 'have the wrapper keep LD_LIBRARY_PATH and LD_PRELOAD'),
      });
    }
    const old = outdatedReason(facts.machine, unit, variables);
    const main = processes.find(({ pid, namespacePid }) => pid === unit.mainPid || namespacePid === 1);
    if (old === null) {
      return main === undefined ? ok() : ok(`process ${main.pid} (${main.name}) was started with it`);
    }
    return broken({
      cause: `${unit.name} runs with the settings from its start, and these have changed since.`,
      evidence: [old],
      remedy: fixes(facts, 'start it again'),
    });
  },
};
