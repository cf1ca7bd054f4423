import { versionFits } from '../../log/grammar.js';
import { broken, fixes, notApplicable, ok, warning } from '../finding.js';
import { repairPlace } from '../places.js';
import type { Check, DoctorFacts } from '../types.js';

/** Versions that open libcuda by absolute path never see one that is only preloaded. */
export const opensByPath: Check = {
  id: 'opens-by-path',
  title: 'what the service opens by path is the shim',
  looksAt:
    'for versions that open libcuda by absolute path (Ollama up to 0.12.3): every place they try, in order',
  explains: ['preload-ignored', 'shim-not-loaded', 'foreign-library-loaded'],
  examine(facts) {
    const { profile, verdict, look, machine } = facts;
    const rule = profile.doctor?.opensByPath;
    if (rule === undefined) return notApplicable('the profile has no rule for it');
    if (!versionFits(rule.versions, verdict.consumerVersion)) {
      const version = verdict.consumerVersion ?? 'of an unknown version';
      return notApplicable(`${profile.name} ${version} asks the loader instead`);
    }
    if (machine.manifest === null) return notApplicable('nothing is installed');
    const found = look.openedByPath;
    const lines = found.map(({ path, realPath, vendor }) => {
      const whose = { vgpu: 'the shim', nvidia: "NVIDIA's", foreign: 'neither of vgpu-agent nor of NVIDIA' };
      return `${path}${realPath === path ? '' : ` (${realPath})`}: ${vendor === null ? 'unreadable' : whose[vendor]}`;
    });
    const [first] = found;
    if (first?.vendor === 'vgpu') return ok(...lines);
    const trouble = {
      cause: `${profile.name} ${verdict.consumerVersion ?? ''} opens libcuda by absolute path, which LD_PRELOAD does not change, and ${
        first === undefined ? 'finds none' : 'finds another before the shim'
      }.`,
      evidence: lines.length > 0 ? lines : [`no libcuda.so* in any of ${rule.directories.length} places`],
      remedy:
        first === undefined
          ? fixes(facts, 'set the links and LD_LIBRARY_PATH again')
          : repairPlace(facts, { path: first.path, ownerOfPath: ownerOf(first.path, facts) }),
    };
    return verdict.mode === 'gpu' ? warning(trouble) : broken(trouble);
  },
};

/** The package it came with, where that is known. */
function ownerOf(file: string, { machine }: DoctorFacts): string | null {
  return machine.candidates.find((candidate) => candidate.path === file)?.ownerOfPath ?? null;
}
