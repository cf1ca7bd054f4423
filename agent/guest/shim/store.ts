/** The store: `/opt/vgpu/versions/<id>/`, and how an id follows from what is in it. */
import { createHash } from 'node:crypto';
import path from 'node:path';
import type { ShimBuild, StoreFacts } from '../../contracts/facts.js';
import { kindOf } from '../../contracts/manifest.js';
import { VgpuError } from '../../lib/errors.js';
import {
  packageRoot,
  ptxasName,
  storeCurrent,
  storeRoot,
  storeVersions,
  tracerName,
} from '../../lib/paths.js';
import { octal } from '../../lib/text.js';
import { type ContentCache, contentAt, pathState } from '../files/content.js';
import { Root } from '../files/root.js';

export interface StoredFile {
  readonly name: string;
  readonly mode: number;
  readonly sha256: string;
}

const idPattern = /^[0-9a-f]{16}$/;

/**
 * The content id: the first 16 hex digits of sha256 over one line a file, sorted by name:
 * `NAME NUL MODE(octal, four digits) NUL SHA256 LF`. Links follow from the names and are not part of it.
 */
export function storeId(files: readonly StoredFile[]): string {
  const hash = createHash('sha256');
  for (const file of files.toSorted((a, b) => (a.name < b.name ? -1 : 1))) {
    hash.update(`${file.name}\0${octal(file.mode)}\0${file.sha256}\n`);
  }
  return hash.digest('hex').slice(0, 16);
}

/** The links that stand beside libraries: `libcuda.so -> libcuda.so.1`. */
export function storeLinks(names: readonly string[]): readonly { name: string; target: string }[] {
  return names.toSorted().flatMap((target) => {
    const name = /^(lib.+\.so)\.\d+$/.exec(target)?.[1];
    return name === undefined ? [] : [{ name, target }];
  });
}

/** The versions in the store; a directory whose name is no id (an unfinished one) is not a version. */
export async function readStore(root: Root, contents: ContentCache): Promise<StoreFacts> {
  const ids = root.readdir(storeVersions).filter((name) => idPattern.test(name));
  const [rootState, current, versions] = await Promise.all([
    pathState(root, storeRoot, contents),
    pathState(root, storeCurrent, contents),
    Promise.all(ids.map(async (id) => ({ id, intact: await isIntact(root, id, contents) }))),
  ]);
  return { root: rootState, current, versions };
}

async function isIntact(root: Root, id: string, contents: ContentCache): Promise<boolean> {
  const directory = path.join(storeVersions, id);
  if (!root.lstat(directory)?.isDirectory()) return false;
  const files: StoredFile[] = [];
  const links = new Map<string, string>();
  for (const name of root.readdir(directory)) {
    const state = await pathState(root, path.join(directory, name), contents);
    if (state.kind === 'file') files.push({ name, mode: state.mode, sha256: state.sha256 });
    else if (state.kind === 'link') links.set(name, state.target);
    else return false;
  }
  const expected = storeLinks(files.map((file) => file.name));
  return (
    storeId(files) === id &&
    links.size === expected.length &&
    expected.every((link) => links.get(link.name) === link.target)
  );
}

/** The files of the store, with their modes there, whatever the umask of the build was. */
export const shimFiles: readonly {
  readonly name: string;
  readonly mode: number;
  readonly library: boolean;
  /** A build may lack it: the shim works without. */
  readonly optional: boolean;
}[] = [
  { name: 'libcuda.so.1', mode: 0o644, library: true, optional: false },
  { name: 'libnvidia-ml.so.1', mode: 0o644, library: true, optional: false },
  { name: tracerName, mode: 0o644, library: true, optional: true },
  { name: 'vgpu-probe', mode: 0o755, library: false, optional: false },
  { name: ptxasName, mode: 0o755, library: false, optional: true },
];

export function defaultShimDirectory(): string {
  return path.join(packageRoot(), 'build', 'shim');
}

/** Throws `failed`, and says how to build, when a file is missing, not ours or of another version. */
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
  const content = await contentAt(root, file, contents);
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
