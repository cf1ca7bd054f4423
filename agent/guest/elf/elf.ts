/**
 * Reads what we must know of an ELF file (System V gABI; elf(5)). The file may
 * be truncated or hostile: every offset, count and length is checked against
 * the file and against a limit before it is used, and a file that does not
 * hold together is an answer (`problem`), never an exception.
 */

import type { ElfFacts } from '../../contracts/facts.js';
import type { ByteSource } from './elf-bytes.js';
import { type ElfProgram, readDynamicSection, readProgram, segmentNote, tag } from './elf-dynamic.js';
import { readProvenance } from './elf-note.js';

export type ElfReading =
  | { readonly kind: 'elf'; readonly facts: ElfFacts }
  /** Why it is no ELF file that a loader could take. */
  | { readonly kind: 'problem'; readonly reason: string };

const machines: Readonly<Record<number, string>> = {
  3: 'i386',
  8: 'mips',
  20: 'ppc',
  21: 'ppc64',
  22: 's390',
  40: 'arm',
  62: 'x86_64',
  183: 'aarch64',
  243: 'riscv',
  258: 'loongarch',
};
const types: Readonly<Record<number, ElfFacts['type']>> = { 1: 'rel', 2: 'exec', 3: 'dyn' };

/** The `class` and `machine` of libraries that a process of this machine (`uname -m`) loads; null if unknown. */
export function nativeElf(architecture: string): Pick<ElfFacts, 'class' | 'machine'> | null {
  switch (architecture) {
    case 'x86_64':
      return { class: 64, machine: 'x86_64' };
    case 'aarch64':
      return { class: 64, machine: 'aarch64' };
    case 'ppc64le':
      return { class: 64, machine: 'ppc64' };
    case 'riscv64':
      return { class: 64, machine: 'riscv' };
    case 's390x':
      return { class: 64, machine: 's390' };
    case 'i386':
    case 'i686':
      return { class: 32, machine: 'i386' };
    case 'armv7l':
      return { class: 32, machine: 'arm' };
    default:
      return null;
  }
}

/** Reads the headers, the dynamic section and the notes; at most a few hundred kilobytes of any file. */
export function readElf(source: ByteSource): ElfReading {
  const program = readProgram(source);
  if (typeof program === 'string') return problem(program);
  const { layout, header, segments } = program;
  const machine = layout.u16(header, 18);
  const dynamic = readNames(program);
  if (typeof dynamic === 'string') return problem(dynamic);

  return {
    kind: 'elf',
    facts: {
      class: layout.is64 ? 64 : 32,
      machine: machines[machine] ?? String(machine),
      type: types[layout.u16(header, 16)] ?? 'other',
      ...dynamic,
      provenance: readProvenance(
        source,
        layout,
        header,
        segments.filter((one) => one.type === segmentNote),
      ),
    },
  };
}

function problem(reason: string): ElfReading {
  return { kind: 'problem', reason };
}

type DynamicFacts = Pick<ElfFacts, 'soname' | 'needed' | 'rpath' | 'runpath'>;

/** The names in the dynamic section, or why they cannot be read. A file without one (static, object) has none. */
function readNames(program: ElfProgram): DynamicFacts | string {
  const none: DynamicFacts = { soname: null, needed: [], rpath: null, runpath: null };
  const dynamic = readDynamicSection(program);
  if (typeof dynamic === 'string') return dynamic;
  if (dynamic === null) return none;
  const { needed, values } = dynamic;
  const wanted = [values.get(tag.soname), values.get(tag.rpath), values.get(tag.runpath)] as const;
  if (needed.length === 0 && wanted.every((one) => one === undefined)) return none;
  const names = [...needed, ...wanted].map((at) => (at === undefined ? null : dynamic.string(at)));
  if (names.includes(undefined)) return 'a name in the dynamic section lies outside its string table';
  const [soname, rpath, runpath] = names.slice(needed.length).map((name) => name ?? null);
  return {
    soname: soname ?? null,
    needed: names.slice(0, needed.length).filter((name) => typeof name === 'string'),
    rpath: rpath ?? null,
    runpath: runpath ?? null,
  };
}
