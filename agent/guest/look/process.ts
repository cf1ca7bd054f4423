import { readFileSync } from 'node:fs';
import path from 'node:path';
import type { ElfFacts, MachineFacts, ProcessFacts } from '../../contracts/facts.js';
import type { CommandRunner } from '../../lib/run-command.js';
import { type ContentCache, elfAt } from '../files/content.js';
import type { Root } from '../files/root.js';
import { canLoad, describeLoadCheck, type LoadCheck } from '../unit/access.js';

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

export interface ExecutableFacts {
  readonly path: string;
  readonly setId: boolean;
  readonly capabilities: string | null;
  /** Null when it is no ELF file, or may not be read. */
  readonly elf: ElfFacts | null;
}

const getcapTimeoutMs = 5_000;

export async function readExecutables(
  root: Root,
  runner: CommandRunner,
  contents: ContentCache,
  processes: readonly ProcessFacts[],
): Promise<readonly ExecutableFacts[]> {
  const paths = new Set(processes.map(({ executable }) => executable).filter((path) => path !== null));
  return Promise.all([...paths].map((path) => readExecutable(root, runner, contents, path)));
}

async function readExecutable(
  root: Root,
  runner: CommandRunner,
  contents: ContentCache,
  path: string,
): Promise<ExecutableFacts> {
  const [capabilities, elf] = await Promise.all([
    readCapabilities(runner, root.hostPath(path) ?? path),
    elfAt(root, path, contents),
  ]);
  return { path, setId: isSetId(root, path), capabilities, elf };
}

function isSetId(root: Root, path: string): boolean {
  try {
    return (Number(root.stat(path)?.mode ?? 0n) & 0o6000) !== 0;
  } catch {
    return false;
  }
}

/** `PATH cap_net_raw=ep`, or `PATH = cap_net_raw+ep` (libcap before 2.41). */
async function readCapabilities(runner: CommandRunner, path: string): Promise<string | null> {
  try {
    const ran = await runner.run('getcap', [path], { timeoutMs: getcapTimeoutMs });
    if (ran.code !== 0) return null;
    const line = ran.stdout.toString('utf8').trim();
    return line.startsWith(path) ? line.slice(path.length).replace(/^ =? ?/, '') : line;
  } catch {
    return null;
  }
}

export interface PreloadEntry {
  readonly entry: string;
  readonly check: LoadCheck;
  readonly text: string;
}

/** Checks each absolute entry of LD_PRELOAD. An entry that cannot be checked is left out. */
export async function readPreload(
  runner: CommandRunner,
  contents: ContentCache,
  { unit, serviceUser, distribution }: MachineFacts,
): Promise<readonly PreloadEntry[]> {
  if (unit.kind !== 'loaded') return [];
  const { architecture } = distribution;
  // The loader expands $LIB and similar, so such an entry is not a path that we can open.
  const entries = (unit.environment['LD_PRELOAD'] ?? '')
    .split(/[: ]/)
    .filter((entry) => entry.startsWith('/') && !entry.includes('$'));
  const made = await Promise.all(
    entries.map(async (entry) => {
      const check = await canLoad({ runner, contents, architecture }, serviceUser, entry).catch(() => null);
      return check === null ? null : { entry, check, text: describeLoadCheck(entry, serviceUser, check) };
    }),
  );
  return made.filter((one) => one !== null);
}
