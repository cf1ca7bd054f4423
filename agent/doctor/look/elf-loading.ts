/** What the dynamic loader reads of a file beside its names: its program interpreter and DF_1_NODEFLIB. */

import type { ElfFacts } from '../../contracts/facts.js';
import { type ElfReading, readElf } from '../../machine/elf/elf.js';
import type { ByteSource } from '../../machine/elf/elf-bytes.js';
import { readDynamicSection, readProgram, segmentInterpreter, tag } from '../../machine/elf/elf-dynamic.js';

export interface LoadingFacts extends ElfFacts {
  /** PT_INTERP: `/lib64/ld-linux-x86-64.so.2`; null for most libraries and for static programs. */
  readonly interpreter: string | null;
  /** DF_1_NODEFLIB (`-z nodefaultlib`): neither default directories nor what the cache has of them. */
  readonly noDefaultDirectories: boolean;
}

const noDefaultFlag = 0x800;
const maxInterpreter = 4096;

export function readLoading(
  source: ByteSource,
): { readonly kind: 'elf'; readonly facts: LoadingFacts } | Extract<ElfReading, { kind: 'problem' }> {
  const elf = readElf(source);
  if (elf.kind === 'problem') return elf;
  const program = readProgram(source);
  if (typeof program === 'string') return { kind: 'problem', reason: program };
  const dynamic = readDynamicSection(program);
  const flags = dynamic === null || typeof dynamic === 'string' ? 0 : (dynamic.values.get(tag.flags1) ?? 0);
  const segment = program.segments.find((one) => one.type === segmentInterpreter);
  const text =
    segment === undefined || segment.fileSize > maxInterpreter
      ? null
      : source.read(segment.offset, segment.fileSize);
  const end = text?.indexOf(0) ?? -1;
  return {
    kind: 'elf',
    facts: {
      ...elf.facts,
      interpreter: text === null || end === -1 ? null : text.toString('utf8', 0, end),
      noDefaultDirectories: (flags & noDefaultFlag) !== 0,
    },
  };
}
