/** The file that takes a unit's output instead of the journal. Pure. */
import type { LoadedUnit } from '../../contracts/unit.js';

export interface OutputTarget {
  readonly kind: 'append' | 'truncate';
  /** The descriptor that the unit's programs have it as. */
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
