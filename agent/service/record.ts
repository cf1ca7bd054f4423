/** The service's messages: they go to the journal with fields and an ID, and nowhere else. */
import type { JournalMessage } from '../contracts/journal-messages.js';
import type { JournalWriter } from '../systemd/journal-writer.js';

export interface Record {
  write(message: JournalMessage): void;
  /** A line without an ID of its own. */
  say(text: string): void;
}

/** `line` takes what has no ID; under systemd standard error is the journal too. */
export function recordTo(journal: JournalWriter, line: (text: string) => void): Record {
  return {
    // Nothing waits for the journal; the writer never rejects.
    write: (message) => void journal.write(message),
    say: line,
  };
}
