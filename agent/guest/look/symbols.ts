/** The symbols of libcuda and libnvidia-ml that the consumer's libraries need, and those that the shim lacks. */
import { closeSync } from 'node:fs';
import path from 'node:path';
import { storeCurrent } from '../../lib/paths.js';
import {
  type ByteSource,
  type DynamicSection,
  descriptorSource,
  type ElfProgram,
  fileOffset,
  readDynamicSection,
  readProgram,
  tag,
} from '../elf.js';
import type { Root } from '../files/root.js';

export interface SymbolNeeds {
  readonly path: string;
  readonly needed: number;
  /** Those that the shim does not export: `cuFoo`, `cuBar@VERSION`. */
  readonly missing: readonly string[];
}

/** Public names of the driver API and of NVML; cuBLAS, the runtime and the others write on in lower case. */
const families = [
  { provider: 'libcuda.so.1', name: /^cu[A-Z]/ },
  { provider: 'libnvidia-ml.so.1', name: /^nvml[A-Z]/ },
];

/** Only of libraries that name one of the two as needed: others get their symbols in another way. */
export function readSymbolNeeds(
  root: Root,
  libraries: readonly { readonly path: string; readonly needed: readonly string[] }[],
): readonly SymbolNeeds[] {
  const providers = new Map<string, SymbolReading | null>();
  const found: SymbolNeeds[] = [];
  for (const library of libraries) {
    const wanted = families.filter(({ provider }) => library.needed.includes(provider));
    if (wanted.length === 0) continue;
    const reading = symbolsOf(root, library.path);
    if (reading?.kind !== 'symbols') continue;
    const missing: NeededSymbol[] = [];
    let needed = 0;
    for (const { provider, name } of wanted) {
      const asked = reading.needed.filter((symbol) => name.test(symbol.name) && !symbol.weak);
      needed += asked.length;
      const ours = providers.get(provider) ?? symbolsOf(root, path.join(storeCurrent, provider));
      providers.set(provider, ours);
      if (ours?.kind === 'symbols') missing.push(...missingFrom(asked, ours));
    }
    const names = missing.map(({ name, version }) => (version === null ? name : `${name}@${version}`));
    found.push({ path: library.path, needed, missing: [...new Set(names)] });
  }
  return found;
}

function symbolsOf(root: Root, file: string): SymbolReading | null {
  try {
    const descriptor = root.open(file);
    if (descriptor === null) return null;
    try {
      return readSymbols(descriptorSource(descriptor));
    } finally {
      closeSync(descriptor);
    }
  } catch {
    return null;
  }
}

// The dynamic symbols of an ELF file with their versions (System V gABI; the
// GNU symbol versions of the LSB): what it needs from other libraries, and what
// it gives. As hostile a file as any: counts and offsets are checked first.

interface NeededSymbol {
  readonly name: string;
  /** The version it must have, and of which library (its SONAME); null when it asks for none. */
  readonly version: string | null;
  readonly library: string | null;
  /** A weak one may be missing. */
  readonly weak: boolean;
}

interface ExportedSymbol {
  readonly name: string;
  readonly version: string | null;
}

export type SymbolReading =
  | {
      readonly kind: 'symbols';
      readonly needed: readonly NeededSymbol[];
      readonly exported: readonly ExportedSymbol[];
      /** The versions that the library defines; none: it has no versions at all. */
      readonly versions: readonly string[];
    }
  | { readonly kind: 'problem'; readonly reason: string };

/** libggml-cuda has under 20 000, libcublasLt under 2 000. */
const maxSymbols = 1_000_000;
const maxVersions = 4096;
const hiddenVersion = 0x8000;
const bindingGlobal = 1;
const bindingWeak = 2;
const bindingUnique = 10;

