/** Where the files of this package are. */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

/**
 * The nearest directory above this module that holds package.json, so that a checkout, a global npm install and a
 * package all work; null when there is none.
 */
export function findPackageRoot(from: string = path.dirname(fileURLToPath(import.meta.url))): string | null {
  for (let directory = from; ; directory = path.dirname(directory)) {
    if (existsSync(path.join(directory, 'package.json'))) return directory;
    if (directory === path.dirname(directory)) return null;
  }
}
