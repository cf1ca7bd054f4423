/**
 * Where the log file of a start begins. A journal's entries carry the invocation ID of their start; lines in a file
 * (`StandardError=append:PATH`) carry nothing, so our drop-in notes at each start how long the file was before it.
 */
import fs from 'node:fs/promises';
import { outputTarget, recordFile } from './output-target.js';
import type { LoadedUnit } from './types.js';

export interface OutputPlace {
  readonly path: string;
  /** Bytes before it are of former starts. */
  readonly offset: number;
}

/**
 * The place in the unit's own log file from which on everything is of the start that it is in; null when there is no
 * such file, or nobody knows: the note is of another start, or the file was replaced since.
 */
export async function placeOfStart(
  unit: LoadedUnit,
  files: { readonly record: string; readonly processes: string } = {
    record: recordFile(unit.name),
    processes: '/proc',
  },
): Promise<OutputPlace | null> {
  const target = outputTarget(unit);
  if (target === null) return null;
  const { path, kind } = target;
  const now = await identity(path);
  if (now === null) return null;
  if (kind === 'truncate') {
    // Emptied when it was opened: whoever has it open has written all of it.
    const opened = await Promise.all(
      [1, 2].map((descriptor) => identity(`${files.processes}/${unit.mainPid}/fd/${descriptor}`)),
    );
    return unit.mainPid > 0 && opened.includes(now) ? { path, offset: 0 } : null;
  }
  const record = parseRecord(await fs.readFile(files.record, 'utf8').catch(() => ''));
  if (record === null || unit.invocationId === null) return null;
  if (record.invocationId !== unit.invocationId || record.identity !== now) return null;
  return { path, offset: record.size };
}

interface StartRecord {
  readonly invocationId: string;
  /** Device and inode. */
  readonly identity: string;
  readonly size: number;
}

/** `INVOCATION-ID DEVICE:INODE SIZE`, as the drop-in's command writes it. */
export function parseRecord(text: string): StartRecord | null {
  const match = /^([0-9a-f]{32}) (\d+:\d+) (\d+)\n$/.exec(text);
  if (match === null) return null;
  const [, invocationId = '', found = '', size = ''] = match;
  return { invocationId, identity: found, size: Number(size) };
}

async function identity(path: string): Promise<string | null> {
  try {
    const facts = await fs.stat(path, { bigint: true });
    return facts.isFile() ? `${facts.dev}:${facts.ino}` : null;
  } catch {
    return null;
  }
}
