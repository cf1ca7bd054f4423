import { isContainer } from '../../../containers/container-unit.js';
import { isLibcuda, isOurLibrary, libcudaPaths, mappedBy } from '../../maps.js';
import type { SeenProcess } from '../../observation.js';
import { broken, fixes, notApplicable, ok, shimFirst, unknown } from '../finding.js';
import type { Check } from '../types.js';

/** The library that the processes have loaded, which may differ from the one that they should load. */
export const loadedLibrary: Check = {
  id: 'loaded-library',
  title: 'its processes have loaded the shim, and no other',
  looksAt: 'every libcuda in /proc/PID/maps of its processes, and its vendor by content',
  explains: ['foreign-library-loaded', 'consumer-not-restarted', 'shim-not-loaded', 'no-session'],
  examine(facts) {
    const { processes } = facts.observation;
    if (facts.machine.manifest === null) return notApplicable('nothing is installed');
    if (processes.length === 0) return notApplicable('no process of the service was found');
    const mapped = processes.map((one) => ({ one, mapped: mappedBy(one.facts) }));
    const lines = mapped.filter(({ one }) => one.facts.libraries.length > 0).map(({ one }) => lineOf(one));
    const other = mapped.filter(({ one }) => hasOther(one));
    const stale = mapped.filter((each) => each.mapped === 'stale');
    if (other.length > 0) {
      return broken({
        cause: 'It computes through a driver that does not use the host.',
        evidence: other.map(({ one }) => lineOf(one)),
        remedy: isContainer(facts.machine.unit)
          ? shimFirst(facts)
          : fixes(facts, 'put the shim before it and restart the service'),
      });
    }
    if (stale.length > 0) {
      return broken({
        cause: 'It still runs with a shim that has been replaced or removed since it started.',
        evidence: stale.map(({ one }) => lineOf(one)),
        remedy: fixes(facts, 'start it again'),
      });
    }
    if (mapped.every((each) => each.mapped === 'unknown')) {
      return unknown('the maps of its processes could not be read');
    }
    // None at all is no fault by itself: children are gone soon after they have looked.
    return ok(...(lines.length > 0 ? lines : ['none of them has a libcuda loaded now']));
  },
};

/** Another library; the store's own check reports a changed file of the store. */
function hasOther({ facts }: SeenProcess): boolean {
  return facts.libraries.some(
    ({ path, vendor }) =>
      isLibcuda(path) && (vendor === 'nvidia' || vendor === 'foreign') && !isOurLibrary(path, false),
  );
}

function lineOf({ facts }: SeenProcess): string {
  const whose = { vgpu: 'the shim', nvidia: "NVIDIA's", foreign: 'neither of vgpu-agent nor of NVIDIA' };
  const kinds = new Set(
    facts.libraries
      .filter(({ path }) => isLibcuda(path))
      .map(({ vendor }) => (vendor === null ? 'unreadable' : whose[vendor])),
  );
  return `process ${facts.pid} (${facts.name}): ${libcudaPaths(facts)}, ${[...kinds].join(' and ')}`;
}
