/** The compiled shim that would be installed. */

import path from 'node:path';
import type { ShimBuild } from '../../contracts/facts.js';
import { kindOf } from '../../contracts/path-state.js';
import { VgpuError } from '../../lib/errors.js';
import { packageRoot, tracerName } from '../../lib/paths.js';
import type { ContentCache } from '../files/content.js';
import { pathState } from '../files/path-state.js';
import { Root } from '../files/root.js';
import { storeId, storeLinks } from './store.js';

/** The files of the store, with their modes there, whatever the umask of the build was. */
export const shimFiles: readonly {
  readonly name: string;
  readonly mode: number;
  readonly library: boolean;
  /** It is built for x86-64 alone, and nothing but `doctor --trace` needs it. */
  readonly optional: boolean;
}[] = [
  { name: 'libcuda.so.1', mode: 0o644, library: true, optional: false },
  { name: 'libnvidia-ml.so.1', mode: 0o644, library: true, optional: false },
  { name: tracerName, mode: 0o644, library: true, optional: true },
  { name: 'vgpu-probe', mode: 0o755, library: false, optional: false },
];

/** Where the build leaves the shim, or the package keeps it. */
export function defaultShimDirectory(): string {
  return path.join(packageRoot(), 'build', 'shim');
}

/**
 * Reads the built shim. Throws a VgpuError (`failed`) that says how to build when a file is missing, is not
 * ours (no provenance note) or the libraries are of different versions.
 */
export async function readShimBuild(directory: string, contents: ContentCache): Promise<ShimBuild> {
  const root = new Root('/');
  const wanted = shimFiles.filter(
    ({ name, optional }) => !optional || root.lstat(path.join(directory, name)) !== null,
  );
  const files = await Promise.all(
    wanted.map(async ({ name, mode }) => {
      const source = path.join(directory, name);
      const state = await pathState(root, source, contents);
      if (state.kind !== 'file') {
        throw broken(source, state.kind === 'absent' ? 'is missing' : `is ${kindOf(state)}, not a file`);
      }
      return { name, source, sha256: state.sha256, size: state.size, mode };
    }),
  );
  const versions = await Promise.all(
    wanted
      .filter((file) => file.library)
      .map((file) => versionOf(root, path.join(directory, file.name), contents)),
  );
  const [version = ''] = versions;
  const other = versions.find((one) => one !== version);
  if (other !== undefined) {
    throw broken(directory, `holds libraries of versions ${version} and ${other}`);
  }
  return { directory, id: storeId(files), version, files, links: storeLinks(files.map((file) => file.name)) };
}

async function versionOf(root: Root, file: string, contents: ContentCache): Promise<string> {
  const host = root.hostPath(file);
  const content = host === null ? null : await contents.of(host, file);
  if (content === null) throw broken(file, 'is missing');
  if (content.elf.kind === 'problem') throw broken(file, `is not a library: ${content.elf.reason}`);
  const { provenance } = content.elf.facts;
  if (provenance === null) throw broken(file, 'has no .note.vgpu, so it is not a library of vgpu-agent');
  return provenance.version;
}

function broken(file: string, what: string): VgpuError {
  return new VgpuError(`the shim cannot be installed: ${file} ${what}`, {
    kind: 'failed',
    operation: 'read the built shim',
    path: file,
    remedy: 'build it: run scripts/setup (or npm run build:shim) in the directory of vgpu-agent',
  });
}
