/** Part of the build: which npm packages went into what is shipped, as esbuild says it. dist/bundled/NAME.json. */

import { readFileSync } from 'node:fs';
import path from 'node:path';
import type { Metafile } from 'esbuild';
import { outputJsonSync } from 'fs-extra/esm';
import { packageRoot } from '../agent/lib/paths.js';

/** Where each is below node_modules; one that has its own copy of another is two. */
export function packagesOf(metafiles: readonly Metafile[]): readonly string[] {
  const files = metafiles.flatMap(({ outputs }) =>
    Object.values(outputs).flatMap(({ inputs }) =>
      Object.entries(inputs).flatMap(([file, { bytesInOutput }]) => (bytesInOutput > 0 ? [file] : [])),
    ),
  );
  // The last node_modules of the path, then @scope/name or name.
  const found = files.flatMap((file) => /^(.*\bnode_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(file)?.[1] ?? []);
  return [...new Set(found)].sort();
}

export function noteBundled(name: string, metafiles: readonly Metafile[]): void {
  outputJsonSync(path.join(packageRoot(), 'dist', 'bundled', `${name}.json`), packagesOf(metafiles));
}

/** The packages that these bundles recorded, each once. */
export function readBundled(names: readonly string[]): readonly string[] {
  const read = (name: string): readonly string[] =>
    JSON.parse(readFileSync(path.join(packageRoot(), 'dist', 'bundled', `${name}.json`), 'utf8'));
  return [...new Set(names.flatMap(read))].sort();
}
