/** Helpers for the tests of machine/: temporary trees, ELF files made by hand, NVIDIA's real libraries. */

import { existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { TestContext } from 'node:test';
import type { ByteSource } from '../../../agent/guest/elf.js';
import { packageRoot } from '../../../agent/lib/paths.js';

/** A file's bytes without a file. */
export function bufferSource(bytes: Buffer): ByteSource {
  return {
    size: bytes.length,
    read: (offset, length) =>
      offset >= 0 && length >= 0 && offset + length <= bytes.length
        ? bytes.subarray(offset, offset + length)
        : null,
  };
}

export type Tree = { readonly [name: string]: string | Buffer | { readonly link: string } | Tree };

/** A temporary directory with this in it, removed after the test. */
export function tree(context: TestContext, content: Tree = {}): string {
  const directory = mkdtempSync(path.join(tmpdir(), 'vgpu-machine-'));
  context.after(() => rmSync(directory, { recursive: true, force: true }));
  grow(directory, content);
  return directory;
}

/** Names may be paths: `'usr/lib/libcuda.so.1': ...`. */
export function grow(directory: string, content: Tree): void {
  for (const [name, value] of Object.entries(content)) {
    const file = path.join(directory, name);
    mkdirSync(path.dirname(file), { recursive: true });
    if (typeof value === 'string' || Buffer.isBuffer(value)) writeFileSync(file, value);
    else if (isLink(value)) symlinkSync(value.link, file);
    else {
      mkdirSync(file, { recursive: true });
      grow(file, value);
    }
  }
}

function isLink(value: Tree | { readonly link: string }): value is { readonly link: string } {
  return typeof value['link'] === 'string';
}

/** One of NVIDIA's real libraries, or null when scripts/fetch-packages has not fetched it. */
export function realLibrary(name: 'libcuda' | 'libnvidia-ml', driver: '535' | '550'): string | null {
  const version = { '535': '535.261.03', '550': '550.163.01' }[driver];
  const file = path.join(
    packageRoot(),
    `.cache/roots/driver-${driver}/usr/lib/x86_64-linux-gnu/nvidia/current/${name}.so.${version}`,
  );
  return existsSync(file) ? file : null;
}

export const withoutRealLibraries = 'NVIDIA’s packages are not in .cache: run scripts/fetch-packages';

export interface ElfRecipe {
  readonly bits?: 32 | 64;
  readonly bigEndian?: boolean;
  /** e_machine; default x86-64 or i386. */
  readonly machine?: number;
  readonly type?: number;
  readonly soname?: string;
  readonly needed?: readonly string[];
  /** Descriptor of the VGPU note. */
  readonly note?: string;
  /** Appended to the file. */
  readonly tail?: Buffer | string;
}

export const ourNote = '{"component":"libcuda","version":"0.1.0","wire":1}';

/** A shared library with just the parts that are asked for, one PT_LOAD over the whole file at 0x1000. */
export function buildElf(recipe: ElfRecipe = {}): Buffer {
  const is64 = (recipe.bits ?? 64) === 64;
  const big = recipe.bigEndian ?? false;
  const word = is64 ? 8 : 4;
  const u16 = (value: number): Buffer => number(value, 2, big);
  const u32 = (value: number): Buffer => number(value, 4, big);
  const address = (value: number): Buffer => number(value, word, big);

  let strings = Buffer.from('\0');
  const string = (text: string): number => {
    const at = strings.length;
    strings = Buffer.concat([strings, Buffer.from(`${text}\0`)]);
    return at;
  };
  const dynamic: [number, number][] = (recipe.needed ?? []).map((name) => [1, string(name)]);
  if (recipe.soname !== undefined) dynamic.push([14, string(recipe.soname)]);

  const note = recipe.note === undefined ? Buffer.alloc(0) : buildNote(recipe.note, u32);
  const base = 0x1000;
  const headerSize = is64 ? 64 : 52;
  const segmentSize = is64 ? 56 : 32;
  const segmentCount = 2 + (note.length > 0 ? 1 : 0);
  const dynamicAt = headerSize + segmentCount * segmentSize;
  const dynamicSize = (dynamic.length + 3) * 2 * word;
  const stringsAt = dynamicAt + dynamicSize;
  const noteAt = Math.ceil((stringsAt + strings.length) / 8) * 8;
  const end = Math.ceil((noteAt + note.length) / 8) * 8;

  const segment = (type: number, offset: number, size: number): Buffer =>
    is64
      ? Buffer.concat([
          u32(type),
          u32(4),
          ...[offset, base + offset, base + offset, size, size, 8].map((value) => address(value)),
        ])
      : Buffer.concat(
          [type, offset, base + offset, base + offset, size, size, 4, 4].map((value) => u32(value)),
        );
  const header = Buffer.concat([
    Buffer.from([0x7f, 0x45, 0x4c, 0x46, is64 ? 2 : 1, big ? 2 : 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    u16(recipe.type ?? 3),
    u16(recipe.machine ?? (is64 ? 62 : 3)),
    u32(1),
    address(0),
    address(headerSize),
    address(0),
    u32(0),
    u16(headerSize),
    u16(segmentSize),
    u16(segmentCount),
    u16(is64 ? 64 : 40),
    u16(0),
    u16(0),
  ]);
  const table = [...dynamic, [5, base + stringsAt], [10, strings.length], [0, 0]] as const;
  return Buffer.concat([
    header,
    segment(1, 0, end),
    segment(2, dynamicAt, dynamicSize),
    ...(segmentCount === 3 ? [segment(4, noteAt, note.length)] : []),
    ...table.flatMap(([tag, value]) => [address(tag), address(value)]),
    strings,
    Buffer.alloc(noteAt - stringsAt - strings.length),
    note,
    Buffer.alloc(end - noteAt - note.length),
    Buffer.from(recipe.tail ?? ''),
  ]);
}

function buildNote(descriptor: string, u32: (value: number) => Buffer): Buffer {
  const bytes = Buffer.from(descriptor);
  const pad = (size: number): Buffer => Buffer.alloc((4 - (size % 4)) % 4);
  return Buffer.concat([
    u32(5),
    u32(bytes.length),
    u32(1),
    Buffer.from('VGPU\0'),
    pad(5),
    bytes,
    pad(bytes.length),
  ]);
}

function number(value: number, size: number, big: boolean): Buffer {
  const buffer = Buffer.alloc(size);
  if (size === 8) {
    if (big) buffer.writeBigUInt64BE(BigInt(value));
    else buffer.writeBigUInt64LE(BigInt(value));
  } else if (big) buffer.writeUIntBE(value, 0, size);
  else buffer.writeUIntLE(value, 0, size);
  return buffer;
}
