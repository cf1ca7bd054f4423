/** The service in a process of its own: signals, unexpected errors, and an end that ends. */
import { runService } from './run.js';

/** An error that comes back with every message of a stranger must not fill the journal. */
const reportsPerMinute = 10;

/**
 * An error that no handler expected is logged, and the service goes on: any user can send it messages, and a root service
 * that ends at one leaves every consumer unguarded. It may go on because no such error leaves half a state behind: what the
 * service knows is replaced as a whole (board, state machines), what it changes is in the transaction log. If it hangs,
 * systemd's watchdog ends it.
 */
export function liveOn(line: (text: string) => void, now: () => number = () => performance.now()): void {
  let since = Number.NEGATIVE_INFINITY;
  let reports = 0;
  process.on('uncaughtException', (error: unknown, origin) => {
    if (now() - since >= 60_000) {
      since = now();
      reports = 0;
    }
    reports += 1;
    if (reports > reportsPerMinute) return;
    const what = error instanceof Error ? (error.stack ?? error.message) : String(error);
    line(`unexpected error (${origin}), the service goes on; please report it: ${what}`);
    if (reports === reportsPerMinute) line('further unexpected errors of this minute are not logged');
  });
}

/** Runs until SIGTERM or SIGINT; SIGHUP reloads. Rejects as `runService` does. */
export async function serve(line: (text: string) => void): Promise<void> {
  // While journald restarts a write may fail; the report of that would fail as well.
  process.stderr.on('error', () => {});
  liveOn(line);
  const stop = new AbortController();
  for (const name of ['SIGTERM', 'SIGINT'] as const) process.on(name, () => stop.abort());
  try {
    await runService({
      env: process.env,
      signal: stop.signal,
      onReload: (listener) => process.on('SIGHUP', listener),
      line,
    });
  } finally {
    // A child that does not end, or a lock that is still waited for, must not hold up the stop.
    setTimeout(() => process.exit(), 50).unref();
  }
}
