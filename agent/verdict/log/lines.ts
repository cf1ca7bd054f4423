/** A stream of bytes to log entries, in bounded memory whatever the stream holds. */
import { entriesOfJson, entryOfLine, type LogEntry } from './entry.js';

/** The limit for one line. journald itself cuts at 48 KiB. */
export const maxLineBytes = 64 * 1024;

interface RawLine {
  readonly bytes: Buffer;
  readonly number: number;
  readonly truncated: boolean;
}

/**
 * Entries of a log as a file or a pipe brings it: plain, with journalctl's or
 * syslog's prefixes, or `journalctl -o json`; also mixed. Bytes that are not
 * UTF-8 become U+FFFD.
 */
export async function* readEntries(stream: AsyncIterable<Buffer | string>): AsyncIterable<LogEntry> {
  for await (const line of splitLines(stream)) yield* entriesOfLine(line);
}

function entriesOfLine(line: RawLine): readonly LogEntry[] {
  const source = `line ${line.number}`;
  const raw = line.bytes.toString('utf8').replace(/\r$/, '');
  // `journalctl -o json-seq` begins each record with the separator of RFC 7464.
  const text = raw.startsWith('\u001e') ? raw.slice(1) : raw;
  if (!text.startsWith('{"')) return [entryOfLine(text, source, line.truncated)];
  const entries = line.truncated ? null : entriesOfJson(text, source);
  // Half a JSON object is not a complete line: `truncated` keeps it from announcing a device.
  return entries ?? [entryOfLine(text, source, true)];
}

/** Splits at `\n`. Holds one line of at most `maxLineBytes` at a time. */
async function* splitLines(stream: AsyncIterable<Buffer | string>): AsyncIterable<RawLine> {
  let parts: Buffer[] = [];
  let held = 0;
  let truncated = false;
  let number = 0;
  const keep = (piece: Buffer): void => {
    const kept = piece.subarray(0, maxLineBytes - held);
    if (kept.length < piece.length) truncated = true;
    // After the limit the rest of the line is dropped, including empty pieces.
    if (kept.length === 0) return;
    // A copy: a slice would keep its whole chunk alive.
    parts.push(Buffer.from(kept));
    held += kept.length;
  };
  const take = (): RawLine => {
    number += 1;
    const line = { bytes: Buffer.concat(parts, held), number, truncated };
    parts = [];
    held = 0;
    truncated = false;
    return line;
  };
  for await (const chunk of stream) {
    const bytes = typeof chunk === 'string' ? Buffer.from(chunk) : chunk;
    let from = 0;
    for (;;) {
      const end = bytes.indexOf(0x0a, from);
      if (end === -1) break;
      keep(bytes.subarray(from, end));
      yield take();
      from = end + 1;
    }
    keep(bytes.subarray(from));
  }
  if (held > 0) yield take();
}
