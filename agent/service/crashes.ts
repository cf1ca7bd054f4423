/**
 * Starts after crashes. systemd starts the service again however often it ends, because drift must be repaired again some
 * time. RestartSteps=, which lengthens the pauses, is of systemd 254, so the service itself waits, and reports it.
 */
import { readFileSync, rmSync, writeFileSync } from 'node:fs';

export interface Crashes {
  /** Ends without a clean stop within the last ten minutes. */
  readonly recent: number;
  /** Milliseconds to wait before anything is done. */
  readonly pauseMs: number;
  /** A clean stop: the next start counts from zero. */
  forget(): void;
}

const windowMs = 600_000;
/** An upgrade, a bus that restarts: so many in a row are answered at once. */
const free = 8;
const firstPauseMs = 400;
const longestPauseMs = 30_000;
const mostKept = 64;

/** `now`: milliseconds since boot; `file` lies in /run, so the times in it are of the same boot. */
export function noteStart(file: string, now: number): Crashes {
  const starts = [...startsIn(file).filter((at) => at <= now && now - at < windowMs), now].slice(-mostKept);
  const forget = (): void => rmSync(file, { force: true });
  const recent = starts.length - 1;
  const pauseMs = recent < free ? 0 : Math.min(firstPauseMs * 2 ** (recent - free), longestPauseMs);
  try {
    writeFileSync(file, JSON.stringify(starts), { mode: 0o600 });
  } catch {
    // Run by hand without its directory in /run, or no space is left: there is no pause then.
    return { recent: 0, pauseMs: 0, forget() {} };
  }
  return { recent, pauseMs, forget };
}

function startsIn(file: string): readonly number[] {
  try {
    const value: unknown = JSON.parse(readFileSync(file, 'utf8'));
    return Array.isArray(value) ? value.filter((at) => typeof at === 'number') : [];
  } catch {
    return [];
  }
}
