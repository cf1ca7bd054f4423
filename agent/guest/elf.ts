/** Checked access to the bytes of an ELF file: whatever an offset or length claims, reading stays inside. */
import fs from 'node:fs';
import type { ElfFacts } from '../contracts/facts.js';

export interface ByteSource {
  readonly size: number;
  /** Exactly `length` bytes, or null when they are not all there. */
  read(offset: number, length: number): Buffer | null;
}

/** A source over an open file descriptor. A file that shrinks meanwhile gives null, not old bytes. */
export function descriptorSource(descriptor: number): ByteSource {
  const size = fs.fstatSync(descriptor).size;
  return {
    size,
    read(offset, length) {
      if (!fits(offset, length, size)) return null;
      const buffer = Buffer.alloc(length);
      let filled = 0;
      while (filled < length) {
        const count = fs.readSync(descriptor, buffer, filled, length - filled, offset + filled);
        if (count === 0) return null;
        filled += count;
      }
      return buffer;
    },
  };
}

function fits(offset: number, length: number, size: number): boolean {
  return (
    Number.isSafeInteger(offset) &&
    Number.isSafeInteger(length) &&
    offset >= 0 &&
    length >= 0 &&
    length <= size &&
    offset <= size - length
  );
}

class Layout {
  readonly is64: boolean;
  readonly #little: boolean;

  constructor(is64: boolean, little: boolean) {
    this.is64 = is64;
    this.#little = little;
  }

  u16(bytes: Buffer, at: number): number {
    return this.#little ? bytes.readUInt16LE(at) : bytes.readUInt16BE(at);
  }

  u32(bytes: Buffer, at: number): number {
    return this.#little ? bytes.readUInt32LE(at) : bytes.readUInt32BE(at);
  }

  /** An address-sized word; NaN beyond 2^53, which no check above lets pass. */
  word(bytes: Buffer, at: number): number {
    if (!this.is64) return this.u32(bytes, at);
    const value = this.#little ? bytes.readBigUInt64LE(at) : bytes.readBigUInt64BE(at);
    return value <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(value) : Number.NaN;
  }
}

// The program headers and the dynamic section of an ELF file, every offset checked before it is followed.

interface Segment {
  readonly type: number;
  readonly offset: number;
  readonly address: number;
  readonly fileSize: number;
}

const segmentLoad = 1;
const segmentDynamic = 2;
export const segmentInterpreter = 3;
const segmentNote = 4;

/** Tags of the dynamic section (elf.h). */
const tag = {
  end: 0,
  needed: 1,
  stringTable: 5,
  stringSize: 10,
  soname: 14,
  rpath: 15,
  runpath: 29,
  flags1: 0x6ffffffb,
} as const;

const maxProgramHeaders = 512;
/** libcuda has 31 dynamic entries; the largest seen in a Debian system is under 200. */
const maxDynamicBytes = 256 * 1024;
/** PATH_MAX: a name that is longer cannot be opened anyway. */
const maxString = 4096;
const maxNeeded = 1024;

interface ElfProgram {
  readonly source: ByteSource;
  readonly layout: Layout;
  readonly header: Buffer;
  readonly segments: readonly Segment[];
}

/** The ELF header and the program headers, or why they cannot be read. */
export function readProgram(source: ByteSource): ElfProgram | string {
  const ident = source.read(0, 16);
  if (ident === null) return `${source.size} bytes are too few for an ELF header`;
  if (ident.readUInt32BE(0) !== 0x7f454c46) return 'it does not begin with ELF’s magic bytes';
  const wordClass = ident[4];
  const order = ident[5];
  if (wordClass !== 1 && wordClass !== 2) return `unknown ELF class ${wordClass}`;
  if (order !== 1 && order !== 2) return `unknown byte order ${order}`;
  const layout = new Layout(wordClass === 2, order === 1);
  const header = source.read(0, layout.is64 ? 64 : 52);
  if (header === null) return 'the ELF header is truncated';
  const segments = readSegments(source, layout, header);
  return typeof segments === 'string' ? segments : { source, layout, header, segments };
}

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

interface DynamicSection {
  readonly values: ReadonlyMap<number, number>;
  readonly needed: readonly number[];
  /** The string at an offset of the string table; undefined when it is not wholly inside table and file. */
  string(at: number): string | undefined;
}

/** Null when the file has none (static, object); a string says why it cannot be read. */
function readDynamicSection(program: ElfProgram): DynamicSection | null | string {
  const { source, layout, segments } = program;
  const segment = segments.find((one) => one.type === segmentDynamic);
  if (segment === undefined) return null;
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
  const address = values.get(tag.stringTable);
  const start = address === undefined ? null : fileOffset(segments, address);
  const limit = values.get(tag.stringSize) ?? 0;
  return { values, needed, string: (at) => stringAt(source, start, limit, at) };
}

