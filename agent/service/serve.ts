/** The service in a process of its own: signals, and an end that ends. */
import { runService } from './run.js';

/** Runs until SIGTERM or SIGINT; SIGHUP reloads. Rejects as `runService` does. */
export async function serve(line: (text: string) => void): Promise<void> {
  const stop = new AbortController();
  for (const name of ['SIGTERM', 'SIGINT'] as const) process.on(name, () => stop.abort());
  await runService({
    env: process.env,
    signal: stop.signal,
    onReload: (listener) => process.on('SIGHUP', listener),
    line,
  });
  // A child that does not end, or a lock that is still waited for, must not hold up the stop.
  setTimeout(() => process.exit(), 50).unref();
}
