/** A failure, told once: what failed, the value, the remedy. */
import { type ExitCode, exitCodeOf, VgpuError } from './errors.js';
import { limitReached } from './resource-limits.js';
import type { Style } from './style.js';
import { printable, wrap } from './text.js';

/** The `error` member of JSON output. */
export interface ErrorDocument {
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
