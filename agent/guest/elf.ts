/**
 * The parts of an ELF file that the agent needs (System V gABI; elf(5)). A file may be truncated or hostile: every
 * offset, count and length is checked against the file and a limit before it is used, and a file that does not hold
 * together is an answer (`problem`), never an exception.
 */
import fs from 'node:fs';
import type { ElfFacts } from '../contracts/facts.js';
import { jsonIn } from '../lib/json.js';

export interface ByteSource {
  readonly size: number;
  /** Exactly `length` bytes, or null when they are not all there. */
  read(offset: number, length: number): Buffer | null;
}

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

export type ElfReading =
  | { readonly kind: 'elf'; readonly facts: ElfFacts }
  | { readonly kind: 'problem'; readonly reason: string };

const machines: Readonly<Record<number, string>> = {
  3: 'i386',
  21: 'ppc64',
  22: 's390',
  40: 'arm',
  62: 'x86_64',
  183: 'aarch64',
  243: 'riscv',
};
const types: Readonly<Record<number, ElfFacts['type']>> = { 1: 'rel', 2: 'exec', 3: 'dyn' };

/** The `class` and `machine` of libraries that a process of this machine (`uname -m`) loads; null if unknown. */
export function nativeElf(architecture: string): Pick<ElfFacts, 'class' | 'machine'> | null {
  return architecture === 'x86_64' || architecture === 'aarch64'
    ? { class: 64, machine: architecture }
    : null;
}

/** Of another class or byte order than the machines that the shim is built for, only what the header says. */
export function readElf(source: ByteSource): ElfReading {
  const header = readHeader(source);
  if (typeof header === 'string') return { kind: 'problem', reason: header };
  const segments = header.isNative ? readSegments(source, header.bytes) : [];
  if (typeof segments === 'string') return { kind: 'problem', reason: segments };
  const names = readNames(source, segments);
  if (typeof names === 'string') return { kind: 'problem', reason: names };
  return { kind: 'elf', facts: { ...header.facts, ...names, provenance: readProvenance(source, segments) } };
}

/** PT_INTERP: `/lib64/ld-linux-x86-64.so.2`; null for a static program and for what is no such program. */
export function readInterpreter(source: ByteSource): string | null {
  const header = readHeader(source);
  const segments = typeof header === 'string' || !header.isNative ? [] : readSegments(source, header.bytes);
  if (typeof segments === 'string') return null;
  const segment = segments.find(({ type }) => type === segmentType.interpreter);
  if (segment === undefined || segment.size > maxString) return null;
  const bytes = source.read(segment.offset, segment.size);
  return bytes === null ? null : terminated(bytes);
}

function terminated(bytes: Buffer): string | null {
  const end = bytes.indexOf(0);
  return end === -1 ? null : bytes.toString('utf8', 0, end);
}

interface Header {
  readonly isNative: boolean;
  readonly facts: Pick<ElfFacts, 'class' | 'machine' | 'type'>;
  readonly bytes: Buffer;
}

const headerBytes = 64;

function readHeader(source: ByteSource): Header | string {
  const start = source.read(0, 20);
  if (start === null) return `${source.size} bytes are too few for an ELF header`;
  if (start.readUInt32BE(0) !== 0x7f454c46) return 'it does not begin with ELF’s magic bytes';
  const [wordClass, order] = [start[4], start[5]];
  if (wordClass !== 1 && wordClass !== 2) return `unknown ELF class ${wordClass}`;
  if (order !== 1 && order !== 2) return `unknown byte order ${order}`;
  const u16 = (at: number): number => (order === 1 ? start.readUInt16LE(at) : start.readUInt16BE(at));
  const isNative = wordClass === 2 && order === 1;
  const bytes = isNative ? source.read(0, headerBytes) : start;
  if (bytes === null) return 'the ELF header is truncated';
  const machine = u16(18);
  return {
    isNative,
    facts: {
      class: wordClass === 2 ? 64 : 32,
      machine: machines[machine] ?? String(machine),
      type: types[u16(16)] ?? 'other',
    },
    bytes,
  };
}

const segmentType = { load: 1, dynamic: 2, interpreter: 3, note: 4 } as const;
const segmentBytes = 56;
const maxSegments = 512;

interface Segment {
  readonly type: number;
  readonly offset: number;
  readonly address: number;
  readonly size: number;
}

/** NaN beyond 2^53, which no check lets pass. */
function word(bytes: Buffer, at: number): number {
  const value = bytes.readBigUInt64LE(at);
  return value <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(value) : Number.NaN;
}

