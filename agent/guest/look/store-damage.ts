/** In what the files of a stored version differ from the shim that it was made of. */

import path from 'node:path';
import type { ShimBuild } from '../../contracts/facts.js';
import { kindOf } from '../../contracts/path-state.js';
import { storeVersions } from '../../lib/paths.js';
import type { ContentCache } from '../files/content.js';
import { pathState } from '../files/path-state.js';
import type { Root } from '../files/root.js';

/**
 * One line for each file that is missing, unexpected or different from `shim`, if the version is that of the shim. A
 * file that may not be read is reported as such.
 */
export async function storeDamage(
  root: Root,
  contents: ContentCache,
  shim: ShimBuild,
): Promise<readonly string[]> {
  const directory = path.join(storeVersions, shim.id);
  const lines = await Promise.all([
    ...shim.files.map(async (file): Promise<string | null> => {
      const at = path.join(directory, file.name);
      const state = await pathState(root, at, contents);
      if (state.kind !== 'file') return `${at} is ${kindOf(state)}`;
      if (state.size !== file.size) return `${at} has ${state.size} bytes, ${file.size} were installed`;
      if (state.sha256 !== file.sha256) return `${at} has other bytes than were installed`;
      if (state.mode !== file.mode)
        return `${at} has mode ${octal(state.mode)}, ${octal(file.mode)} was installed`;
      return null;
    }),
    ...shim.links.map(async (link): Promise<string | null> => {
      const at = path.join(directory, link.name);
      const state = await pathState(root, at, contents);
      if (state.kind === 'link' && state.target === link.target) return null;
      return `${at} is not a link to ${link.target}`;
    }),
  ]);
  const known = new Set([...shim.files, ...shim.links].map(({ name }) => name));
  const more = root.readdir(directory).filter((name) => !known.has(name));
  return [
    ...lines.filter((line) => line !== null),
    ...more.map((name) => `${path.join(directory, name)} was not made by vgpu-agent`),
  ];
}

function octal(mode: number): string {
  return mode.toString(8).padStart(4, '0');
}
