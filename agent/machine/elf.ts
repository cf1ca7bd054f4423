/**
 * Reads what we must know of an ELF file (System V gABI; elf(5)). The file may
 * be truncated or hostile: every offset, count and length is checked against
 * the file and against a limit before it is used, and a file that does not
 * hold together is an answer (`problem`), never an exception.
 */
import { type ByteSource, Layout } from './elf-bytes.js';
import { readProvenance } from './elf-note.js';
import type { ElfFacts } from './types.js';

export type ElfReading =
  | { readonly kind: 'elf'; readonly facts: ElfFacts }
  /** Why it is no ELF file that a loader could take. */
  | { readonly kind: 'problem'; readonly reason: string };

const maxProgramHeaders = 512;
/** libcuda has 31 dynamic entries; the largest seen in a Debian system is under 200. */
const maxDynamicBytes = 256 * 1024;
/** PATH_MAX: a name that is longer cannot be opened anyway. */
const maxString = 4096;
const maxNeeded = 1024;

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
  const ident = source.read(0, 16);
  if (ident === null) return problem(`${source.size} bytes are too few for an ELF header`);
  if (ident.readUInt32BE(0) !== 0x7f454c46) return problem('it does not begin with ELF’s magic bytes');
  const wordClass = ident[4];
  const order = ident[5];
  if (wordClass !== 1 && wordClass !== 2) return problem(`unknown ELF class ${wordClass}`);
  if (order !== 1 && order !== 2) return problem(`unknown byte order ${order}`);
  const layout = new Layout(wordClass === 2, order === 1);

  const header = source.read(0, layout.is64 ? 64 : 52);
  if (header === null) return problem('the ELF header is cut short');
  const machine = layout.u16(header, 18);
  const segments = readSegments(source, layout, header);
  if (typeof segments === 'string') return problem(segments);
  const dynamic = readDynamic(source, layout, segments);
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

interface Segment {
  readonly type: number;
  readonly offset: number;
  readonly address: number;
  readonly fileSize: number;
}

const segmentLoad = 1;
const segmentDynamic = 2;
const segmentNote = 4;

/** The program headers, or why they cannot be read. */
function readSegments(source: ByteSource, layout: Layout, header: Buffer): Segment[] | string {
  const offset = layout.word(header, layout.is64 ? 32 : 28);
  const entrySize = layout.u16(header, layout.is64 ? 54 : 42);
  const count = layout.u16(header, layout.is64 ? 56 : 44);
  if (count === 0) return [];
  if (entrySize !== (layout.is64 ? 56 : 32)) return `program headers of ${entrySize} bytes`;
  if (count > maxProgramHeaders) return `${count} program headers`;
  const table = source.read(offset, count * entrySize);
  if (table === null) return 'the program headers lie outside the file';
  return Array.from({ length: count }, (_, index) => {
    const at = index * entrySize;
    return {
      type: layout.u32(table, at),
      offset: layout.word(table, at + (layout.is64 ? 8 : 4)),
      address: layout.word(table, at + (layout.is64 ? 16 : 8)),
      fileSize: layout.word(table, at + (layout.is64 ? 32 : 16)),
    };
  });
}

type DynamicFacts = Pick<ElfFacts, 'soname' | 'needed' | 'rpath' | 'runpath'>;

const tag = {
  end: 0,
  needed: 1,
  stringTable: 5,
  stringSize: 10,
  soname: 14,
  rpath: 15,
  runpath: 29,
} as const;

/** The names in the dynamic section, or why they cannot be read. A file without one (static, object) has none. */
function readDynamic(
  source: ByteSource,
  layout: Layout,
  segments: readonly Segment[],
): DynamicFacts | string {
  const none: DynamicFacts = { soname: null, needed: [], rpath: null, runpath: null };
  const segment = segments.find((one) => one.type === segmentDynamic);
  if (segment === undefined) return none;
  if (segment.fileSize > maxDynamicBytes) return `a dynamic section of ${segment.fileSize} bytes`;
  const table = source.read(segment.offset, segment.fileSize);
  if (table === null) return 'the dynamic section lies outside the file';

  const size = layout.is64 ? 8 : 4;
  const values = new Map<number, number>();
  const needed: number[] = [];
  for (let at = 0; at + 2 * size <= table.length; at += 2 * size) {
    const name = layout.word(table, at);
    const value = layout.word(table, at + size);
    if (name === tag.end) break;
    if (name === tag.needed) needed.push(value);
    else if (!values.has(name)) values.set(name, value);
  }
  if (needed.length > maxNeeded) return `${needed.length} needed libraries`;

  const strings = new StringTable(source, segments, values.get(tag.stringTable), values.get(tag.stringSize));
  const wanted = [values.get(tag.soname), values.get(tag.rpath), values.get(tag.runpath)] as const;
  if (needed.length === 0 && wanted.every((one) => one === undefined)) return none;
  const names = [...needed, ...wanted].map((at) => (at === undefined ? null : strings.at(at)));
  if (names.includes(undefined)) return 'a name in the dynamic section lies outside its string table';
  const [soname, rpath, runpath] = names.slice(needed.length).map((name) => name ?? null);
  return {
    soname: soname ?? null,
    needed: names.slice(0, needed.length).filter((name) => typeof name === 'string'),
    rpath: rpath ?? null,
    runpath: runpath ?? null,
  };
}

/** The dynamic string table, found by its address as the loader finds it. */
class StringTable {
  readonly #source: ByteSource;
  readonly #offset: number | null;
  readonly #size: number;

  constructor(
    source: ByteSource,
    segments: readonly Segment[],
    address: number | undefined,
    size: number | undefined,
  ) {
    this.#source = source;
    this.#size = size ?? 0;
    const load = segments.find(
      (one) =>
        one.type === segmentLoad &&
        address !== undefined &&
        address >= one.address &&
        address - one.address < one.fileSize,
    );
    this.#offset =
      load === undefined || address === undefined ? null : load.offset + (address - load.address);
  }

  /** The string at `at`; undefined when it is not wholly inside the table and the file. */
  at(at: number): string | undefined {
    if (this.#offset === null || !(at >= 0 && at < this.#size)) return undefined;
    const start = this.#offset + at;
    const length = Math.min(maxString, this.#size - at, this.#source.size - start);
    const bytes = this.#source.read(start, length);
    const end = bytes?.indexOf(0) ?? -1;
    return bytes === null || end === -1 ? undefined : bytes.toString('utf8', 0, end);
  }
}
