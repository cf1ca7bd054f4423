/** One line of a consumer's log, without the prefix of journalctl, syslog or docker. */

import { jsonIn } from '../../lib/json.js';
import { type Line, splitLines } from '../../lib/lines.js';
import { fieldText } from '../../systemd/journal-reader.js';
import type { JournalEntry } from '../../systemd/types.js';

export interface LogEntry {
  readonly text: string;
  /** Where it is from: `line 17`, `journal cursor s=...`. */
  readonly source: string;
  /** `_SYSTEMD_INVOCATION_ID`, if known: entries of two starts differ in it. */
  readonly invocationId: string | null;
  readonly pid: number | null;
  /** `manager`: systemd's message about the unit; `boundary`: a new boot. */
  readonly speaker: 'consumer' | 'manager' | 'boundary';
  readonly truncated: boolean;
}

/** The name of a month or day in any language: a word, in some languages after a space or with a number. */
const name = ' {0,2}[^\\s[\\]=":]{1,20} (?:\\d{1,2} )?';
const stamps = [
  new RegExp(`${name}[ \\d]\\d \\d\\d:\\d\\d:\\d\\d(?:\\.\\d{1,9})?`),
  /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)/,
  new RegExp(`${name}\\d{4}-\\d\\d-\\d\\d \\d\\d:\\d\\d:\\d\\d(?:\\.\\d{1,9})? [A-Za-z0-9+:-]{1,8}`),
  /\d{9,10}\.\d{6}/,
  /\[ {0,10}\d{1,10}\.\d{1,6}\]/,
];
const prefix = new RegExp(
  `^(?:${stamps.map((stamp) => stamp.source).join('|')}) (?:[^\\s:[\\]]{1,255} )?([^\\s:[\\]]{1,255})(?:\\[(\\d{1,10})\\])?:(?: |$)`,
);
/** `docker logs -t`, `kubectl logs --timestamps`: a time before the line itself, and no name of a program. */
const bareStamp = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d) /;
/** journalctl writes no Z, and six digits at most. */
const engineStamp = /^[\d-]{10}T[\d:]{8}(?:\.\d{7,9}|(?:\.\d{1,6})?Z)/;
/** syslog with such a time has the name of the host as well. */
const withHost = /^\S{20,35} \S{1,255} [^\s:[\]]{1,255}(?:\[\d{1,10}\])?:(?: |$)/;
/** Escape sequences such as `ESC [ 2 K`, which compose 2 writes into a journal too. */
const escapes = '(?:\\u001b\\[[\\d;]{0,16}[A-Za-z]){0,4}';
/** `docker compose up` and `docker compose logs`: the container's name and a bar. */
const containerPrefix = new RegExp(
  `^${escapes}[A-Za-z0-9][\\w.-]{0,100}${escapes} +\\|${escapes}(?: ${escapes}|$)`,
  'u',
);
/** SYSLOG_IDENTIFIER of a unit that runs it. */
const composers: ReadonlySet<unknown> = new Set(['docker', 'docker-compose']);

/** The message of a compose service, without the name that `docker compose up` and `docker compose logs` print first. */
export function withoutContainerName(text: string): string {
  return text.replace(containerPrefix, '').replace(bareStamp, '');
}

export function entryOfLine(line: string, source: string, truncated: boolean): LogEntry {
  const base = { source, invocationId: null, truncated } as const;
  if (/^-- (?:Boot [0-9a-f]{32}|Reboot) --$/.test(line)) {
    return { ...base, text: line, pid: null, speaker: 'boundary' };
  }
  const match = engineStamp.test(line) && !withHost.test(line) ? null : prefix.exec(line);
  if (match !== null) {
    const pid = match[2] === undefined ? null : Number(match[2]);
    const speaker = match[1] === 'systemd' ? 'manager' : 'consumer';
    const text = line.slice(match[0].length);
    return { ...base, text: composers.has(match[1]) ? withoutContainerName(text) : text, pid, speaker };
  }
  return { ...base, text: withoutContainerName(line), pid: null, speaker: 'consumer' };
}

/** The entries (a MESSAGE may hold several lines) of one line of `journalctl -o json`, or null if it is none. */
export function entriesOfJson(line: string, source: string): readonly LogEntry[] | null {
  const parsed = jsonIn(line);
  if (typeof parsed !== 'object' || parsed === null || !('MESSAGE' in parsed)) return null;
  const record: Readonly<Record<string, unknown>> = { ...parsed };
  const text = fieldText(record['MESSAGE']);
  if (text === null) return [];
  const pid = Number(record['_PID']);
  const invocationId = record['_SYSTEMD_INVOCATION_ID'];
  const common = {
    source,
    invocationId: typeof invocationId === 'string' ? invocationId : null,
    pid: Number.isSafeInteger(pid) && pid > 0 ? pid : null,
    speaker:
      pid === 1 && record['SYSLOG_IDENTIFIER'] === 'systemd' ? ('manager' as const) : ('consumer' as const),
    truncated: false,
  };
  const composed = composers.has(record['SYSLOG_IDENTIFIER']);
  return text.split('\n').map((part) => ({ ...common, text: composed ? withoutContainerName(part) : part }));
}

export function entriesOfJournal({ cursor, message, pid, invocationId }: JournalEntry): readonly LogEntry[] {
  const source = `journal cursor ${cursor}`;
  const speaker = pid === 1 ? 'manager' : 'consumer';
  return message.split('\n').map((text) => ({ text, source, invocationId, pid, speaker, truncated: false }));
}

// A stream of bytes to log entries, in bounded memory whatever the stream holds.

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
