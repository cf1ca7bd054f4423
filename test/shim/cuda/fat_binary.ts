/** Fat binaries made by hand: what nvcc's fatbinary tool would make of the same entries. */

export interface FatEntry {
  readonly kind: 'ptx' | 'elf';
  /** 90 for compute capability 9.0. */
  readonly architecture: number;
  readonly payload: Buffer;
  readonly packed?: 'lz4' | 'zstd';
  /** Extra bits of the flags, such as 0x100000 for sm_90a. */
  readonly flags?: number;
}

const MAGIC = 0xba55ed50;
const FLAGS = { plain: 0x11, lz4: 0x2000, zstd: 0x8000 } as const;

/** An LZ4 block of literals only: any decoder of the format takes it. */
export function lz4Literals(bytes: Buffer): Buffer {
  const extra: number[] = [];
  let left = bytes.length - 15;
  if (left >= 0) {
    for (; left >= 255; left -= 255) extra.push(255);
    extra.push(left);
  }
  return Buffer.concat([Buffer.from([Math.min(bytes.length, 15) << 4, ...extra]), bytes]);
}

/** A zstd frame of raw blocks (RFC 8878, 3.1.1). */
export function zstdRaw(bytes: Buffer): Buffer {
  const header = Buffer.alloc(4 + 1 + 4);
  header.writeUInt32LE(0xfd2fb528, 0);
  header[4] = 0xa0; // single segment, content size in 4 bytes
  header.writeUInt32LE(bytes.length, 5);
  const blocks: Buffer[] = [];
  for (let at = 0; at < bytes.length; at += 65536) {
    const piece = bytes.subarray(at, at + 65536);
    const block = Buffer.alloc(3);
    block.writeUIntLE((at + 65536 >= bytes.length ? 1 : 0) | (piece.length << 3), 0, 3);
    blocks.push(block, piece);
  }
  return Buffer.concat([header, ...blocks]);
}

function entryBytes({ kind, architecture, payload, packed, flags = 0 }: FatEntry): Buffer {
  const stored = packed === 'lz4' ? lz4Literals(payload) : packed === 'zstd' ? zstdRaw(payload) : payload;
  const padded = Buffer.alloc((stored.length + 7) & ~7);
  stored.copy(padded);
  const header = Buffer.alloc(64);
  header.writeUInt16LE(kind === 'ptx' ? 1 : 2, 0);
  header.writeUInt16LE(0x101, 2);
  header.writeUInt32LE(64, 4);
  header.writeBigUInt64LE(BigInt(padded.length), 8);
  header.writeUInt32LE(packed === undefined ? 0 : stored.length, 16);
  header.writeUInt32LE(architecture, 28);
  header.writeUInt32LE(FLAGS.plain | (packed === undefined ? 0 : FLAGS[packed]) | flags, 40);
  header.writeBigUInt64LE(packed === undefined ? 0n : BigInt(payload.length), 56);
  return Buffer.concat([header, padded]);
}

export function fatBinary(entries: readonly FatEntry[]): Buffer {
  const content = Buffer.concat(entries.map(entryBytes));
  const header = Buffer.alloc(16);
  header.writeUInt32LE(MAGIC, 0);
  header.writeUInt16LE(1, 4);
  header.writeUInt16LE(16, 6);
  header.writeBigUInt64LE(BigInt(content.length), 8);
  return Buffer.concat([header, content]);
}
