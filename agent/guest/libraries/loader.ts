/**
 * The dynamic loader's cache, /etc/ld.so.cache, read as the loader reads it
 * (glibc sysdeps/generic/dl-cache.h), so that no process is needed and the
 * answer is the same for a root that does not run.
 */
import path from 'node:path';
import type { Distribution, LoaderCacheEntry, LoaderFacts } from '../../contracts/facts.js';
import { glob } from '../../lib/glob.js';
import type { Root } from '../files/root.js';

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

// The directories that ldconfig reads, in its order: /etc/ld.so.conf with its includes, then the built-in ones.

const maxConfBytes = 256 * 1024;
/** ldconfig follows includes without a limit; a chain this long is a cycle. */
const maxDepth = 16;

type Directory = LoaderFacts['directories'][number];

/**
 * As ldconfig's parse_conf: `#` begins a comment, `include PATTERN...` is relative to the including file and
 * sorted, `hwcap` is ignored, `DIR=TYPE` loses its type, any other line is one directory. Directories that
 * do not exist are listed too; a name that comes again is not.
 */
export function readLoaderDirectories(root: Root, distribution: Distribution): readonly Directory[] {
  const found: Directory[] = [];
  readConf(root, '/etc/ld.so.conf', 0, found);
  for (const builtIn of builtInDirectories(distribution)) found.push({ path: builtIn, from: 'built in' });
  const seen = new Set<string>();
  return found.filter((one) => !seen.has(one.path) && seen.add(one.path));
}

function readConf(root: Root, file: string, depth: number, found: Directory[]): void {
  if (depth > maxDepth) return;
  const bytes = root.readFile(file, maxConfBytes);
  if (bytes === null) return;
  for (const raw of bytes.toString('utf8').split('\n')) {
    const line = raw.replace(/#.*/, '').trim();
    const include = /^include[ \t]+(.*)$/.exec(line)?.[1];
    if (include !== undefined) {
      for (const pattern of include.split(/[ \t]+/)) {
        for (const included of glob(root, path.resolve(path.dirname(file), pattern))) {
          readConf(root, included, depth + 1, found);
        }
      }
    } else if (line !== '' && !/^hwcap[ \t]/i.test(line)) {
      const directory = line.replace(/=.*/, '').trimEnd().replace(/\/+$/, '');
      if (directory.startsWith('/')) found.push({ path: directory, from: file });
    }
  }
}

/** Debian builds glibc for the multiarch directories and adds the plain ones; others have lib64 on 64 bit. */
function builtInDirectories(distribution: Distribution): readonly string[] {
  const { multiarch } = distribution;
  if (multiarch !== null) return [`/lib/${multiarch}`, `/usr/lib/${multiarch}`, '/lib', '/usr/lib'];
  return distribution.family === 'arch' ? ['/usr/lib'] : ['/lib64', '/usr/lib64', '/lib', '/usr/lib'];
}
