import { storeRoot } from '../../../lib/paths.js';
import { broken, changeEvidence, fixes, notApplicable, ok, plannedChanges } from '../finding.js';
import { publicCandidates } from '../places.js';
import type { Check } from '../types.js';

/** `/usr/lib/.../libcuda.so.1` and its like: missing, dangling, or leading elsewhere. */
export const publicLinks: Check = {
  id: 'public-links',
  title: 'public links lead to the shim',
  looksAt:
    "the profile's public directories, every link followed to its end, Debian's alternatives among them",
  explains: ['library-not-found'],
  examine(facts) {
    if (facts.machine.manifest === null) return notApplicable('nothing is installed');
    const planned = plannedChanges(facts).filter(
      (change) =>
        change.kind === 'alternative' ||
        (change.kind === 'write-link' && !change.path.startsWith(`${storeRoot}/`)),
    );
    if (planned.length === 0) {
      const leading = publicCandidates(facts).filter(({ vendor }) => vendor === 'vgpu');
      return ok(...leading.map((candidate) => `${candidate.path} leads to the shim`));
    }
    return broken({
      cause:
        'A program that looks for the CUDA driver in the usual directories does not find the shim there.',
      evidence: planned.map(changeEvidence),
      remedy: fixes(facts, 'set the links again'),
    });
  },
};
