/** One line of `journalctl -o json` to a JournalEntry. */

import { member } from '../lib/own.js';
import type { JournalEntry } from './types.js';

/** The fields that are read; journalctl adds `__CURSOR` and `__REALTIME_TIMESTAMP` by itself. */
export const outputFields = ['MESSAGE', '_PID', '_SYSTEMD_INVOCATION_ID', 'INVOCATION_ID', '_TRANSPORT'].join(
  ',',
);

/**
 * Null when the line is no JSON object with a cursor: a journal that is cut short in the middle of an entry
 * must not end the following.
 *
 * A field's value is a string; an array of byte values when it is not UTF-8; null when journalctl found it
 * too long; or an array of any of these when the entry has the field more than once (systemd.journal-fields(7)).
 */
export function parseEntry(line: string): JournalEntry | null {
  let fields: unknown;
  try {
    fields = JSON.parse(line);
  } catch {
    return null;
  }
  if (typeof fields !== 'object' || fields === null) return null;
  const get = (name: string): FieldValue => fieldValue(member(fields, name));

  const cursor = get('__CURSOR').text;
  const realtime = get('__REALTIME_TIMESTAMP').text;
  if (cursor === null || realtime === null || !/^\d+$/.test(realtime)) return null;
  const message = get('MESSAGE');
  const pid = get('_PID').text;
  return {
    cursor,
    realtimeUs: BigInt(realtime),
    message: message.text ?? '',
    raw: message.bytes,
    pid: pid !== null && /^\d+$/.test(pid) ? Number(pid) : null,
    // The manager's own lines about a unit (`Main process exited`) name the start they are about here.
    invocationId: get('_SYSTEMD_INVOCATION_ID').text ?? get('INVOCATION_ID').text,
    transport: get('_TRANSPORT').text,
  };
}

interface FieldValue {
  readonly text: string | null;
  /** Only when the value was not UTF-8. */
  readonly bytes: Buffer | null;
}

const absent: FieldValue = { text: null, bytes: null };

function fieldValue(value: unknown): FieldValue {
  if (typeof value === 'string') return { text: value, bytes: null };
  if (!Array.isArray(value) || value.length === 0) return absent;
  if (value.every((item) => typeof item === 'number')) {
    const bytes = Buffer.from(value);
    return { text: bytes.toString('utf8'), bytes };
  }
  const parts = value.map(fieldValue).filter((part) => part.text !== null);
  if (parts.length === 0) return absent;
  return {
    text: parts.map((part) => part.text).join('\n'),
    bytes: parts.find((part) => part.bytes !== null)?.bytes ?? null,
  };
}
