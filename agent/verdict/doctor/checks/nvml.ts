import { byHand, notApplicable, ok, unknown, warning } from '../finding.js';
import type { Check } from '../types.js';

/** NVML is another library than CUDA, loaded and failing on its own. */
export const nvml: Check = {
  id: 'nvml',
  title: 'NVML works as CUDA does',
  looksAt: 'libnvidia-ml.so.1, called by vgpu-probe in the environment of the unit, separately from libcuda',
  explains: [],
  examine({ machine, observation, look }) {
    if (machine.manifest === null) return notApplicable('nothing is installed');
    const { probe } = observation;
    if (probe?.kind !== 'answered') return unknown('vgpu-probe gave no answer in the unit');
    const { report } = probe;
    if (!report.ok) return notApplicable('CUDA does not work; repair that before NVML');
    if (report.nvml.ok) return ok(`driver ${report.nvml.driver ?? 'unknown'}`);
    const picked = look.loader.processes.flatMap(({ choices }) =>
      choices.flatMap(({ library, outcome }) =>
        library === 'libnvidia-ml.so.1' && outcome.kind === 'found'
          ? [`the loader chooses ${outcome.realPath}, by ${outcome.by}`]
          : [],
      ),
    );
    return warning({
      cause:
        'CUDA works and NVML does not. Programs that ask NVML first (vLLM, nvidia-smi) find no GPU; ' +
        'Ollama works without it, but reads free memory and the driver version from it.',
      evidence: [report.nvml.error ?? 'it gave no reason', ...new Set(picked)],
      remedy: byHand(
        'see which file is loaded for it; if it is not the shim, remove it',
        `ldconfig -p | grep libnvidia-ml; systemctl cat ${machine.unit.name}`,
      ),
    });
  },
};
