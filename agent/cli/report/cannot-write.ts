/** The error for a report that cannot be written where its user wants it. */
import { VgpuError } from '../../lib/errors.js';

/** `failed`, with the reason (an errno's name or a tool's message) and what to do. */
export function cannotWrite(file: string, why: string, cause?: unknown): VgpuError {
  return new VgpuError(`cannot write the report ${file}: ${why}`, {
    kind: 'failed',
    operation: 'write the report',
    path: file,
    remedy: 'name a file in a directory that you may write to',
    ...(cause === undefined ? {} : { cause }),
  });
}
