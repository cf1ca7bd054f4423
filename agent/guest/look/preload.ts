import type { MachineFacts } from '../../contracts/facts.js';
import type { CommandRunner } from '../../lib/run-command.js';
import type { ContentCache } from '../files/content.js';
import { canLoad, describeLoadCheck, type LoadCheck } from '../unit/access.js';

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
