/** The store: `/opt/vgpu/versions/<id>/`, and how an id follows from what is in it. */
import { createHash } from 'node:crypto';
import path from 'node:path';
import type { StoreFacts } from '../../contracts/facts.js';
import { storeCurrent, storeRoot, storeVersions } from '../../lib/paths.js';
import type { ContentCache } from '../files/content.js';
import { pathState } from '../files/path-state.js';
import type { Root } from '../files/root.js';

export interface StoredFile {
  readonly name: string;
  /** Permission bits. */
  readonly mode: number;
  /** Hex. */
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
    hash.update(`${file.name}\0${file.mode.toString(8).padStart(4, '0')}\0${file.sha256}\n`);
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

/** Exactly the files that the id stands for and the links that follow from them, nothing else. */
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
