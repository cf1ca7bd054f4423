import { choiceOf } from '../../profile/instance.js';
import { byHand, notApplicable, ok, warning } from '../finding.js';
import type { Check } from '../types.js';

/** A GPU that was passed through to this guest: then the shim stands before it. */
export const realGpu: Check = {
  id: 'real-gpu',
  title: 'the guest has no GPU of its own',
  looksAt:
    "/proc/driver/nvidia/gpus, /dev/nvidia* and /dev/dxg, and what NVIDIA's own libcuda lists, if there is one",
  explains: [],
  examine({ machine, profile }) {
    const { realGpu: found, manifest } = machine;
    if (found.kind === 'none') return ok();
    if (manifest === null) return notApplicable('nothing is installed that could stand before it');
    const evidence = [found.evidence];
    const giveBack = byHand(
      'if it is the one to be used, take the shim away',
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
        'There is a device of a real GPU in this guest, and it does not work. ' +
        'That does not matter to the shim; to use that GPU, repair its driver.',
      evidence,
      remedy: giveBack,
    });
  },
};
