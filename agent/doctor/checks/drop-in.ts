import { ourDropIns } from '../../plan/drop-in.js';
import { broken, changeEvidence, fixes, notApplicable, ok, plannedChanges } from '../finding.js';
import type { Check } from '../types.js';

/** The environment that the service is given: its file, and whether systemd has read it. */
export const dropIn: Check = {
  id: 'drop-in',
  title: 'our drop-in is whole and systemd has read it',
  looksAt: "our drop-ins of the unit, byte for byte, and the unit's environment as systemd has it in force",
  explains: [],
  examine(facts) {
    const { unit, manifest, dropIn: file } = facts.machine;
    if (unit.kind !== 'loaded') return notApplicable(`${unit.name} is ${unit.kind}`);
    if (manifest === null) return notApplicable('nothing is installed');
    const paths = ourDropIns(unit.name);
    const planned = plannedChanges(facts);
    const files = planned.filter((change) => 'path' in change && paths.has(change.path));
    if (files.length > 0) {
      const what = file.state.kind === 'absent' ? 'is missing' : 'was changed';
      return broken({
        cause: `The drop-in ${what}: ${unit.name} is not told where the shim is, or not as it has to be.`,
        evidence: files.map(changeEvidence),
        remedy: fixes(facts, 'write it again, let systemd read it and start the service anew'),
      });
    }
    const reload = planned.find((change) => change.kind === 'daemon-reload');
    if (reload !== undefined) {
      const stale = unit.needDaemonReload ? ['NeedDaemonReload=yes'] : [];
      return broken({
        cause: `The drop-in is there, but systemd has not read it: a start of ${unit.name} goes without it.`,
        evidence: [changeEvidence(reload), ...stale],
        remedy: fixes(facts, 'let systemd read it and start the service anew'),
      });
    }
    return ok(`${file.path} is in force`);
  },
};
