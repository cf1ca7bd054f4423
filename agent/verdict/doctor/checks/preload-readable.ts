import type { PreloadEntry } from '../../../guest/look/preload.js';
import { storeRoot } from '../../../lib/paths.js';
import { broken, byHand, editUnit, fixes, notApplicable, ok } from '../finding.js';
import type { Check, DoctorFacts, Remedy } from '../types.js';

/** LD_PRELOAD names it, but the service's user cannot load it: the loader prints a line and goes on without. */
export const preloadReadable: Check = {
  id: 'preload-readable',
  title: "the service's user can load preloaded libraries",
  looksAt:
    "every entry of the unit's LD_PRELOAD, and vgpu-agent's of LD_LIBRARY_PATH, opened as the service's user",
  explains: ['preload-ignored', 'library-not-found'],
  examine(facts) {
    const { preload } = facts.look;
    if (preload.length === 0) return notApplicable('the unit preloads nothing');
    const bad = preload.filter(({ check }) => check.kind !== 'loadable');
    const [first] = bad;
    if (first === undefined) return ok(...preload.map(({ text }) => text));
    return broken({
      cause: `The loader ignores libraries that it cannot open, and ${facts.profile.unit} starts without them.`,
      evidence: bad.map(({ variable, text }) => `${variable}: ${text}`),
      remedy: remedyFor(first, facts),
    });
  },
};

function remedyFor({ entry, check, variable }: PreloadEntry, facts: DoctorFacts): Remedy {
  const restart = `sudo systemctl restart ${facts.profile.unit}`;
  const isOurs = entry === storeRoot || entry.startsWith(`${storeRoot}/`);
  switch (check.kind) {
    case 'unreadable':
      return byHand(
        'let every user read it, and restart the service',
        `sudo chmod a+rX ${check.blockedAt} && ${restart}`,
      );
    case 'noexec':
      return byHand(
        'mount it without noexec, and restart the service',
        `sudo mount -o remount,exec ${check.mount} && ${restart}`,
      );
    case 'missing':
    case 'not-a-library':
    case 'wrong-architecture':
    case 'loadable':
      return isOurs
        ? fixes(facts, 'write it again from the package')
        : editUnit(facts, `take ${entry} out of ${variable}`);
  }
}
