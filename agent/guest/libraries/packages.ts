/** Which package owns a file, from the package manager's own records. */
import path from 'node:path';
import type { DistributionFamily } from '../../contracts/facts.js';
import type { CommandRunner } from '../../lib/run-command.js';
import type { Root } from '../files/root.js';
import { dpkgListsTime, dpkgListsWith, hasDpkgLists } from './dpkg-lists.js';

const queryTimeoutMs = 20_000;

/**
 * The owner of each of `files` that has one, by the name the package manager gives (`libcuda1:amd64`).
 * On merged /usr a package may list a file under either name of its directory; both count. Where no package
 * manager is known the answer is empty.
 */
export async function packageOwners(
  root: Root,
  runner: CommandRunner,
  family: DistributionFamily,
  files: readonly string[],
  cache: OwnerCache = new OwnerCache(),
): Promise<ReadonlyMap<string, string>> {
  const wanted = [...new Set(files)];
  if (wanted.length === 0) return new Map();
  if (hasDpkgLists(root)) return cache.of(root, wanted, () => dpkgOwners(root, wanted));
  // rpm and pacman keep a database of their own; only the tool reads it, and only for its own system.
  if (!root.isLive) return new Map();
  if (family === 'redhat' || family === 'suse') return rpmOwners(runner, wanted);
  if (family === 'arch') return pacmanOwners(runner, wanted);
  return new Map();
}

/** Remembers dpkg's answer while its records are the same, for the service, which asks after every drift. */
export class OwnerCache {
  #key = '';
  #owners: ReadonlyMap<string, string> = new Map();

  of(
    root: Root,
    files: readonly string[],
    ask: () => ReadonlyMap<string, string>,
  ): ReadonlyMap<string, string> {
    const key = JSON.stringify([dpkgListsTime(root), files]);
    if (key !== this.#key) {
      this.#owners = ask();
      this.#key = key;
    }
    return this.#owners;
  }
}

/** Reads dpkg's file lists: as quick as `dpkg-query -S`, and of any root. */
function dpkgOwners(root: Root, files: readonly string[]): ReadonlyMap<string, string> {
  const aliases = files.map((file) => ({ file, names: dpkgNames(root, file) }));
  // Nearly every list has none of them: the common parts decide which are looked at.
  const stems = new Set(files.map((file) => stemOf(path.basename(file))));
  const owners = new Map<string, string>();
  for (const list of dpkgListsWith(root, [...stems])) {
    for (const { file, names } of aliases) {
      if (!owners.has(file) && names.some((one) => list.files.has(one))) owners.set(file, list.package);
    }
  }
  return owners;
}

/** `libcuda.so.550.163.01` -> `libcuda.so`. */
function stemOf(name: string): string {
  return /^.+?\.so(?=\.|$)/.exec(name)?.[0] ?? name;
}

/** The names under which dpkg may know a file: as given, by its real directory, and without merged `/usr`. */
function dpkgNames(root: Root, file: string): readonly string[] {
  const names = new Set([file]);
  const real = root.canonical(file);
  if (real !== null) {
    names.add(real);
    if (real.startsWith('/usr/') && root.canonical(real.slice('/usr'.length)) === real) {
      names.add(real.slice('/usr'.length));
    }
  }
  return [...names];
}

/** `rpm -qf` answers one line for each file, in order, also for a file without an owner. */
async function rpmOwners(
  runner: CommandRunner,
  files: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  const result = await runner.run('rpm', ['-qf', '--queryformat', '%{NAME}\n', '--', ...files], {
    timeoutMs: queryTimeoutMs,
  });
  const lines = result.stdout.toString('utf8').trimEnd().split('\n');
  const owners = new Map<string, string>();
  // A file that two packages own gives two lines, so lines do not match files any more: query each file separately.
  if (lines.length !== files.length) {
    if (files.length === 1) return lines[0] ? new Map([[files[0] ?? '', lines[0]]]) : owners;
    const answers = await Promise.all(files.map((file) => rpmOwners(runner, [file])));
    for (const [file, owner] of answers.flatMap((answer) => [...answer])) owners.set(file, owner);
    return owners;
  }
  files.forEach((file, index) => {
    const line = lines[index] ?? '';
    if (/^[A-Za-z0-9._+-]+$/.test(line)) owners.set(file, line);
  });
  return owners;
}

/** One file for each query: `pacman -Qoq` prints only names, and nothing for a file without an owner. */
async function pacmanOwners(
  runner: CommandRunner,
  files: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  const owners = new Map<string, string>();
  for (const file of files) {
    const result = await runner.run('pacman', ['-Qoq', '--', file], { timeoutMs: queryTimeoutMs });
    const [owner = ''] = result.stdout.toString('utf8').split('\n');
    if (owner !== '') owners.set(file, owner);
  }
  return owners;
}
