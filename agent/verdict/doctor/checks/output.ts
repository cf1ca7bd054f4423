import { journalBypass } from '../../diagnosis.js';
import { broken, editUnit, notApplicable, ok, warning } from '../finding.js';
import type { Check } from '../types.js';

/** Output that does not reach the journal cannot be evidence. */
export const output: Check = {
  id: 'output',
  title: 'the log of the service reaches the journal',
  looksAt: 'StandardOutput= and StandardError= of the unit, and whether the journal could be read',
  explains: ['output-bypasses-journal', 'journal-unavailable', 'no-discovery-line'],
  examine(facts) {
    const { machine, observation, verdict } = facts;
    const { unit } = machine;
    if (unit.kind !== 'loaded') return notApplicable(`${unit.name} is ${unit.kind}`);
    const bypass = journalBypass(unit);
    if (bypass !== null) {
      const remedy = editUnit(
        facts,
        'under [Service] write StandardOutput=journal and StandardError=journal',
      );
      if (observation.logFile === null && verdict.mode === 'undetermined') {
        return broken({
          cause: `It is not known where it runs: ${unit.name} does not write to the journal.`,
          evidence: [bypass],
          remedy,
        });
      }
      return warning({
        cause: `${unit.name} does not write to the journal; lines of this start may be missed.`,
        evidence: observation.logFile === null ? [bypass] : [bypass, `read instead: ${observation.logFile}`],
        remedy,
      });
    }
    if (observation.journalError !== null) {
      return broken({
        cause: 'The journal cannot be read, so the log of the service is not known.',
        evidence: [observation.journalError],
        remedy: {
          text: 'see why',
          command: 'systemctl status systemd-journald',
          where: 'guest',
          fix: false,
        },
      });
    }
    return ok(`${observation.log.entries} entries of this start`);
  },
};
