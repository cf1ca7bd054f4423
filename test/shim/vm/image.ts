/** The whole file system of a virtual machine as one archive: cpio in the format the kernel unpacks (newc). */
import { readFileSync } from 'node:fs';
import path from 'node:path';

export interface ImageFile {
  /** Without a leading slash; its directories are made. */
  readonly name: string;
  readonly content: Buffer;
  readonly executable?: boolean;
}

const DIRECTORY = 0o40755;

function entry(index: number, name: string, content: Buffer, mode: number): Buffer {
  const fields = [index, mode, 0, 0, 1, 0, content.length, 0, 0, 0, 0, name.length + 1, 0];
  const head = `070701${fields.map((field) => field.toString(16).padStart(8, '0')).join('')}${name}\0`;
  const pad = (length: number): Buffer => Buffer.alloc(-length & 3);
  return Buffer.concat([Buffer.from(head), pad(head.length), content, pad(content.length)]);
}

export function makeImage(files: readonly ImageFile[]): Buffer {
  const made = new Set<string>();
  const parts: Buffer[] = [];
  const add = (name: string, content: Buffer, mode: number): void => {
    parts.push(entry(parts.length + 1, name, content, mode));
  };
  for (const { name, content, executable } of files) {
    const above = path.dirname(name).split('/');
    for (let depth = 1; depth <= above.length; depth++) {
      const directory = above.slice(0, depth).join('/');
      if (directory === '.' || made.has(directory)) continue;
      made.add(directory);
      add(directory, Buffer.alloc(0), DIRECTORY);
    }
    add(name, content, executable === true ? 0o100755 : 0o100644);
  }
  parts.push(entry(0, 'TRAILER!!!', Buffer.alloc(0), 0));
  return Buffer.concat(parts);
}

/** Kernel modules in the order to load them in: what each depends on comes before it. */
export function modulesInOrder(files: ReadonlyMap<string, string>, wanted: readonly string[]): string[] {
  const order: string[] = [];
  const add = (name: string): void => {
    const key = name.replaceAll('-', '_');
    const file = files.get(key);
    if (file === undefined || order.includes(key)) return; // built into the kernel, or there already
    const depends = /(?:^|\0)depends=([^\0]*)/.exec(readFileSync(file, 'latin1'))?.[1] ?? '';
    for (const needed of depends.split(',')) if (needed !== '') add(needed);
    order.push(key);
  };
  for (const name of wanted) add(name);
  return order;
}