/** Where in the file what the loader maps at `address` lies; null when no segment holds it. */
function fileOffset(segments: readonly Segment[], address: number): number | null {
  const load = segments.find(
    (one) => one.type === segmentLoad && address >= one.address && address - one.address < one.fileSize,
  );
  return load === undefined ? null : load.offset + (address - load.address);
}

function stringAt(source: ByteSource, start: number | null, size: number, at: number): string | undefined {
  if (start === null || !(at >= 0 && at < size)) return undefined;
  const from = start + at;
  const length = Math.min(maxString, size - at, source.size - from);
  const bytes = source.read(from, length);
  const end = bytes?.indexOf(0) ?? -1;
  return bytes === null || end === -1 ? undefined : bytes.toString('utf8', 0, end);
}

// The provenance note: it identifies vgpu-agent's libraries whatever their name.

interface Area {
  readonly offset: number;
  readonly fileSize: number;
}

const maxSectionHeaders = 4096;
const maxNoteBytes = 64 * 1024;
const maxDescriptorBytes = 4096;
const sectionNote = 7;

/** Our note from the note segments, else from the note sections (a note that is not loaded has no segment). */
function readProvenance(
  source: ByteSource,
  layout: Layout,
  header: Buffer,
  noteSegments: readonly Area[],
): ElfFacts['provenance'] {
  for (const area of [...noteSegments, ...noteSections(source, layout, header)]) {
    if (!(area.fileSize <= maxNoteBytes)) continue;
    const bytes = source.read(area.offset, area.fileSize);
    const found = bytes === null ? null : findNote(layout, bytes);
    if (found !== null) return found;
  }
  return null;
}

function noteSections(source: ByteSource, layout: Layout, header: Buffer): Area[] {
  const offset = layout.word(header, layout.is64 ? 40 : 32);
  const entrySize = layout.u16(header, layout.is64 ? 58 : 46);
  const count = layout.u16(header, layout.is64 ? 60 : 48);
  if (entrySize !== (layout.is64 ? 64 : 40) || count > maxSectionHeaders) return [];
  const table = source.read(offset, count * entrySize);
  if (table === null) return [];
  const sections: Area[] = [];
  for (let at = 0; at < table.length; at += entrySize) {
    if (layout.u32(table, at + 4) !== sectionNote) continue;
    sections.push({
      offset: layout.word(table, at + (layout.is64 ? 24 : 16)),
      fileSize: layout.word(table, at + (layout.is64 ? 32 : 20)),
    });
  }
  return sections;
}

function findNote(layout: Layout, bytes: Buffer): ElfFacts['provenance'] {
  for (let at = 0; at + 12 <= bytes.length; ) {
    const nameSize = layout.u32(bytes, at);
    const descriptorSize = layout.u32(bytes, at + 4);
    const type = layout.u32(bytes, at + 8);
    const nameAt = at + 12;
    const descriptorAt = nameAt + align4(nameSize);
    const next = descriptorAt + align4(descriptorSize);
    // The last descriptor may lack its padding.
    if (descriptorAt + descriptorSize > bytes.length) return null;
    const name = bytes.toString('latin1', nameAt, nameAt + nameSize);
    if (type === 1 && (name === 'VGPU\0' || name === 'VGPU') && descriptorSize <= maxDescriptorBytes) {
      const found = parseProvenance(bytes.toString('utf8', descriptorAt, descriptorAt + descriptorSize));
      if (found !== null) return found;
    }
    at = next;
  }
  return null;
}

function align4(size: number): number {
  return Math.ceil(size / 4) * 4;
}

/** `{"component":"libcuda","version":"0.1.0","wire":1}`; anything else is not our note. */
function parseProvenance(text: string): ElfFacts['provenance'] {
  let value: unknown;
  try {
    value = JSON.parse(text.replace(/\0+$/, ''));
  } catch {
    return null;
  }
  if (typeof value !== 'object' || value === null) return null;
  const { component, version, wire } = value as Record<string, unknown>;
  if (typeof component !== 'string' || typeof version !== 'string' || typeof wire !== 'number') return null;
  return { component, version, wire };
}

// Reads what we must know of an ELF file (System V gABI; elf(5)). The file may
// be truncated or hostile: every offset, count and length is checked against
// the file and against a limit before it is used, and a file that does not
// hold together is an answer (`problem`), never an exception.

export type ElfReading =
  | { readonly kind: 'elf'; readonly facts: ElfFacts }
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
