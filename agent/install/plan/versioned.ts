/** Ubuntu's layout: versioned libraries beside the public link, which ldconfig sets to the highest of them. Pure. */
import path from 'node:path';
import type { LibraryCandidate, MachineFacts } from '../../contracts/facts.js';

/**
 * ldconfig sets `libcuda.so.1` to the highest version in the directory at every run. The shim's has to be the highest: no
 * driver will ever have this version.
 */
const highest = '99999.0';

/** The name by which ldconfig takes the shim for the highest version: `libcuda.so.99999.0` for `libcuda.so.1`. */
export function highestName(file: string): string {
  return file.replace(/\d+$/, highest);
}

/** Does `file` have a name that ldconfig sets links under? */
function isSonameLink(file: string): boolean {
  return /^lib[\w-]+\.so\.\d+$/.test(path.basename(file));
}

/** Is `other` a version of the library `file`, in the same directory: `libcuda.so.550.163.01` of `libcuda.so.1`? */
export function isVersionOf(file: string, other: string): boolean {
  if (!isSonameLink(file) || path.dirname(other) !== path.dirname(file)) return false;
  const stem = path.basename(file).replace(/\d+$/, '');
  const base = path.basename(other);
  return base.startsWith(stem) && /^\d+\.[\d.]+$/.test(base.slice(stem.length));
}

/** The versions beside `file` that are there now, without the shim's. */
export function versionsBeside(file: string, facts: MachineFacts): readonly LibraryCandidate[] {
  return facts.candidates.filter(
    ({ path: other, state }) =>
      isVersionOf(file, other) && other !== highestName(file) && state.kind !== 'absent',
  );
}
