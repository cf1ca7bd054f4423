/** A limit on the messages that strangers may send to a connection of dbus-next, which reads a message of any size. */
import type { Readable } from 'node:stream';

/**
 * Any user may send calls and signals of up to 32 MiB (dbus-daemon's max_message_size), and JavaScript makes up to a hundred
 * bytes of each of theirs. Ours are shorter than this by far.
 */
const longestBytes = 64 * 1024;
/** A reply comes from the service that was called: systemd's may be long. */
const replies: readonly (number | undefined)[] = [2, 3];
const headerBytes = 16;

/** Bytes after a message's first 16: header fields padded to eight, and the body (D-Bus specification, Message Format). */
function restOf(header: Buffer): number {
  const little = header[0] === 'l'.charCodeAt(0);
  const body = little ? header.readUInt32LE(4) : header.readUInt32BE(4);
  const fields = little ? header.readUInt32LE(12) : header.readUInt32BE(12);
  return Math.ceil(fields / 8) * 8 + body;
}

/**
 * Drops what is longer, without keeping it in memory. dbus-next takes a message from the stream in two reads: the first 16
 * bytes, then with a second argument the rest.
 */
export function limitMessages(stream: Readable): void {
  const read = stream.read.bind(stream);
  let skip = 0;
  stream.read = (size?: number, ...rest: readonly unknown[]): unknown => {
    if (size !== headerBytes || rest.length > 0) return read(size);
    for (;;) {
      while (skip > 0) {
        // With nothing there this asks for more: the event `readable` comes again.
        const part: unknown = read(Math.min(skip, Math.max(1, stream.readableLength)));
        if (!Buffer.isBuffer(part)) return null;
        skip -= part.length;
      }
      const header: unknown = read(headerBytes);
      if (!Buffer.isBuffer(header) || header.length < headerBytes) return header;
      const length = restOf(header);
      if (length <= longestBytes || replies.includes(header[1])) return header;
      skip = length;
    }
  };
}