/** Every global and weak symbol of the dynamic symbol table. A file without one has none. */
export function readSymbols(source: ByteSource): SymbolReading {
  const program = readProgram(source);
  if (typeof program === 'string') return problem(program);
  const dynamic = readDynamicSection(program);
  if (typeof dynamic === 'string') return problem(dynamic);
  if (dynamic === null) return { kind: 'symbols', needed: [], exported: [], versions: [] };
  const count = countSymbols(program, dynamic);
  if (typeof count === 'string') return problem(count);
  const needs = readVersionNeeds(program, dynamic);
  const definitions = readVersionDefinitions(program, dynamic);
  if (typeof needs === 'string') return problem(needs);
  if (typeof definitions === 'string') return problem(definitions);
  const table = section(program, dynamic, tag.symbolTable, count * symbolBytes(program));
  if (table === null) return problem('the symbol table lies outside the file');
  const versions = section(program, dynamic, tag.versionSymbols, count * 2);

  const needed: NeededSymbol[] = [];
  const exported: ExportedSymbol[] = [];
  for (let index = 1; index < count; index += 1) {
    const symbol = symbolAt(program, table, index);
    if (![bindingGlobal, bindingWeak, bindingUnique].includes(symbol.binding)) continue;
    const name = dynamic.string(symbol.name);
    if (name === undefined) return problem('a symbol’s name lies outside the string table');
    const version = versions === null ? 0 : program.layout.u16(versions, index * 2) & ~hiddenVersion;
    if (symbol.section === 0) {
      const need = needs.get(version);
      needed.push({
        name,
        version: need?.version ?? null,
        library: need?.library ?? null,
        weak: symbol.binding === bindingWeak,
      });
    } else {
      // A program's copy of a library's variable keeps the version that the library has.
      exported.push({ name, version: definitions.get(version) ?? needs.get(version)?.version ?? null });
    }
  }
  return { kind: 'symbols', needed, exported, versions: [...definitions.values()] };
}

function problem(reason: string): SymbolReading {
  return { kind: 'problem', reason };
}

function symbolBytes({ layout }: ElfProgram): number {
  return layout.is64 ? 24 : 16;
}

function symbolAt(
  { layout }: ElfProgram,
  table: Buffer,
  index: number,
): { name: number; binding: number; section: number } {
  const at = index * (layout.is64 ? 24 : 16);
  return {
    name: layout.u32(table, at),
    binding: (table[at + (layout.is64 ? 4 : 12)] ?? 0) >> 4,
    section: layout.u16(table, at + (layout.is64 ? 6 : 14)),
  };
}

/** The string at the address of `name`, as the loader finds it; null when there is none or the file is too short. */
function section(program: ElfProgram, dynamic: DynamicSection, name: number, length: number): Buffer | null {
  const address = dynamic.values.get(name);
  const at = address === undefined ? null : fileOffset(program.segments, address);
  return at === null ? null : program.source.read(at, length);
}

/** The dynamic section does not say how many symbols there are; the hash tables do. */
function countSymbols(program: ElfProgram, dynamic: DynamicSection): number | string {
  const { layout } = program;
  const plain = section(program, dynamic, tag.hash, 8);
  const count = plain === null ? countByGnuHash(program, dynamic) : layout.u32(plain, 4);
  if (count === null) return 'no hash table tells how many symbols there are';
  return count > maxSymbols ? `${count} symbols` : count;
}

function countByGnuHash(program: ElfProgram, dynamic: DynamicSection): number | null {
  const { layout, source, segments } = program;
  const address = dynamic.values.get(tag.gnuHash);
  const at = address === undefined ? null : fileOffset(segments, address);
  const head = at === null ? null : source.read(at, 16);
  if (at === null || head === null) return null;
  const [buckets, first, bloom] = [layout.u32(head, 0), layout.u32(head, 4), layout.u32(head, 8)];
  const bucketsAt = at + 16 + bloom * (layout.is64 ? 8 : 4);
  if (buckets > maxSymbols || bloom > maxSymbols) return null;
  const table = source.read(bucketsAt, buckets * 4);
  if (table === null) return null;
  let last = 0;
  for (let index = 0; index < buckets; index += 1) last = Math.max(last, layout.u32(table, index * 4));
  if (last < first) return first;
  const chains = bucketsAt + buckets * 4;
  // The chain of the last bucket ends with the last symbol.
  for (let index = last; index < maxSymbols; index += 1) {
    const entry = source.read(chains + (index - first) * 4, 4);
    if (entry === null) return null;
    if ((layout.u32(entry, 0) & 1) === 1) return index + 1;
  }
  return null;
}

