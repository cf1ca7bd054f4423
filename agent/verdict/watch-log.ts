/** Follows one consumer's log (journal, file or container) and judges it meanwhile. */
import { messageOf } from '../lib/errors.js';
import type { JournalEntry } from '../systemd/types.js';
import { entriesOfJournal, type LogEntry, readEntries, withoutContainerName } from './log/entry.js';
import type { JudgeState } from './log/findings.js';
import { type LogJudge, logJudges } from './log/judge.js';
import type { ConfirmEffects, ConfirmOptions, Line } from './observation.js';

/** The number of entries kept for each start that systemd has not reported yet. */
const maxHeld = 2000;
const maxHeldLength = 1024 * 1024;
const maxHeldStarts = 4;
/** A follower that delivered an entry within this time is still reading existing entries. */
const readingMs = 100;
const maxWords = 4;
/** systemd's messages about the end of a process or a failed start; its other messages are ignored. */
const beginOfStart = /^Start(?:ing|ed) /;
const tellingWords = /: (?:Main process exited|Failed )|^Failed to /;

export function watchLog(
  options: Pick<ConfirmOptions, 'profile' | 'cursor' | 'outputFile' | 'composed'>,
  effects: Pick<ConfirmEffects, 'journal' | 'followFile' | 'containerLogs' | 'clock'>,
  firstInvocation: string | null,
  signal: AbortSignal,
) {
  const { profile } = options;
  const newJudge = logJudges(profile);
  /** A later line of the same start may contradict an earlier one, so half a log has no findings. */
  const unread = newJudge().findings();
  let judge: LogJudge = newJudge();
  let invocationId = firstInvocation;
  let announcedAt: number | null = null;
  let error: string | null = null;
  let caughtUp = false;
  let read = 0;
  let heardAt = Number.NEGATIVE_INFINITY;
  /** Reading from a cursor begins at the beginning of a start. */
  let begun = options.cursor !== null;
  let state: JudgeState = 'undecided';
  let follower: AbortController | null = null;
  let containers: AbortController | null = null;
  const held = new Map<string, { readonly entries: LogEntry[]; length: number }>();
  const words: Line[] = [];

  const remember = ({ text, source, speaker }: LogEntry): void => {
    if (text.trim() === '' || (speaker !== 'consumer' && !tellingWords.test(text))) return;
    words.push({ text: text.trim(), source });
    if (words.length > maxWords) words.shift();
  };

  const push = (entry: LogEntry): void => {
    state = judge.push(entry);
    if (state === 'undecided') announcedAt = null;
    else announcedAt ??= effects.clock.now();
  };

  /** Only lines that systemd marks with this start's ID count. */
  const take = (entry: JournalEntry): void => {
    if (entry.invocationId === null) return;
    if (entry.pid === 1 && entry.invocationId === invocationId && beginOfStart.test(entry.message))
      begun = true;
    for (const whole of entriesOfJournal(entry)) {
      const item = options.composed === true ? { ...whole, text: withoutContainerName(whole.text) } : whole;
      remember(item);
      if (entry.invocationId === invocationId) push(item);
      else hold(entry.invocationId, item);
    }
  };

  const hold = (id: string, entry: LogEntry): void => {
    const kept = held.get(id) ?? { entries: [], length: 0 };
    kept.length += entry.text.length;
    if (kept.entries.length < maxHeld && kept.length <= maxHeldLength) kept.entries.push(entry);
    held.set(id, kept);
    for (const oldest of held.keys()) {
      if (held.size <= maxHeldStarts) break;
      held.delete(oldest);
    }
  };

  const followJournal = async (): Promise<void> => {
    try {
      let cursor = options.cursor ?? (await readSoFar());
      caughtUp = !signal.aborted;
      while (!signal.aborted) {
        follower = new AbortController();
        const ending = AbortSignal.any([signal, follower.signal]);
        const place = { unit: profile.unit, cursor, signal: ending };
        for await (const entry of effects.journal.follow(place)) {
          cursor = entry.cursor;
          heardAt = effects.clock.now();
          take(entry);
        }
        // A container that ended prints nothing more.
        if (!ending.aborted) break;
      }
    } catch (problem) {
      if (signal.aborted) return;
      error = messageOf(problem);
      caughtUp = true;
    }
  };

  const readSoFar = async (): Promise<string | null> => {
    // First the end of the journal, then the entries: entries in between are seen twice, not lost.
    let cursor = await effects.journal.tail(signal);
    if (invocationId === null) return cursor;
    const start = { unit: profile.unit, invocationId, signal };
    for await (const entry of effects.journal.read(start)) {
      cursor = entry.cursor;
      read += 1;
      take(entry);
    }
    return cursor;
  };

  const followOutputFile = async (): Promise<void> => {
    if (options.outputFile === null) return;
    const { path, offset } = options.outputFile;
    try {
      for await (const entry of readEntries(effects.followFile(path, offset, signal))) {
        const item = { ...entry, source: `${path}, ${entry.source} of this start` };
        remember(item);
        push(item);
      }
    } catch (problem) {
      if (!signal.aborted) error = messageOf(problem);
    }
  };

  const followContainers = async (): Promise<void> => {
    try {
      while (!signal.aborted) {
        containers = new AbortController();
        const ending = AbortSignal.any([signal, containers.signal]);
        for await (const { source, bytes } of effects.containerLogs(ending)) {
          // A container that replaced another one has not reported its device yet.
          restartJudge();
          for await (const entry of readEntries(bytes)) {
            if (ending.aborted) break;
            const item = { ...entry, source: `${source}, ${entry.source} of this start` };
            remember(item);
            push(item);
          }
        }
        if (!ending.aborted) break;
      }
    } catch (problem) {
      if (!signal.aborted) error = messageOf(problem);
    }
  };

  const restartJudge = (): void => {
    announcedAt = null;
    state = 'undecided';
    judge = newJudge();
  };

  return {
    state: () => (caughtUp ? state : 'undecided'),
    findings: () => (caughtUp ? judge.findings() : unread),
    announcedAt: () => (caughtUp ? announcedAt : null),
    error: () =>
      error ?? (caughtUp ? null : `${read} entries of this start were read in the time, and there are more`),
    /** The journal was read, and systemd's entry about the beginning of this start is not in it. */
    cut: () => caughtUp && !begun && error === null,
    /** The log of the start before this watch began has been read, as far as it can be. */
    caughtUp: () => caughtUp,
    entriesRead: () => read,
    /** The newest lines of the unit, of any start: the reason if it ended. */
    lastWords: (): readonly Line[] => words,
    /**
     * Starts a new journal reader, because a follower receives new entries 290 to 470 ms late (docs/reference/benchmarks.md).
     * A reader that is receiving entries is not restarted: beginning again takes a busy machine longer than the next entries.
     */
    catchUp() {
      if (effects.clock.now() - heardAt >= readingMs) follower?.abort();
    },
    begin(id: string) {
      if (id === invocationId) return;
      invocationId = id;
      begun = true;
      // The container's log is read again from its beginning: the judge has forgotten it.
      containers?.abort();
      announcedAt = null;
      state = 'undecided';
      // A file has no invocation IDs: the start lines in it separate the starts.
      if (options.outputFile === null) judge = newJudge();
      for (const entry of held.get(id)?.entries ?? []) push(entry);
      held.delete(id);
    },
    done: Promise.all([followJournal(), followOutputFile(), followContainers()]),
  };
}
