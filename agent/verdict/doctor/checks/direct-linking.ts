import path from 'node:path';
import type { ElfFacts } from '../../../contracts/facts.js';
import { libraryOf } from '../../../guest/libraries/candidates.js';
import { broken, editUnit, notApplicable, ok } from '../finding.js';
import type { Check, DoctorFacts } from '../types.js';

interface Binary {
  readonly path: string;
  readonly elf: ElfFacts;
}

/** Programs and libraries that name a driver in a way which no preload and no search path changes. */
export const directLinking: Check = {
  id: 'direct-linking',
  title: 'the service is linked to the driver by its SONAME',
  looksAt:
    "DT_NEEDED of the service's programs and own libraries; a preloaded shim is found by its SONAME, with RTLD_DEEPBIND too",
  explains: ['shim-not-loaded', 'foreign-library-loaded'],
  examine(facts) {
    const binaries = binariesOf(facts);
    if (binaries.length === 0) return notApplicable('none of its programs and libraries could be read');
    const asking = binaries.flatMap(({ path: file, elf }) =>
      elf.needed
        .filter((name) => libraryOf(path.basename(name)) !== null)
        .map((name) => ({ file, name, right: /^lib(?:cuda|nvidia-ml)\.so\.1$/.test(name) })),
    );
    const wrong = asking.filter(({ right }) => !right);
    const fixed = staticMain(facts);
    // A consumer that is on the GPU through the shim all the same is well.
    if ((wrong.length === 0 && fixed === null) || facts.verdict.mode === 'gpu') {
      return ok(...asking.map(({ file, name }) => `${file} needs ${name}`));
    }
    return broken({
      cause:
        fixed === null
          ? 'It is linked to a driver by a path or by another SONAME, so the shim is not used.'
          : 'It is linked statically: no loader reads LD_PRELOAD or LD_LIBRARY_PATH for it.',
      evidence: [
        ...wrong.map(({ file, name }) => `${file}: DT_NEEDED ${name}`),
        ...(fixed === null ? [] : [`${fixed} has no DT_NEEDED at all`]),
      ],
      remedy: editUnit(facts, 'use a build that is linked dynamically, with libcuda.so.1'),
    });
  },
};

function binariesOf({ look }: DoctorFacts): readonly Binary[] {
  return [...look.executables, ...look.consumer.libraries].flatMap(({ path: file, elf }) =>
    elf === null ? [] : [{ path: file, elf }],
  );
}

/** The one program of the service when it is static; where it has dynamic ones too, those do the work. */
function staticMain({ look }: DoctorFacts): string | null {
  const known = look.executables.flatMap(({ path: file, elf }) => (elf === null ? [] : [{ file, elf }]));
  const isStatic = known.length > 0 && known.every(({ elf }) => elf.needed.length === 0);
  return isStatic ? (known[0]?.file ?? null) : null;
}
