import { manifestFile } from '../../paths.js';
import { broken, byHand, ok } from '../finding.js';
import type { Check } from '../types.js';

/** Is anything of ours here at all, and for this service? */
export const installed: Check = {
  id: 'installed',
  title: 'vgpu-agent is installed for this service',
  looksAt: `the manifest ${manifestFile}`,
  explains: [],
  examine({ machine, profile }) {
    const { manifest } = machine;
    const install = `sudo vgpu-agent install --profile ${profile.name}`;
    if (manifest === null) {
      return broken({
        cause: `Nothing of vgpu-agent is installed here, so ${profile.unit} has no GPU from the host.`,
        evidence: [`${manifestFile} does not exist`],
        remedy: byHand('install it', install),
      });
    }
    const named = `${manifestFile}: profile ${manifest.profile}, unit ${manifest.unit}`;
    if (machine.dropIn.state.kind === 'absent' && manifest.unit !== profile.unit) {
      return broken({
        cause: `vgpu-agent is installed for ${manifest.unit}, not for ${profile.unit}.`,
        evidence: [named],
        remedy: byHand('install it for this one too', install),
      });
    }
    return ok(named);
  },
};
