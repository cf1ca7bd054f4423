/** The entries of the unit's LD_PRELOAD, tried as the service's user. */
import path from 'node:path';
import type { LibraryVendor, MachineFacts } from '../../contracts/facts.js';
import { glob } from '../../lib/glob.js';
import { isInStore } from '../../lib/paths.js';
import type { CommandRunner } from '../../lib/run-command.js';
import type { Profile } from '../../profile/types.js';
import { type ContentCache, contentAt } from '../files/content.js';
import type { Root } from '../files/root.js';
import { libraryOf } from '../libraries/candidates.js';
import { canLoad, canSearch, describeLoadCheck, type LoadCheck } from '../unit/access.js';

export interface PreloadEntry {
  readonly variable: 'LD_PRELOAD' | 'LD_LIBRARY_PATH';
  readonly entry: string;
  readonly check: LoadCheck;
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
): Promise<readonly PreloadEntry[]> {
  if (unit.kind !== 'loaded') return [];
  const { architecture } = distribution;
  const libraries = split(unit.environment['LD_PRELOAD'], /[: ]/);
  const directories = split(unit.environment['LD_LIBRARY_PATH'], /[:;]/).filter(isInStore);
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

// The files that a consumer finds if it opens libcuda by absolute path, in its order of search.

export interface OpenedByPath {
  readonly path: string;
  readonly realPath: string;
  readonly vendor: LibraryVendor | null;
}

/** Each file once, under its first name. `searchPath`: LD_LIBRARY_PATH of the consumer. */
export async function readOpenedByPath(
  root: Root,
  contents: ContentCache,
  profile: Profile,
  searchPath: string,
): Promise<readonly OpenedByPath[]> {
  const rule = profile.doctor?.opensByPath;
  if (rule === undefined) return [];
  const [own = [], ...rest] = rule.directories.map((pattern) => glob(root, pattern));
  const searched = searchPath.split(':').filter((one) => one.startsWith('/'));
  const directories = [...own, ...searched, ...rest.flat()];
  const files = directories.flatMap((directory) =>
    namesIn(root, directory).map((name) => path.join(directory, name)),
  );
  const seen = new Map<string, string>();
  for (const file of files) {
    const real = realPathOf(root, file);
    if (real !== null && !seen.has(real)) seen.set(real, file);
  }
  return Promise.all(
    [...seen].map(async ([realPath, file]) => ({
      path: file,
      realPath,
      vendor: (await contentAt(root, file, contents).catch(() => null))?.vendor ?? null,
    })),
  );
}

function namesIn(root: Root, directory: string): readonly string[] {
  try {
    return root.readdir(directory).filter((name) => libraryOf(name) === 'libcuda');
  } catch {
    return [];
  }
}

function realPathOf(root: Root, file: string): string | null {
  try {
    const resolution = root.resolve(file);
    return resolution.kind === 'file' ? resolution.realPath : null;
  } catch {
    return null;
  }
}
