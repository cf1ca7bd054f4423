import { choiceOf } from '../../../profile/instance.js';
import { byHand, notApplicable, ok, warning } from '../finding.js';
import type { Check } from '../types.js';

/** A GPU that was passed through to this guest: then the shim takes its place. */
export const realGpu: Check = {
  id: 'real-gpu',
  title: 'the guest has no GPU of its own',
  looksAt:
    "/proc/driver/nvidia/gpus, /dev/nvidia* and /dev/dxg, and what NVIDIA's own libcuda lists, if there is one",
  explains: [],
  examine({ machine, profile }) {
    const { realGpu: found, manifest } = machine;
    if (found.kind === 'none') return ok();
    if (manifest === null) return notApplicable('no shim is installed that could take its place');
    const evidence = [found.evidence];
    const giveBack = byHand(
      'if the service should use that GPU, uninstall the shim',
      `sudo vgpu-agent uninstall ${choiceOf(profile)}`,
    );
    if (found.works) {
      return warning({
        cause: `A real GPU works in this guest, and ${profile.unit} uses the host's instead of it.`,
        evidence,
        remedy: giveBack,
      });
    }
    return warning({
      cause:
        'This guest has a device of a real GPU that does not work. ' +
        'The shim does not need it; to use that GPU, repair its driver.',
      evidence,
      remedy: giveBack,
    });
  },
};
