/**
 * Where the log file of a start begins. A journal's entries carry the invocation ID of their start; lines in a file
 * (`StandardError=append:PATH`) carry nothing. So our drop-in has each start say to the journal, with the rights of the
 * service's user, which file it writes to and how long that was before; journald adds the invocation ID itself.
 */
import fs from 'node:fs/promises';
import type { LoadedUnit } from '../../contracts/unit.js';

interface OutputPlace {
  readonly path: string;
  readonly offset: number;
}

/** The record of a log at a start: `%d:%i` and `%s` are stat(1)'s device, inode and size. */
export const startNote = 'vgpu-agent: the log of this start is %d:%i, after %s bytes';

/**
 * The offset in the unit's own log file at which its present start begins; null when there is no such file, or it is
 * not known: there is no note of this start, or the file was replaced since. `said`: messages in the journal of this
 * start of the unit.
 */
export async function placeOfStart(
  unit: LoadedUnit,
  said: (invocationId: string) => Promise<readonly string[]>,
  processes = '/proc',
): Promise<OutputPlace | null> {
  const target = outputTarget(unit);
  if (target === null) return null;
  const { path, kind } = target;
  const now = await identity(path);
  if (now === null) return null;
  if (kind === 'truncate') {
    // Emptied when it was opened: the process that has it open has written all of it.
    const opened = await Promise.all(
      [1, 2].map((descriptor) => identity(`${processes}/${unit.mainPid}/fd/${descriptor}`)),
    );
    return unit.mainPid > 0 && opened.includes(now) ? { path, offset: 0 } : null;
  }
  if (unit.invocationId === null) return null;
  // The first: whatever says so later is not our command, which ran before the service did.
  for (const message of await said(unit.invocationId)) {
    const note = parseNote(message);
    if (note !== null) return note.identity === now ? { path, offset: note.size } : null;
  }
  return null;
}

/**
 * Where the start after a restart begins in a file that each start empties: at 0, once its process has opened the file.
 * Until then, from where the file ended before the restart: the start before wrote what is there now. Its size does not
 * tell, because the new start may have written as much already.
 */
export async function placeAfterRestart(
  unit: LoadedUnit,
  before: { readonly invocationId: string | null; readonly outputFile: OutputPlace | null },
  processes?: string,
): Promise<OutputPlace | null> {
  const isNew = unit.invocationId !== null && unit.invocationId !== before.invocationId;
  if (!isNew || outputTarget(unit)?.kind !== 'truncate') return before.outputFile;
  return (await placeOfStart(unit, async () => [], processes)) ?? before.outputFile;
}

export function parseNote(message: string) {
  const match = /^vgpu-agent: the log of this start is (\d+:\d+), after (\d+) bytes$/.exec(message);
  if (match === null) return null;
  const [, found = '', size = ''] = match;
  return { identity: found, size: Number(size) };
}

async function identity(path: string): Promise<string | null> {
  try {
    const facts = await fs.stat(path, { bigint: true });
    return facts.isFile() ? `${facts.dev}:${facts.ino}` : null;
  } catch {
    return null;
  }
}

interface OutputTarget {
  readonly kind: 'append' | 'truncate';
  readonly descriptor: 1 | 2;
  readonly path: string;
}

/** `file:` writes over old bytes without a sign which are new, so it is left out. */
export function outputTarget(
  unit: Pick<LoadedUnit, 'standardError' | 'standardOutput'>,
): OutputTarget | null {
  for (const [target, descriptor] of [
    [unit.standardError, 2],
    [unit.standardOutput, 1],
  ] as const) {
    const [, kind, file] = /^(append|truncate):(\/.*)$/.exec(target) ?? [];
    if ((kind === 'append' || kind === 'truncate') && file !== undefined)
      return { kind, path: file, descriptor };
  }
  return null;
}
