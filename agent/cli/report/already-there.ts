/** A report is new, or there is none. */
import { VgpuError } from '../../lib/errors.js';

export function alreadyThere(file: string): VgpuError {
  return new VgpuError(`${file} is there already, and a report never overwrites a file`, {
    kind: 'usage',
    operation: 'write the report',
    path: file,
    remedy: 'name another file',
  });
}
