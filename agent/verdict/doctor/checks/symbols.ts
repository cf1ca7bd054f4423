import { plural } from '../../../lib/text.js';
import { broken, byHand, notApplicable, ok, warning } from '../finding.js';
import type { Check } from '../types.js';

const shown = 10;

/** A library that lacks one function is not loaded at all. */
export const symbols: Check = {
  id: 'symbols',
  title: 'the shim has every function that the service needs',
  looksAt:
    "the functions of the driver and of NVML that the service's own libraries need at load time, with their versions, against what the shim exports",
  explains: ['library-symbol-missing'],
  examine({ machine, look }) {
    if (machine.manifest === null) return notApplicable('nothing is installed');
    const { symbols: needs } = look;
    if (needs.length === 0) return notApplicable('none of its own libraries needs the driver at load time');
    const lacking = needs.filter(({ missing }) => missing.length > 0);
    if (lacking.length === 0) {
      return ok(...needs.map(({ path, needed }) => `${path}: ${plural(needed, 'function')}, all there`));
    }
    const all = lacking.length === needs.length;
    const trouble = {
      cause:
        `The loader refuses ${lacking.map(({ path }) => path).join(', ')}: ` +
        `the shim ${machine.shim.version} does not have what it needs.` +
        (all ? '' : ' It will use its other libraries, which can be loaded.'),
      evidence: lacking.map(({ path, missing }) => {
        const rest = missing.length > shown ? `, and ${missing.length - shown} more` : '';
        return `${path} needs ${missing.slice(0, shown).join(', ')}${rest}`;
      }),
      remedy: byHand(
        'install a newer vgpu-agent; until there is one, a former release of the service',
        'vgpu-agent version',
      ),
    };
    return all ? broken(trouble) : warning(trouble);
  },
};
