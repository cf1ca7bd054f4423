/**
 * The dynamic loader's cache, /etc/ld.so.cache, read as the loader reads it
 * (glibc sysdeps/generic/dl-cache.h), so that no process is needed and the
 * answer is the same for a root that does not run.
 */
import type { LoaderCacheEntry } from '../../contracts/facts.js';

const oldMagic = 'ld.so-1.7.0';
const oldHeaderBytes = 16;
const oldEntryBytes = 12;
const newMagic = 'glibc-ld.so.cache1.1';
const newHeaderBytes = 48;
const newEntryBytes = 24;
const extensionMagic = 0xeaa42174;
const tagHwcaps = 1;
/** Bit 62 of an entry's hwcap: its low half is an index into the glibc-hwcaps names. */
const hwcapIsIndex = 0x4000_0000;

const typeNames = ['libc4', 'ELF', 'libc5', 'libc6'];
/** FLAG_REQUIRED_MASK values as `ldconfig -p` words them (elf/cache.c, print_entry). */
const abiNames: Readonly<Record<number, string>> = {
  256: '64bit',
  512: 'IA-64',
  768: 'x86-64',
  1024: '64bit',
  1280: '64bit',
  1536: 'N32',
  1792: '64bit',
  2048: 'x32',
  2304: 'hard-float',
  2560: 'AArch64',
  2816: 'soft-float',
  3072: 'nan2008',
  3328: 'N32,nan2008',
  3584: '64bit,nan2008',
  3840: 'soft-float',
  4096: 'double-float',
  4352: 'soft-float',
  4608: 'double-float',
};

/**
 * All entries in the cache's order (the loader takes the first that fits), worded as `ldconfig -p` words
 * them. Null when this is no cache of a known format or a part of it lies outside the file.
 */
export function parseLoaderCache(file: Buffer): readonly LoaderCacheEntry[] | null {
  const start = newCacheStart(file);
  if (start === null) return null;
  const cache = file.subarray(start);
  if (cache.length < newHeaderBytes || cache.toString('latin1', 0, newMagic.length) !== newMagic) return null;
  const count = cache.readUInt32LE(20);
  if (newHeaderBytes + count * newEntryBytes > cache.length) return null;

  const hwcapNames = readHwcapNames(file, cache.readUInt32LE(32));
  const entries: LoaderCacheEntry[] = [];
  for (let index = 0; index < count; index += 1) {
    const at = newHeaderBytes + index * newEntryBytes;
    const soname = stringAt(cache, cache.readUInt32LE(at + 4));
    const path = stringAt(cache, cache.readUInt32LE(at + 8));
    if (soname === null || path === null) return null;
    const flags = wordFlags(cache.readInt32LE(at));
    const hwcap = wordHwcap(cache.readUInt32LE(at + 16), cache.readUInt32LE(at + 20), hwcapNames);
    entries.push({ soname, path, flags: flags + hwcap });
  }
  return entries;
}

/** Up to glibc 2.31 the new format follows an old one, at a multiple of eight. */
function newCacheStart(file: Buffer): number | null {
  if (file.toString('latin1', 0, oldMagic.length) !== oldMagic) return 0;
  if (file.length < oldHeaderBytes) return null;
  const end = oldHeaderBytes + file.readUInt32LE(12) * oldEntryBytes;
  const start = Math.ceil(end / 8) * 8;
  return start < file.length ? start : null;
}

function stringAt(cache: Buffer, offset: number): string | null {
  if (offset >= cache.length) return null;
  const end = cache.indexOf(0, offset);
  return end === -1 ? null : cache.toString('utf8', offset, end);
}

/**
 * The glibc-hwcaps subdirectory names. None without the extension (before glibc 2.33) or when it does not
 * hold together: behind an old-format cache, ldconfig 2.36 writes offsets that it cannot read back itself.
 */
function readHwcapNames(file: Buffer, extension: number): readonly string[] {
  if (extension === 0 || extension % 4 !== 0 || extension + 8 > file.length) return [];
  if (file.readUInt32LE(extension) !== extensionMagic) return [];
  const sections = file.readUInt32LE(extension + 4);
  if (extension + 8 + sections * 16 > file.length) return [];
  for (let index = 0; index < sections; index += 1) {
    const at = extension + 8 + index * 16;
    if (file.readUInt32LE(at) !== tagHwcaps) continue;
    const offset = file.readUInt32LE(at + 8);
    const size = file.readUInt32LE(at + 12);
    if (offset + size > file.length || size % 4 !== 0) return [];
    const names: string[] = [];
    for (let name = offset; name < offset + size; name += 4) {
      const text = stringAt(file, file.readUInt32LE(name));
      if (text === null || !/^[A-Za-z0-9._-]+$/.test(text)) return [];
      names.push(text);
    }
    return names;
  }
  return [];
}

function wordFlags(flags: number): string {
  const type = typeNames[flags & 0xff] ?? 'unknown';
  const abi = flags & 0xff00;
  return abi === 0 ? type : `${type},${abiNames[abi] ?? abi}`;
}

function wordHwcap(low: number, high: number, names: readonly string[]): string {
  if (high === 0 && low === 0) return '';
  const name = (high & hwcapIsIndex) !== 0 ? names[low] : undefined;
  if (name !== undefined) return `, hwcap: "${name}"`;
  const value = (BigInt(high) << 32n) | BigInt(low);
  return `, hwcap: 0x${value.toString(16).padStart(16, '0')}`;
}
