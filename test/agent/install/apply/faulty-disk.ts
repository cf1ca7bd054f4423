/** A disk that fails, or stops dead, at the n-th mutation. */
import { createHash } from 'node:crypto';
import { existsSync, linkSync, lstatSync, mkdirSync, readlinkSync, rmSync, symlinkSync } from 'node:fs';
import path from 'node:path';
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

export interface ForgetfulDisk extends Disk {
  /** The power fails: entries of directories that were not synced since are as they were before. */
  lose(): void;
}

/**
 * A model of a disk that keeps nothing without fsync. The content of a file is on it when `create`, `append` and `copy`
 * return, because they sync it; that the file has its name only after `syncDirectory`.
 */
export function forgetfulDisk(inner: Disk, root: string): ForgetfulDisk {
  const disk = bound(inner);
  const saved: string[] = [];
  let unsynced: { readonly directory: string; readonly undo: () => void }[] = [];
  const undoOf = (file: string): (() => void) => {
    const host = root + file;
    const stats = lstatSync(host, { throwIfNoEntry: false });
    const clear = (): void => rmSync(host, { recursive: true, force: true });
    if (stats === undefined) return clear;
    if (stats.isDirectory()) {
      return () => {
        if (!existsSync(host)) mkdirSync(host, { mode: stats.mode & 0o7777 });
      };
    }
    if (stats.isSymbolicLink()) {
      const target = readlinkSync(host);
      return () => {
        clear();
        symlinkSync(target, host);
      };
    }
    // A second name outside of the tree keeps the file.
    const copy = `${root}.saved-${saved.length}`;
    saved.push(copy);
    linkSync(host, copy);
    return () => {
      clear();
      linkSync(copy, host);
    };
  };
  const changing = async (files: readonly string[], work: () => Promise<void>): Promise<void> => {
    const undos = files.map((file) => ({ directory: path.dirname(file), undo: undoOf(file) }));
    await work();
    unsynced.push(...undos);
  };
  return {
    ...disk,
    makeDirectory: (file, mode) => changing([file], () => disk.makeDirectory(file, mode)),
    create: (file, content, mode) => changing([file], () => disk.create(file, content, mode)),
    append: (file, content) =>
      existsSync(root + file)
        ? disk.append(file, content)
        : changing([file], () => disk.append(file, content)),
    symlink: (file, target) => changing([file], () => disk.symlink(file, target)),
    rename: (from, to) => changing([from, to], () => disk.rename(from, to)),
    unlink: (file) => changing([file], () => disk.unlink(file)),
    removeDirectory: (file) => changing([file], () => disk.removeDirectory(file)),
    copy: (from, to) => changing([to], () => disk.copy(from, to)),
    async syncDirectory(directory) {
      await disk.syncDirectory(directory);
      unsynced = unsynced.filter((one) => one.directory !== directory);
    },
    lose() {
      for (const { directory, undo } of unsynced.toReversed()) {
        // Removed for good, and its entries with it.
        if (existsSync(root + directory)) undo();
      }
      unsynced = [];
      for (const copy of saved.splice(0)) rmSync(copy, { force: true });
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
