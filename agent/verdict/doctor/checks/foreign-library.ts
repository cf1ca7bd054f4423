import type { LibraryCandidate } from '../../../contracts/facts.js';
import { broken, notApplicable, ok, warning } from '../finding.js';
import { consumerCandidates, leadsToStore, publicCandidates, repairPlace, whereFound } from '../places.js';
import type { Check, DoctorFacts } from '../types.js';

/** Another driver where the shim is looked for: NVIDIA's without a GPU, or an unknown one. */
export const foreignLibrary: Check = {
  id: 'foreign-library',
  title: 'no other driver is found in place of the shim',
  looksAt:
    'the vendor of each libcuda and libnvidia-ml in the public directories and those of the service, by content',
  explains: ['foreign-library-loaded'],
  examine(facts) {
    if (facts.machine.manifest === null) return notApplicable('nothing is installed');
    const inPublic = publicCandidates(facts).filter(isForeign);
    const inConsumer = consumerCandidates(facts).filter(isForeign);
    const [first] = [...inPublic, ...inConsumer];
    if (first === undefined) return ok();
    const trouble = {
      cause:
        inPublic.length > 0
          ? 'A program that looks for the CUDA driver there gets that library, which does not use the host.'
          : `${facts.profile.name}'s own directories are searched first for its child processes, and hold a driver that does not use the host.`,
      evidence: [...inPublic, ...inConsumer].map((candidate) => describe(candidate, facts)),
      remedy: repairPlace(facts, first),
    };
    // A preloaded shim wins over what only lies in a directory: then GPU mode stands for now.
    return inPublic.length === 0 && facts.verdict.mode === 'gpu' ? warning(trouble) : broken(trouble);
  },
};

function isForeign(candidate: LibraryCandidate): boolean {
  return (candidate.vendor === 'nvidia' || candidate.vendor === 'foreign') && !leadsToStore(candidate);
}

function describe(candidate: LibraryCandidate, { machine }: DoctorFacts): string {
  const noGpu = machine.realGpu.kind === 'none' ? ', which finds no GPU in this machine' : '';
  const whose =
    candidate.vendor === 'nvidia' ? `NVIDIA's library${noGpu}` : 'neither of vgpu-agent nor of NVIDIA';
  const owner = candidate.ownerOfFile === null ? '' : ` (package ${candidate.ownerOfFile})`;
  return `${whereFound(candidate)} is ${whose}${owner}`;
}
