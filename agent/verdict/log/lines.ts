/** A stream of bytes to log entries, in bounded memory whatever the stream holds. */
import { type Line, splitLines } from '../../lib/lines.js';
import { entriesOfJson, entryOfLine, type LogEntry } from './entry.js';

/** The limit for one line. journald itself cuts at 48 KiB. */
export const maxLineBytes = 64 * 1024;

/**
 * Entries of a log as a file or a pipe brings it: plain, with journalctl's or
 * syslog's prefixes, or `journalctl -o json`; also mixed. Bytes that are not
 * UTF-8 become U+FFFD.
 */
export async function* readEntries(stream: AsyncIterable<Buffer | string>): AsyncIterable<LogEntry> {
  let number = 0;
  for await (const line of splitLines(stream, maxLineBytes)) {
    number += 1;
    yield* entriesOfLine(line, `line ${number}`);
  }
}

function entriesOfLine(line: Line, source: string): readonly LogEntry[] {
  const raw = line.bytes.toString('utf8').replace(/\r$/, '');
  // `journalctl -o json-seq` begins each record with the separator of RFC 7464.
  const text = raw.startsWith('\u001e') ? raw.slice(1) : raw;
  if (!text.startsWith('{"')) return [entryOfLine(text, source, line.truncated)];
  const entries = line.truncated ? null : entriesOfJson(text, source);
  // Half a JSON object is not a complete line: `truncated` keeps it from announcing a device.
  return entries ?? [entryOfLine(text, source, true)];
}
