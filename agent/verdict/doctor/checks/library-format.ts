import type { LibraryCandidate } from '../../../contracts/facts.js';
import { nativeElf } from '../../../guest/elf/elf.js';
import { broken, notApplicable, ok } from '../finding.js';
import { consumerCandidates, leadsToStore, publicCandidates, repairPlace, whereFound } from '../places.js';
import type { Check, DoctorFacts } from '../types.js';

/** A file under a driver's name that the loader cannot take, or takes for another. */
export const libraryFormat: Check = {
  id: 'library-format',
  title: 'files named like the driver can be loaded',
  looksAt:
    "class, machine and SONAME of every libcuda and libnvidia-ml in the public and the service's directories",
  explains: ['library-not-found'],
  examine(facts) {
    const places = [...publicCandidates(facts), ...consumerCandidates(facts)];
    const found = places.filter((one) => one.resolution.kind === 'file' && !leadsToStore(one));
    if (found.length === 0) return notApplicable('only the shim has such a name');
    const bad = found.flatMap((candidate) => {
      const what = formatProblem(candidate, facts);
      return what === null ? [] : [{ candidate, what }];
    });
    const [first] = bad;
    if (first === undefined) return ok(`${found.length} inspected`);
    return broken({
      cause:
        'A program that looks for the CUDA driver there gets a file that the loader refuses, or that has the name of another library.',
      evidence: bad.map(({ candidate, what }) => `${whereFound(candidate)} ${what}`),
      remedy: repairPlace(facts, first.candidate),
    });
  },
};

/** A predicate without a full stop; null when the loader takes it under that name. */
function formatProblem(
  { elf, elfProblem, library }: LibraryCandidate,
  { machine }: DoctorFacts,
): string | null {
  if (elf === null)
    return elfProblem === null || elfProblem === undefined ? null : `is not a library: ${elfProblem}`;
  if (elf.type !== 'dyn') return `is not a shared library (ELF type ${elf.type})`;
  const native = nativeElf(machine.distribution.architecture);
  if (native !== null && (native.class !== elf.class || native.machine !== elf.machine)) {
    return `is for ${elf.class}-bit ${elf.machine}; this machine loads ${native.class}-bit ${native.machine} (wrong ELF class)`;
  }
  const soname = `${library}.so.1`;
  if (elf.soname === soname) return null;
  return elf.soname === null
    ? `has no SONAME; the loader finds it by name only with the SONAME ${soname}`
    : `has the SONAME ${elf.soname}, not ${soname}`;
}
