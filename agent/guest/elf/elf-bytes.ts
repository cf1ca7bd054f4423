/** Checked access to the bytes of an ELF file: whatever an offset or length claims, reading stays inside. */
import fs from 'node:fs';

/** Bytes at an offset. */
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

/** Field access for one class and byte order. */
export class Layout {
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
