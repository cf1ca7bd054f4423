/** Which users may read the system's journal: systemd-journald(8) allows root and the group systemd-journal. */
import { accessSync, constants, readdirSync } from 'node:fs';
import path from 'node:path';

/** Where journald keeps it, persistent and volatile. */
const places: readonly string[] = ['/var/log/journal', '/run/log/journal'];

/**
 * False when the system's journal is kept in `directories` and this process may read none of it. journalctl does not
 * tell that apart from an empty journal: a user without the right sees the entries of their own.
 */
export function systemJournalReadable(directories = places): boolean {
  const files = directories.flatMap((directory) =>
    namesIn(directory).map((machine) => path.join(directory, machine, 'system.journal')),
  );
  const kept = files.filter((file) => may(file, constants.F_OK));
  return kept.length === 0 || kept.some((file) => may(file, constants.R_OK));
}

function namesIn(directory: string): readonly string[] {
  try {
    return readdirSync(directory);
  } catch {
    return [];
  }
}

function may(file: string, access: number): boolean {
  try {
    accessSync(file, access);
    return true;
  } catch {
    return false;
  }
}
