/** Which package owns a file, from the package manager's own records. */
import fs from 'node:fs';
import path from 'node:path';
import type { DistributionFamily } from '../../contracts/facts.js';
import type { CommandRunner } from '../../lib/run-command.js';
import { openRegular, type Root } from '../files/root.js';

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

// dpkg's file lists, seven hundred on a plain system: read many at a time, as it is done before every plan.

const dpkgInfo = '/var/lib/dpkg/info';
const suffix = '.list';
const maxListBytes = 64 * 1024 * 1024;
/** As many lists as fit are searched at once: most are a few kilobytes, and each search has a cost of its own. */
const usualBytes = 1024 * 1024;

interface FileList {
  /** By dpkg's name for it: `libcuda1:amd64`. */
  readonly package: string;
  readonly files: ReadonlySet<string>;
}

/** Whether the view is of a system that dpkg keeps. */
function hasDpkgLists(root: Root): boolean {
  return root.stat(dpkgInfo)?.isDirectory() === true;
}

/** Changes with every list: dpkg replaces them by a rename, which is seen in their directory's time. */
function dpkgListsTime(root: Root): string {
  return String(root.stat(dpkgInfo)?.mtimeNs);
}

/** The file lists in which one of `texts` occurs anywhere, in the order of their names. */
function* dpkgListsWith(root: Root, texts: readonly string[]): Generator<FileList> {
  const directory = root.realDirectory(dpkgInfo);
  if (directory === null || texts.length === 0) return;
  const needles = texts.map((text) => Buffer.from(text));
  const names = root.readdir(dpkgInfo).filter((name) => name.endsWith(suffix));
  let buffer = Buffer.allocUnsafe(usualBytes);
  let held: { name: string; from: number; to: number }[] = [];
  let filled = 0;

  function* found(): Generator<FileList> {
    for (const { name, from, to } of occurrences(buffer.subarray(0, filled), needles, held)) {
      const files = new Set(buffer.toString('utf8', from, to).split('\n'));
      yield { package: name.slice(0, -suffix.length), files };
    }
    held = [];
    filled = 0;
  }

  for (const name of names) {
    const inside = path.join(directory, name);
    const descriptor = openRegular(root.prefix + inside, inside);
    if (descriptor === null) continue;
    try {
      let count = fs.readSync(descriptor, buffer, filled, buffer.length - filled, 0);
      // No byte is left over: there may be more of it.
      if (count === buffer.length - filled) {
        yield* found();
        const { size } = fs.fstatSync(descriptor);
        if (size > maxListBytes) continue;
        if (size >= buffer.length) buffer = Buffer.allocUnsafe(size + 1);
        count = fs.readSync(descriptor, buffer, 0, buffer.length, 0);
      }
      held.push({ name, from: filled, to: filled + count });
      filled += count;
    } finally {
      fs.closeSync(descriptor);
    }
  }
  yield* found();
}

interface Stretch {
  readonly from: number;
  readonly to: number;
}

/** Those of `stretches` (adjoining, in order) in which one of `needles` lies whole. */
function occurrences<T extends Stretch>(
  bytes: Buffer,
  needles: readonly Buffer[],
  stretches: readonly T[],
): readonly T[] {
  const hit = new Set<number>();
  for (const needle of needles) {
    let index = 0;
    for (let at = bytes.indexOf(needle); at >= 0; at = bytes.indexOf(needle, at)) {
      while (at >= (stretches[index]?.to ?? Number.POSITIVE_INFINITY)) index += 1;
      const stretch = stretches[index];
      if (stretch === undefined) break;
      if (at + needle.length <= stretch.to) {
        hit.add(index);
        at = stretch.to;
      } else {
        at += 1;
      }
    }
  }
  return stretches.filter((_, index) => hit.has(index));
}
