/** The file that takes a unit's output instead of the journal. Pure. */
import path from 'node:path';
import { startsDirectory } from '../paths.js';
import type { LoadedUnit } from './types.js';

export interface OutputTarget {
  readonly kind: 'append' | 'truncate';
  readonly path: string;
}

/** `file:` writes over old bytes without a sign which are new, so it is left out. */
export function outputTarget(
  unit: Pick<LoadedUnit, 'standardError' | 'standardOutput'>,
): OutputTarget | null {
  for (const target of [unit.standardError, unit.standardOutput]) {
    const [, kind, file] = /^(append|truncate):(\/.*)$/.exec(target) ?? [];
    if ((kind === 'append' || kind === 'truncate') && file !== undefined) return { kind, path: file };
  }
  return null;
}

/** Where the drop-in's command notes the beginning of the unit's latest start. */
export function recordFile(unit: string): string {
  return path.join(startsDirectory, unit);
}
