/** Standard output and standard error as output/ writes them. */
import { errnoOf, VgpuError } from '../../lib/errors.js';

/** Where text goes. `write` never throws; text for a reader that has gone is dropped. */
export interface Sink {
  readonly isTty: boolean;
  readonly columns: number | undefined;
  write(text: string): void;
  /** Resolves when all is written. Throws a VgpuError (`failed`) when it could not be, EPIPE excepted. */
  flush(): Promise<void>;
}

/**
 * A stream as a Sink. A reader that went away (`| head`) is no failure of the command: EPIPE is swallowed, and so
 * is all that follows. A full disk behind the stream is one, told by `flush`.
 */
export function streamSink(stream: NodeJS.WriteStream, name: string): Sink {
  let failure: Error | null = null;
  stream.on('error', (error: Error) => {
    failure ??= error;
  });
  return {
    get isTty() {
      return stream.isTTY === true;
    },
    get columns() {
      return stream.columns;
    },
    write(text) {
      if (failure === null) stream.write(text);
    },
    async flush() {
      // Written in order: when this empty text is through, so is everything before it.
      if (failure === null) await new Promise<void>((resolve) => stream.write('', () => resolve()));
      if (failure === null || errnoOf(failure) === 'EPIPE') return;
      throw new VgpuError(`cannot write to ${name}: ${errnoOf(failure) ?? String(failure)}`, {
        kind: 'failed',
        operation: `write ${name}`,
        path: name,
        cause: failure,
      });
    },
  };
}
