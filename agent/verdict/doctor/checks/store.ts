import { kindOf } from '../../../contracts/path-state.js';
import { storeCurrent, storeVersions } from '../../../lib/paths.js';
import { broken, changeEvidence, fixes, notApplicable, ok, plannedChanges } from '../finding.js';
import type { Check } from '../types.js';

/** The libraries themselves: every byte as it was installed, and the link that everything installed goes through. */
export const store: Check = {
  id: 'store',
  title: "the shim's files are as they were installed",
  looksAt: `every file in ${storeVersions}/ against the hash in the name of its directory, and ${storeCurrent}`,
  // A mapping of a file that was changed is no longer recognized as ours.
  explains: [
    'foreign-library-loaded',
    'library-not-found',
    'library-symbol-missing',
    'preload-ignored',
    'shim-not-loaded',
    'no-session',
    // A library that is cut short ends every program that the loader gives it to.
    'unit-failed',
    'unit-restarting',
    'probe-crashed',
  ],
  examine(facts) {
    const { machine, look } = facts;
    const { store: found, manifest } = machine;
    if (manifest === null) return notApplicable('nothing is installed');
    const id = found.current.kind === 'link' ? found.current.target.replace(/^versions\//, '') : null;
    const version = found.versions.find((one) => one.id === id);
    if (id !== null && version?.intact === true) {
      return ok(`${storeCurrent} -> versions/${id}, all files intact`);
    }
    const seen =
      found.current.kind !== 'link'
        ? `${storeCurrent} is ${kindOf(found.current)}`
        : version === undefined
          ? `${storeCurrent} -> ${found.current.target}, which is not there`
          : `${storeVersions}/${id}: files are missing, changed or truncated`;
    const planned = plannedChanges(facts).filter(
      (change) => change.kind === 'store' || ('path' in change && change.path === storeCurrent),
    );
    return broken({
      cause:
        'Files of the shim are not as they were installed, so programs cannot load it, or load other code.',
      evidence: [
        seen,
        ...(id === machine.shim.id ? (look.storeDamage ?? []) : []),
        ...planned.map(changeEvidence),
      ],
      remedy: fixes(facts, 'write them again from the package'),
    });
  },
};
