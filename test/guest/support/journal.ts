// Reads a guest's journal in tests, without the agent's own reader, so that a fault of one reader does not hide a fault
// of the other.

import type { Guest } from './guest.js';

export interface JournalEntry {
  readonly message: string;
  readonly invocation: string | undefined;
  readonly unit: string | undefined;
  readonly pid: number | undefined;
  readonly cursor: string;
}

/** Parses the output of journalctl -o json; messages that are not UTF-8 come as arrays of bytes. */
export function parseJournal(output: string): JournalEntry[] {
  return output
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => {
      const fields: unknown = JSON.parse(line);
      if (typeof fields !== 'object' || fields === null) throw new Error(`not a journal entry: ${line}`);
      const field = (name: string): string | undefined => {
        const value: unknown = Object.getOwnPropertyDescriptor(fields, name)?.value;
        if (typeof value === 'string') return value;
        if (Array.isArray(value) && value.every((byte) => typeof byte === 'number')) {
          return Buffer.from(value).toString('latin1');
        }
        return undefined;
      };
      const pid = field('_PID');
      return {
        message: field('MESSAGE') ?? '',
        invocation: field('_SYSTEMD_INVOCATION_ID'),
        unit: field('_SYSTEMD_UNIT'),
        pid: pid === undefined ? undefined : Number(pid),
        cursor: field('__CURSOR') ?? '',
      };
    });
}

/** Runs journalctl after a sync, so that all earlier lines are in the journal. One command, because each entry into a guest is slow. */
export function journalctl(guest: Pick<Guest, 'must'>, ...args: readonly string[]): Promise<string> {
  return guest.must('sh', '-c', 'journalctl --sync; exec journalctl "$@"', 'sh', ...args);
}