type Needs = ReadonlyMap<number, { readonly version: string; readonly library: string }>;

function readVersionNeeds(program: ElfProgram, dynamic: DynamicSection): Needs | string {
  const { layout, source, segments } = program;
  const needs = new Map<number, { version: string; library: string }>();
  const address = dynamic.values.get(tag.versionNeeds);
  let at = address === undefined ? null : fileOffset(segments, address);
  const files = Math.min(dynamic.values.get(tag.versionNeedCount) ?? 0, maxVersions);
  for (let file = 0; at !== null && file < files; file += 1) {
    const head = source.read(at, 16);
    const library = head === null ? undefined : dynamic.string(layout.u32(head, 4));
    if (head === null || library === undefined) return 'the needed versions lie outside the file';
    let entryAt = at + layout.u32(head, 8);
    for (let index = 0; index < layout.u16(head, 2); index += 1) {
      const entry = source.read(entryAt, 16);
      const version = entry === null ? undefined : dynamic.string(layout.u32(entry, 8));
      if (entry === null || version === undefined) return 'a needed version lies outside the file';
      needs.set(layout.u16(entry, 6) & ~hiddenVersion, { version, library });
      if (layout.u32(entry, 12) === 0) break;
      entryAt += layout.u32(entry, 12);
    }
    at = layout.u32(head, 12) === 0 ? null : at + layout.u32(head, 12);
  }
  return needs;
}

/** Versions by index, without the first: that one names the file itself. */
function readVersionDefinitions(
  program: ElfProgram,
  dynamic: DynamicSection,
): ReadonlyMap<number, string> | string {
  const { layout, source, segments } = program;
  const definitions = new Map<number, string>();
  const address = dynamic.values.get(tag.versionDefinitions);
  let at = address === undefined ? null : fileOffset(segments, address);
  const count = Math.min(dynamic.values.get(tag.versionDefinitionCount) ?? 0, maxVersions);
  for (let index = 0; at !== null && index < count; index += 1) {
    const entry = source.read(at, 20);
    const auxiliary = entry === null ? null : source.read(at + layout.u32(entry, 12), 8);
    const name = auxiliary === null ? undefined : dynamic.string(layout.u32(auxiliary, 0));
    if (entry === null || name === undefined) return 'the defined versions lie outside the file';
    const isBase = (layout.u16(entry, 2) & 1) === 1;
    if (!isBase) definitions.set(layout.u16(entry, 4), name);
    at = layout.u32(entry, 16) === 0 ? null : at + layout.u32(entry, 16);
  }
  return definitions;
}

/**
 * Those of `needed` that `provider` does not give, as the loader binds: a version that is asked for must be
 * there if the provider has versions at all; a provider without any is taken with a warning.
 */
export function missingFrom(
  needed: readonly NeededSymbol[],
  provider: Extract<SymbolReading, { kind: 'symbols' }>,
): readonly NeededSymbol[] {
  const names = new Set(provider.exported.map(({ name }) => name));
  const exact = new Set(provider.exported.map(({ name, version }) => `${name}@${version ?? ''}`));
  return needed.filter(({ name, version, weak }) => {
    if (weak) return false;
    if (version === null || provider.versions.length === 0) return !names.has(name);
    return !exact.has(`${name}@${version}`);
  });
}
