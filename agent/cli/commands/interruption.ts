/** SIGINT and its like: the first asks politely, the second is obeyed at once. */
import { ExitCode } from '../../lib/errors.js';

const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

export interface Interruption {
  readonly signal: AbortSignal;
  /** Takes the handlers away again. */
  done(): void;
}

/** For commands that change nothing: signals end the process at once, as they always do. */
export function neverStopped(): Interruption {
  return { signal: new AbortController().signal, done: () => {} };
}

/**
 * From now on the first of SIGINT, SIGTERM and SIGHUP aborts `signal`: what changes files finishes its step
 * and takes it back. Being killed is safe too (the next command undoes), so a second one ends the process.
 */
export function interruption(self: NodeJS.Process = process): Interruption {
  const controller = new AbortController();
  const hear = (): void => {
    if (controller.signal.aborted) self.exit(ExitCode.interrupted);
    controller.abort();
  };
  for (const name of signals) self.on(name, hear);
  return {
    signal: controller.signal,
    done: () => {
      for (const name of signals) self.off(name, hear);
    },
  };
}
