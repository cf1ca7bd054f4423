import { findConsumer } from '../../../install/plan/consumers.js';
import { manifestFile } from '../../../lib/paths.js';
import { choiceOf } from '../../../profile/instance.js';
import { broken, byHand, ok } from '../finding.js';
import type { Check } from '../types.js';

/** Is anything installed here at all, and for this service? */
export const installed: Check = {
  id: 'installed',
  title: 'vgpu-agent is installed for this service',
  looksAt: `the manifest ${manifestFile}`,
  explains: [],
  examine({ machine, profile }) {
    const { manifest } = machine;
    const install = `sudo vgpu-agent install ${choiceOf(profile)}`;
    if (manifest === null) {
      return broken({
        cause: `Nothing of vgpu-agent is installed here, so ${profile.unit} has no GPU from the host.`,
        evidence: [`${manifestFile} does not exist`],
        remedy: byHand('install it', install),
      });
    }
    const known = findConsumer(manifest, profile.unit);
    const list = (known === undefined ? manifest.consumers : [known]).map(
      (one) => `profile ${one.profile}, unit ${one.unit}`,
    );
    const named = `${manifestFile}: ${list.join('; ')}`;
    if (known === undefined) {
      const units = manifest.consumers.map((one) => one.unit).join(' and ');
      return broken({
        cause: `vgpu-agent is installed for ${units}, not for ${profile.unit}.`,
        evidence: [named],
        remedy: byHand('install it for this one too', install),
      });
    }
    return ok(named);
  },
};
