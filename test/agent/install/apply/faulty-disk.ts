/** A disk that fails, or stops dead, at the n-th mutation. */
import { createHash } from 'node:crypto';
import { linkSync, lstatSync, mkdirSync } from 'node:fs';
import type { Disk } from '../../../../agent/install/apply/effects.js';

export type Trouble =
  | { readonly kind: 'none' }
  /** The process dies in the middle of the n-th mutation: what it was writing is half there, nothing comes after. */
  | { readonly kind: 'kill'; readonly at: number }
  /** The n-th mutation fails, or every one from there on. */
  | { readonly kind: 'fault'; readonly at: number; readonly errno: string; readonly lasting: boolean }
  /** The n-th mutation is carried out, and reported as failed: an fsync that fails after the bytes are written. */
  | { readonly kind: 'landed'; readonly at: number };

export class Killed extends Error {}

const mutations = [
  'makeDirectory',
  'create',
  'append',
  'own',
  'symlink',
  'rename',
  'unlink',
  'removeDirectory',
  'copy',
  'syncDirectory',
] as const;
type Mutation = (typeof mutations)[number];

export interface FaultyDisk extends Disk {
  /** Mutations so far, by name. */
  readonly log: readonly string[];
  readonly isDead: () => boolean;
}

export function faultyDisk(inner: Disk, trouble: Trouble): FaultyDisk {
  const log: string[] = [];
  let dead = false;
  const alive = (): void => {
    if (dead) throw new Killed('dead');
  };
  const attempt = async (
    name: Mutation,
    file: string,
    half: () => Promise<void>,
    whole: () => Promise<void>,
  ) => {
    alive();
    log.push(`${name} ${file}`);
    if (trouble.kind === 'kill' && log.length === trouble.at) {
      dead = true;
      await half();
      throw new Killed(`killed in ${name} ${file}`);
    }
    if (trouble.kind === 'landed' && log.length === trouble.at) {
      await whole();
      throw Object.assign(new Error(`EIO: ${name}`), { code: 'EIO', syscall: 'fsync', path: file });
    }
    const hit =
      trouble.kind === 'fault' && (trouble.lasting ? log.length >= trouble.at : log.length === trouble.at);
    if (hit) {
      if (trouble.errno === 'ENOSPC') await half();
      throw Object.assign(new Error(`${trouble.errno}: ${name}`), {
        code: trouble.errno,
        syscall: name,
        path: file,
      });
    }
    await whole();
  };
  const nothing = async (): Promise<void> => {};
  return {
    state: inner.state,
    log,
    isDead: () => dead,
    inspect: async (file) => {
      alive();
      return inner.inspect(file);
    },
    read: async (file) => {
      alive();
      return inner.read(file);
    },
    list: async (file) => {
      alive();
      return inner.list(file);
    },
    makeDirectory: (file, mode) =>
      attempt('makeDirectory', file, nothing, () => inner.makeDirectory(file, mode)),
    create: (file, content, mode) =>
      attempt(
        'create',
        file,
        () => inner.create(file, content.subarray(0, content.length >> 1), 0o600),
        () => inner.create(file, content, mode),
      ),
    append: (file, content) =>
      attempt(
        'append',
        file,
        () => inner.append(file, content.subarray(0, content.length >> 1)),
        () => inner.append(file, content),
      ),
    own: (file, uid, gid) => attempt('own', file, nothing, () => inner.own(file, uid, gid)),
    symlink: (file, target) => attempt('symlink', file, nothing, () => inner.symlink(file, target)),
    rename: (from, to) => attempt('rename', to, nothing, () => inner.rename(from, to)),
    unlink: (file) => attempt('unlink', file, nothing, () => inner.unlink(file)),
    removeDirectory: (file) => attempt('removeDirectory', file, nothing, () => inner.removeDirectory(file)),
    copy: (from, to) =>
      attempt(
        'copy',
        to,
        () => inner.create(to, Buffer.from('half'), 0o600),
        () => inner.copy(from, to),
      ),
    syncDirectory: (file) => attempt('syncDirectory', file, nothing, () => inner.syncDirectory(file)),
  };
}

/**
 * `inner` with copies made as hard links: everything of the original is kept, exactly, and without starting cp(1). As
 * good as a copy as long as no file is written in place, which apply/ never does.
 */
export function linkingDisk(inner: Disk, root: string): Disk {
  return {
    ...bound(inner),
    // There is no disk below a file system in memory.
    syncDirectory: async () => {},
    copy: async (from, to) => {
      const source = root + from;
      if (lstatSync(source).isDirectory()) mkdirSync(root + to, { mode: lstatSync(source).mode & 0o7777 });
      else linkSync(source, root + to);
    },
  };
}

/** The methods of a disk as own properties. */
function bound(disk: Disk): Disk {
  return {
    state: disk.state,
    inspect: (file) => disk.inspect(file),
    read: (file) => disk.read(file),
    list: (file) => disk.list(file),
    makeDirectory: (file, mode) => disk.makeDirectory(file, mode),
    create: (file, content, mode) => disk.create(file, content, mode),
    append: (file, content) => disk.append(file, content),
    own: (file, uid, gid) => disk.own(file, uid, gid),
    symlink: (file, target) => disk.symlink(file, target),
    rename: (from, to) => disk.rename(from, to),
    unlink: (file) => disk.unlink(file),
    removeDirectory: (file) => disk.removeDirectory(file),
    copy: (from, to) => disk.copy(from, to),
    syncDirectory: (file) => disk.syncDirectory(file),
  };
}

export function sha256Of(content: Buffer | string): string {
  return createHash('sha256').update(content).digest('hex');
}
