/** Waits that end: after a time, or when the service stops. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Board } from './board.js';

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
