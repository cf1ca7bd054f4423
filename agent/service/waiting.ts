/** Waits that end: after a time, or when the service stops. */
import type { Board } from './board.js';

export function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      signal.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, milliseconds);
    if (signal.aborted) done();
    else signal.addEventListener('abort', done, { once: true });
  });
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
