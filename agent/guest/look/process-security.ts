/** Whether the loader runs a process in secure-execution mode, as the kernel told it (getauxval(3)). */
import { readFileSync } from 'node:fs';
import path from 'node:path';

const atSecure = 23n;
const atNull = 0n;

/**
 * AT_SECURE of a process: set when its program gained rights at exec (set-user-ID, file capabilities, a
 * security module); LD_PRELOAD and LD_LIBRARY_PATH are then ignored. Null when the process is gone or closed to us.
 */
export function isSecure(pid: number, proc = '/proc'): boolean | null {
  try {
    return secureIn(readFileSync(path.join(proc, String(pid), 'auxv')));
  } catch {
    return null;
  }
}

/** In the auxiliary vector of a 64-bit process: pairs of 8-byte words, AT_NULL at the end; null when it is not there. */
function secureIn(auxv: Buffer): boolean | null {
  for (let at = 0; at + 16 <= auxv.length; at += 16) {
    const type = auxv.readBigUInt64LE(at);
    if (type === atNull) return null;
    if (type === atSecure) return auxv.readBigUInt64LE(at + 8) !== 0n;
  }
  return null;
}
