/** The inputs and results of every command. Commands print nothing themselves. */
import type { ExitCode } from '../../lib/errors.js';
import type { CommandEnd } from '../../lib/hand-over.js';
import type { Style } from '../../lib/style.js';
import type { Talk } from '../output/terminal.js';
import type { Ask } from '../wizard/types.js';

export interface CommandContext {
  readonly talk: Talk;
  /** Aborts at the first SIGINT, SIGTERM or SIGHUP, in a command that is stoppable. */
  readonly signal: AbortSignal;
  readonly isRoot: boolean;
  /** Asks the user yes or no; null when there is no terminal to ask on. */
  readonly ask: ((question: string) => Promise<boolean>) | null;
  /** Asks the wizard's questions; null when there is no terminal to ask on. */
  readonly dialogue: Ask | null;
  readonly stdin: NodeJS.ReadStream;
  /** Prints one line of a stream on standard output: JSON with `--json`, else the text. */
  readonly stream: (document: object, text: string) => void;
  /** Prints a line on standard error, whatever the volume: a service's own words. */
  readonly say: (text: string) => void;
  /** As `say`, in the style of standard error. */
  readonly show: (text: (style: Style) => string) => void;
  /** `--json` was given. */
  readonly json: boolean;
  /** `--verbose` was given. */
  readonly verbose: boolean;
}

/** The result of a command: one value, told in two ways. */
export interface Outcome {
  readonly exitCode: ExitCode;
  /** A command was run for the user: we exit with its status, and `exitCode` does not count. */
  readonly ended?: CommandEnd;
  /** For `--json`, as described by docs/json/<command>.schema.json. Null: all was printed as a stream. */
  readonly document: object | null;
  /** For a person, without a newline at its end. Empty: nothing to print. */
  readonly text: (style: Style) => string;
}

/**
 * Runs a command's work and reports it. With `stoppable` the first signal only aborts `context.signal`, for
 * work that must take back or close what it began; without, a signal ends the process.
 */
export type Run = (
  work: (context: CommandContext) => Promise<Outcome>,
  options?: { readonly stoppable?: boolean },
) => Promise<void>;
