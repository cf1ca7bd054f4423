/** Runs one worker on request: immediately, after a quiet moment, or at a given time. Never two runs at a time. */

import { setTimeout as sleep } from 'node:timers/promises';
import { reportUnexpected } from '../lib/errors.js';
import type { Board } from './board.js';

export type Pacer = ReturnType<typeof pacer>;

const quietMs = 10;
const longestMs = 80;
/** setTimeout's own limit is 2^31 ms. */
const maxTimerMs = 86_400_000;

export function pacer(run: () => Promise<void>, signal: AbortSignal) {
  let running = false;
  let again = false;
  let soonTimer: NodeJS.Timeout | null = null;
  let soonSince = 0;
  let atTimer: NodeJS.Timeout | null = null;
  let waiting: (() => void)[] = [];

  const idle = (): boolean => !running && !again && soonTimer === null;
  const go = async (): Promise<void> => {
    if (soonTimer !== null) clearTimeout(soonTimer);
    soonTimer = null;
    if (running) {
      again = true;
      return;
    }
    if (signal.aborted) return;
    if (atTimer !== null) clearTimeout(atTimer);
    atTimer = null;
    running = true;
    do {
      again = false;
      // A failed run must not stop later ones.
      await run().catch(reportUnexpected);
    } while (again && !signal.aborted);
    running = false;
    if (!idle()) return;
    const settled = waiting;
    waiting = [];
    for (const resolve of settled) resolve();
  };
  signal.addEventListener('abort', () => {
    if (soonTimer !== null) clearTimeout(soonTimer);
    if (atTimer !== null) clearTimeout(atTimer);
    soonTimer = null;
    atTimer = null;
  });

  return {
    now: (): void => void go(),
    /** After 10 ms without a new request, but at most 80 ms later: a package's upgrade makes hundreds of requests. */
    soon(): void {
      if (signal.aborted) return;
      const now = performance.now();
      if (soonTimer === null) soonSince = now;
      else clearTimeout(soonTimer);
      const left = Math.max(0, Math.min(quietMs, soonSince + longestMs - now));
      soonTimer = setTimeout(() => void go(), left);
    },
    /** At a moment of `steadyNow()`, if nothing runs before. */
    at(time: number): void {
      if (signal.aborted) return;
      if (atTimer !== null) clearTimeout(atTimer);
      atTimer = setTimeout(() => void go(), Math.min(Math.max(0, time - steadyNow()), maxTimerMs));
    },
    /** Resolves when nothing runs and no run is requested; runs at a later time do not count. */
    quiet: (): Promise<void> =>
      idle() ? Promise.resolve() : new Promise((resolve) => waiting.push(resolve)),
  };
}

/**
 * Monotonic milliseconds, for limits, pauses and durations. They begin with the time of day at which the service began, so
 * that they can be shown as a time of day, which is wrong by later changes of the clock.
 */
export function steadyNow(): number {
  return performance.timeOrigin + performance.now();
}

// Waits that end: after a time, or when the service stops.

/** Never rejects; ends early when the signal aborts. */
export async function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  await sleep(milliseconds, undefined, { signal }).catch(() => {});
}

/** Until the host answers, but not longer than `limitMs`; at once where there is none to ask. */
export async function hostKnown(board: Board, limitMs: number, signal: AbortSignal): Promise<void> {
  if (board.now.host.endpoint === '' || board.now.host.answers === true) return;
  const end = new AbortController();
  board.listen((now) => {
    if (now.host.answers === true) end.abort();
  });
  await pause(limitMs, AbortSignal.any([signal, end.signal]));
}
