/** The entries of the unit's LD_PRELOAD, tried as the service's user. */

import type { MachineFacts } from '../../contracts/facts.js';
import type { CommandRunner } from '../../lib/run-command.js';
import type { ContentCache } from '../files/content.js';
import { canLoad, canSearch, describeLoadCheck, type LoadCheck } from '../unit/access.js';

export interface PreloadEntry {
  readonly variable: 'LD_PRELOAD' | 'LD_LIBRARY_PATH';
  readonly entry: string;
  readonly check: LoadCheck;
  /** The check in a sentence without a full stop. */
  readonly text: string;
}

/**
 * Every absolute entry of LD_PRELOAD, and those of LD_LIBRARY_PATH that exist or are ours (a search path may
 * name files that do not exist). Empty for a unit that is not loaded. An entry that cannot be tried is left out.
 */
export async function readPreload(
  runner: CommandRunner,
  contents: ContentCache,
  { unit, serviceUser, distribution }: MachineFacts,
  ours: (entry: string) => boolean,
): Promise<readonly PreloadEntry[]> {
  if (unit.kind !== 'loaded') return [];
  const { architecture } = distribution;
  const libraries = split(unit.environment['LD_PRELOAD'], /[: ]/);
  const directories = split(unit.environment['LD_LIBRARY_PATH'], /[:;]/).filter(ours);
  const made = await Promise.all([
    ...libraries.map((entry) =>
      tried('LD_PRELOAD', entry, () => canLoad({ runner, contents, architecture }, serviceUser, entry)),
    ),
    ...directories.map((entry) =>
      tried('LD_LIBRARY_PATH', entry, () => canSearch(runner, serviceUser, entry)),
    ),
  ]);
  return made.filter((one) => one !== null);

  async function tried(
    variable: PreloadEntry['variable'],
    entry: string,
    ask: () => Promise<LoadCheck>,
  ): Promise<PreloadEntry | null> {
    try {
      const check = await ask();
      return { variable, entry, check, text: describeLoadCheck(entry, serviceUser, check) };
    } catch {
      return null;
    }
  }
}

function split(value: string | undefined, at: RegExp): readonly string[] {
  // The loader expands $LIB and its like itself: such an entry is no path that could be tried.
  return (value ?? '').split(at).filter((entry) => entry.startsWith('/') && !entry.includes('$'));
}
