/** dpkg's file lists, seven hundred on a plain system: read many at a time, as it is done before every plan. */
import fs from 'node:fs';
import path from 'node:path';
import { openRegular, type Root } from '../files/root.js';

const dpkgInfo = '/var/lib/dpkg/info';
const suffix = '.list';
const maxListBytes = 64 * 1024 * 1024;
/** As many lists as fit are searched at once: most are a few kilobytes, and each search has a cost of its own. */
const usualBytes = 1024 * 1024;

export interface FileList {
  /** By dpkg's name for it: `libcuda1:amd64`. */
  readonly package: string;
  readonly files: ReadonlySet<string>;
}

/** Whether the view is of a system that dpkg keeps. */
export function hasDpkgLists(root: Root): boolean {
  return root.stat(dpkgInfo)?.isDirectory() === true;
}

/** Changes with every list: dpkg replaces them by a rename, which is seen in their directory's time. */
export function dpkgListsTime(root: Root): string {
  return String(root.stat(dpkgInfo)?.mtimeNs);
}

/** The file lists in which one of `texts` occurs anywhere, in the order of their names. */
export function* dpkgListsWith(root: Root, texts: readonly string[]): Generator<FileList> {
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
