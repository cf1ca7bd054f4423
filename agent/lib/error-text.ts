import { type ExitCode, errnoOf, exitCodeOf, VgpuError } from './errors.js';
import { printable, type Style, wrap } from './text.js';

interface ErrorDocument {
  readonly kind: string;
  readonly message: string;
  readonly operation: string | null;
  readonly path: string | null;
  readonly remedy: string | null;
  readonly exitCode: ExitCode;
}

export function errorDocument(error: unknown): ErrorDocument {
  const known = error instanceof VgpuError ? error : null;
  const limit = known === null ? limitReached(error) : null;
  const message = error instanceof Error ? error.message : String(error);
  return {
    kind: known?.kind ?? (limit === null ? 'internal' : 'failed'),
    message: limit === null ? message : `${limit.reached}: ${message}`,
    operation: known?.operation ?? null,
    path: known?.path ?? null,
    remedy: known?.remedy ?? limit?.remedy ?? null,
    exitCode: exitCodeOf(error),
  };
}

/** One message, its remedy on a line of its own. `verbose` adds the causes, and the stack of a bug. */
export function errorText(error: unknown, style: Style, verbose: boolean): string {
  const { message, remedy, kind } = errorDocument(error);
  const said = kind === 'internal' ? `internal error: ${message}` : message;
  const lines = [`${style.bad('vgpu-agent:')} ${indented(shortened(printable(said)), style.width - 12)}`];
  if (remedy !== null) lines.push(`  ${style.bold('try:')} ${indented(printable(remedy), style.width - 7)}`);
  if (kind === 'internal' && remedy === null) {
    lines.push(
      '  This is a bug in vgpu-agent. Please report it with the output of the same command and --verbose.',
    );
  }
  if (verbose) lines.push(...causes(error));
  return lines.join('\n');
}

/** A value as it was typed may be of any length; a path of the system has at most 4,096 bytes. */
function shortened(text: string): string {
  return text.replace(/\S{5000,}/g, (word) => `${word.slice(0, 80)}... (${word.length} characters)`);
}

function indented(text: string, width: number): string {
  return text
    .split('\n')
    .map((line) => wrap(line, width))
    .join('\n')
    .replaceAll('\n', '\n  ');
}

function causes(error: unknown): readonly string[] {
  const lines: string[] = [];
  if (!(error instanceof VgpuError) && error instanceof Error && error.stack !== undefined) {
    lines.push(printable(error.stack));
  }
  for (let cause = causeOf(error); cause !== undefined; cause = causeOf(cause)) {
    lines.push(`  caused by: ${printable(cause instanceof Error ? cause.message : String(cause))}`);
  }
  return lines;
}

function causeOf(error: unknown): unknown {
  return error instanceof Error ? error.cause : undefined;
}

// Limits of the system that any operation can meet. An error of this kind is not a bug in vgpu-agent.

interface Limit {
  readonly reached: string;
  readonly remedy: string;
}

const limits: Readonly<Record<string, Limit>> = {
  EMFILE: {
    reached: 'this process may not open more files',
    remedy: 'raise its limit: ulimit -n 1024, or LimitNOFILE= of the unit that runs it',
  },
  ENFILE: {
    reached: 'this machine may not open more files',
    remedy: 'compare /proc/sys/fs/file-nr with fs.file-max (sysctl), and end what holds many files open',
  },
  ENOMEM: {
    reached: 'there is not enough memory',
    remedy: 'free memory, or raise the limit: ulimit -v, or MemoryMax= of the unit that runs it',
  },
  EAGAIN: {
    reached: 'no further process or thread can be started',
    remedy: 'raise the limit: ulimit -u, or TasksMax= of the unit that runs it',
  },
  ENOSPC: { reached: 'the disk is full', remedy: 'free space: df -h, df -i' },
  EDQUOT: {
    reached: "the quota of this command's user is used up",
    remedy: 'free space, or raise the quota',
  },
  EFBIG: {
    reached: 'this process may not write so much into one file',
    remedy: 'raise its limit: ulimit -f unlimited, or LimitFSIZE= of the unit that runs it',
  },
  EIO: { reached: 'the disk reported an error', remedy: 'look for errors of the disk: dmesg' },
};

function limitReached(error: unknown): Limit | null {
  const code = errnoOf(error);
  if (code === undefined || !Object.hasOwn(limits, code)) return null;
  // Reading and writing report EAGAIN too, and mean something else.
  if (code === 'EAGAIN' && !isSpawn(error)) return null;
  return limits[code] ?? null;
}

function isSpawn(error: unknown): boolean {
  return (
    error instanceof Error &&
    'syscall' in error &&
    typeof error.syscall === 'string' &&
    error.syscall.startsWith('spawn')
  );
}
