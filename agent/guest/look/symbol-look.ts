/** The symbols of libcuda and libnvidia-ml that the consumer's libraries need, and those that the shim lacks. */
import { closeSync } from 'node:fs';
import path from 'node:path';
import { storeCurrent } from '../../lib/paths.js';
import { descriptorSource } from '../elf/elf-bytes.js';
import type { Root } from '../files/root.js';
import { missingFrom, type NeededSymbol, readSymbols, type SymbolReading } from './elf-symbols.js';

export interface SymbolNeeds {
  /** The consumer's library. */
  readonly path: string;
  /** How many functions of the driver and of NVML it asks for by name at load time. */
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
