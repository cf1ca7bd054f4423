/** The files that a consumer finds if it opens libcuda by absolute path, in its order of search. */
import path from 'node:path';
import type { LibraryVendor } from '../../contracts/facts.js';
import { glob } from '../../lib/glob.js';
import type { Profile } from '../../profile/types.js';
import type { ContentCache } from '../files/content.js';
import type { Root } from '../files/root.js';
import { libraryOf } from '../libraries/candidates.js';

export interface OpenedByPath {
  readonly path: string;
  readonly realPath: string;
  readonly vendor: LibraryVendor | null;
}

/**
 * Each file once, under its first name; empty where the profile has no such rule. `searchPath` is the consumer's
 * LD_LIBRARY_PATH.
 */
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
      vendor: await contents.of(root.prefix + realPath, file).then(
        (content) => content?.vendor ?? null,
        () => null,
      ),
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
