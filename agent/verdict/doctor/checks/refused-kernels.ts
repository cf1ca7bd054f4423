import { refusedKernelsText } from '../../present.js';
import { notApplicable, ok, onTheHost, warning } from '../finding.js';
import type { Check } from '../types.js';

/** A request failed although the GPU is there: the host could not run what it needed. */
export const refusedKernels: Check = {
  id: 'refused-kernels',
  title: 'the host can run the kernels of this guest',
  looksAt: "the host's list of this guest's sessions, which names the last kernel that it could not run",
  explains: [],
  examine({ observation }) {
    const { sessions } = observation.present;
    if (sessions.kind !== 'told') return notApplicable('the host does not report it');
    const refused = sessions.refusedKernels;
    if (refused === null) return ok();
    const { program } = refused;
    return warning({
      cause:
        `The host could not run a kernel of ${program}, so that operation failed. A simulated device runs ` +
        'kernels that come as PTX; those of cuBLAS come as code of real GPUs only.',
      evidence: [refusedKernelsText(refused)],
      remedy: onTheHost(
        'see "A real LLM on it" in docs/reference/software-gpu.md for the programs that need such kernels and how to avoid them ' +
          '(weights that are quantised, batches of 16 tokens); the log of vgpu-hostd says why it refused this one',
        "journalctl -u vgpu-hostd -g 'cannot be run here'",
      ),
    });
  },
};
