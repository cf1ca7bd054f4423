export const ExitCode = {
  done: 0,
  internal: 1,
  usage: 2,
  cpu: 3,
  undetermined: 4,
  degraded: 5,
  refused: 6,
  rolledBack: 7,
  interrupted: 130,
} as const;
export type ExitCode = (typeof ExitCode)[keyof typeof ExitCode];

/**
 * The coarse kind of a failure: decides the exit code.
 * - `usage`: a bad flag or argument; `profile`: a profile that does not fit its schema
 * - `refused`: we could, but must not (not root, a file of another owner, a working real GPU, lock held)
 * - `failed`: the machine said no (I/O, bus, a tool); nothing half done is left
 * - `rolled-back`: failed, and everything was undone
 * - `interrupted`: the person said stop
 * - `internal`: a bug of vgpu-agent
 */
type ErrorKind = 'usage' | 'profile' | 'refused' | 'failed' | 'rolled-back' | 'interrupted' | 'internal';

interface ErrorDetails {
  readonly kind: ErrorKind;
  readonly operation: string;
  readonly path?: string | undefined;
  readonly remedy?: string | undefined;
  readonly cause?: unknown;
}

/** An error that a person can act on. `message` quotes the offending value. */
export class VgpuError extends Error {
  override readonly name = 'VgpuError';
  readonly kind: ErrorKind;
  readonly operation: string;
  readonly path: string | undefined;
  readonly remedy: string | undefined;

  constructor(message: string, details: ErrorDetails) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.kind = details.kind;
    this.operation = details.operation;
    this.path = details.path;
    this.remedy = details.remedy;
  }
}

export function stopIfAsked(
  signal: AbortSignal | undefined,
  message: string,
  details: Omit<ErrorDetails, 'kind'>,
): void {
  if (signal?.aborted === true) throw new VgpuError(message, { ...details, kind: 'interrupted' });
}

export function errnoOf(error: unknown): string | undefined {
  if (error instanceof Error && 'code' in error && typeof error.code === 'string') {
    return error.code;
  }
  return undefined;
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

export function exitCodeOf(error: unknown): ExitCode {
  if (!(error instanceof VgpuError)) return ExitCode.internal;
  switch (error.kind) {
    case 'usage':
    case 'profile':
      return ExitCode.usage;
    case 'refused':
      return ExitCode.refused;
    case 'rolled-back':
      return ExitCode.rolledBack;
    case 'interrupted':
      return ExitCode.interrupted;
    case 'failed':
    case 'internal':
      return ExitCode.internal;
  }
}

/** For the last catch of a handler: throws the error from an empty stack. The service logs it and goes on; a command ends. */
export function reportUnexpected(error: unknown): void {
  setImmediate(() => {
    throw error;
  });
}