function readSegments(source: ByteSource, header: Buffer): readonly Segment[] | string {
  const [entrySize, count] = [header.readUInt16LE(54), header.readUInt16LE(56)];
  if (count === 0) return [];
  if (entrySize !== segmentBytes) return `program headers of ${entrySize} bytes`;
  if (count > maxSegments) return `${count} program headers`;
  const table = source.read(word(header, 32), count * segmentBytes);
  if (table === null) return 'the program headers lie outside the file';
  return Array.from({ length: count }, (_, index) => {
    const at = index * segmentBytes;
    return {
      type: table.readUInt32LE(at),
      offset: word(table, at + 8),
      address: word(table, at + 16),
      size: word(table, at + 32),
    };
  });
}

const tag = { end: 0, needed: 1, stringTable: 5, stringSize: 10, soname: 14 } as const;
/** libcuda has 31 entries; the largest section seen in a Debian system has under 200. */
const maxDynamicBytes = 256 * 1024;
const maxNeeded = 1024;
/** PATH_MAX: a name that is longer cannot be opened. */
const maxString = 4096;

type Names = Pick<ElfFacts, 'soname' | 'needed'>;

/** A file without a dynamic section (static, object) has no names. */
function readNames(source: ByteSource, segments: readonly Segment[]): Names | string {
  const segment = segments.find(({ type }) => type === segmentType.dynamic);
  if (segment === undefined) return { soname: null, needed: [] };
  if (segment.size > maxDynamicBytes) return `a dynamic section of ${segment.size} bytes`;
  const table = source.read(segment.offset, segment.size);
  if (table === null) return 'the dynamic section lies outside the file';
  const values = new Map<number, number>();
  const needed: number[] = [];
  for (let at = 0; at + 16 <= table.length; at += 16) {
    const [name, value] = [word(table, at), word(table, at + 8)];
    if (name === tag.end) break;
    if (name === tag.needed) needed.push(value);
    else if (!values.has(name)) values.set(name, value);
  }
  if (needed.length > maxNeeded) return `${needed.length} needed libraries`;
  const address = values.get(tag.stringTable) ?? Number.NaN;
  const load = segments.find(
    ({ type, address: start, size }) =>
      type === segmentType.load && address >= start && address - start < size,
  );
  const strings = load === undefined ? Number.NaN : load.offset + (address - load.address);
  const string = (at: number): string | null => {
    const left = Math.min(maxString, (values.get(tag.stringSize) ?? 0) - at, source.size - strings - at);
    const bytes = at >= 0 ? source.read(strings + at, left) : null;
    return bytes === null ? null : terminated(bytes);
  };
  const soname = values.get(tag.soname);
  const names = [...needed, ...(soname === undefined ? [] : [soname])].map(string);
  if (names.includes(null)) return 'a name in the dynamic section lies outside its string table';
  const all = names.filter((name) => name !== null);
  return { soname: soname === undefined ? null : (all.at(-1) ?? null), needed: all.slice(0, needed.length) };
}

// The provenance note: it identifies vgpu-agent's libraries whatever their name.

const maxNoteBytes = 64 * 1024;
const maxDescriptorBytes = 4096;

function readProvenance(source: ByteSource, segments: readonly Segment[]): ElfFacts['provenance'] {
  for (const { type, offset, size } of segments) {
    if (type !== segmentType.note || !(size <= maxNoteBytes)) continue;
    const bytes = source.read(offset, size);
    const found = bytes === null ? null : findNote(bytes);
    if (found !== null) return found;
  }
  return null;
}

function findNote(bytes: Buffer): ElfFacts['provenance'] {
  for (let at = 0; at + 12 <= bytes.length; ) {
    const [nameSize, size] = [bytes.readUInt32LE(at), bytes.readUInt32LE(at + 4)];
    const start = at + 12 + align4(nameSize);
    // The last descriptor may lack its padding.
    if (start + size > bytes.length) return null;
    const name = bytes.toString('latin1', at + 12, at + 12 + nameSize);
    if (bytes.readUInt32LE(at + 8) === 1 && name === 'VGPU\0' && size <= maxDescriptorBytes) {
      const found = parseProvenance(bytes.toString('utf8', start, start + size));
      if (found !== null) return found;
    }
    at = start + align4(size);
  }
  return null;
}

function align4(size: number): number {
  return Math.ceil(size / 4) * 4;
}

/** `{"component":"libcuda","version":"0.1.0","wire":1}`; anything else is not our note. */
function parseProvenance(text: string): ElfFacts['provenance'] {
  const { component, version, wire } = Object(jsonIn(text.replace(/\0+$/, '')));
  if (typeof component !== 'string' || typeof version !== 'string' || typeof wire !== 'number') return null;
  return { component, version, wire };
}
