/** The program headers and the dynamic section of an ELF file, every offset checked before it is followed. */
import { type ByteSource, Layout } from './elf-bytes.js';

export interface Segment {
  readonly type: number;
  readonly offset: number;
  readonly address: number;
  readonly fileSize: number;
}

const segmentLoad = 1;
const segmentDynamic = 2;
export const segmentInterpreter = 3;
export const segmentNote = 4;

/** Tags of the dynamic section (elf.h). */
export const tag = {
  end: 0,
  needed: 1,
  hash: 4,
  stringTable: 5,
  symbolTable: 6,
  stringSize: 10,
  symbolSize: 11,
  soname: 14,
  rpath: 15,
  runpath: 29,
  gnuHash: 0x6ffffef5,
  versionSymbols: 0x6ffffff0,
  flags1: 0x6ffffffb,
  versionDefinitions: 0x6ffffffc,
  versionDefinitionCount: 0x6ffffffd,
  versionNeeds: 0x6ffffffe,
  versionNeedCount: 0x6fffffff,
} as const;

const maxProgramHeaders = 512;
/** libcuda has 31 dynamic entries; the largest seen in a Debian system is under 200. */
const maxDynamicBytes = 256 * 1024;
/** PATH_MAX: a name that is longer cannot be opened anyway. */
const maxString = 4096;
const maxNeeded = 1024;

export interface ElfProgram {
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

/** The dynamic section: the first value of each tag, and every DT_NEEDED. */
export interface DynamicSection {
  readonly values: ReadonlyMap<number, number>;
  readonly needed: readonly number[];
  /** The string at an offset of the string table; undefined when it is not wholly inside table and file. */
  string(at: number): string | undefined;
}

/** Null when the file has none (static, object); a string says why it cannot be read. */
export function readDynamicSection(program: ElfProgram): DynamicSection | null | string {
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
export function fileOffset(segments: readonly Segment[], address: number): number | null {
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
