/**
 * Opens files in directories that other users can write. The rule (CONTRIBUTING.md: Trust): root follows no link that
 * another user made to a file which that user could not read, waits for no FIFO, opens no device, reads no more than
 * its limit, and writes only through directories whose links only root could have made.
 *
 * Node has no openat(2). An open directory has a path of its own, `/proc/self/fd/N`, and a name below it is looked up
 * in exactly that directory; so no user can exchange a directory between the check and the use.
 */
import fs from 'node:fs';
import path from 'node:path';
import { errnoOf, VgpuError } from '../errors.js';

const { O_RDONLY, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_NOCTTY } = fs.constants;
/** open(2): names a file without opening it. Node has no constant for it; it is the same on all that we run on. */
const O_PATH = 0o10000000;

/** As the kernel (path_resolution(7)). */
const maxLinks = 40;

/** A directory that stays the same whatever happens to its name. The caller that opened it closes it. */
class OpenDirectory {
  readonly #descriptor: number;

  constructor(descriptor: number) {
    this.#descriptor = descriptor;
  }

  /** A path of the entry `name` for any call that does not follow a link at its end. */
  entry(name: string): string {
    return `/proc/self/fd/${this.#descriptor}/${name}`;
  }

  close(): void {
    fs.closeSync(this.#descriptor);
  }
}

interface Way {
  readonly directory: OpenDirectory;
  readonly name: string;
  /** Owners of the links on the way that another than root could have made. */
  readonly strangers: ReadonlySet<number>;
  /** Every user may enter every directory on the path from the first such link on. */
  readonly open: boolean;
}

/**
 * The directory at an absolute path. Throws a VgpuError `refused` when a link on the way is one that another user than
 * root could have made, `failed` when there is no such directory.
 */
export function openDirectory(directory: string): OpenDirectory {
  const way = walk(directory, 'directory');
  if (way === null) throw failed('open', directory, 'ENOENT: there is no such directory');
  if (way.strangers.size > 0) {
    way.directory.close();
    throw new VgpuError(
      `${directory} is reached through a link that a user other than root could have made`,
      {
        kind: 'refused',
        operation: 'open the directory',
        path: directory,
        remedy: 'name the directory itself, or let root own the directory that holds the link',
      },
    );
  }
  return way.directory;
}

/**
 * Opens a regular file for reading; null when there is none at that path, or it is not a regular file, or a link leads to
 * it by which another user would have root read what that user may not. The caller closes it. Throws a VgpuError
 * `failed` when this process may not read it.
 */
export function openForReading(file: string): number | null {
  const way = walk(file, 'entry');
  if (way === null) return null;
  try {
    return openFile(way.directory.entry(way.name), (stats) => mayChoose(way, stats));
  } catch (cause) {
    const code = errnoOf(cause);
    if (code === 'ENOENT' || code === 'ELOOP' || code === 'ENXIO') return null;
    throw failed('read', file, code ?? String(cause), cause);
  } finally {
    way.directory.close();
  }
}

/**
 * Opens a regular file that is not reached through a link at its end; null for anything else, and when `may` says no.
 * It is first only named: a FIFO would be waited for, and a device does something when it is opened. Throws the
 * system's error.
 */
export function openFile(file: string, may: (stats: fs.BigIntStats) => boolean = () => true): number | null {
  const named = fs.openSync(file, O_PATH | O_NOFOLLOW);
  try {
    const stats = fs.fstatSync(named, { bigint: true });
    if (!stats.isFile() || !may(stats)) return null;
    return fs.openSync(`/proc/self/fd/${named}`, O_RDONLY | O_NONBLOCK | O_NOCTTY);
  } finally {
    fs.closeSync(named);
  }
}

/** As many names of a directory as `limit`, in no order; a user who fills it does not fill this process's memory. Throws the system's error. */
export function namesUpTo(directory: string, limit: number): string[] {
  const open = fs.opendirSync(directory, { bufferSize: 1024 });
  try {
    const names: string[] = [];
    for (let entry = open.readSync(); entry !== null && names.length < limit; entry = open.readSync()) {
      names.push(entry.name);
    }
    return names;
  } finally {
    open.closeSync();
  }
}

/** Could the user who made the links on the way read the file without root's help? */
function mayChoose({ strangers, open }: Way, file: fs.BigIntStats): boolean {
  if (strangers.size === 0) return true;
  const everybody = open && (file.mode & 0o004n) !== 0n;
  return everybody || [...strangers].every((uid) => uid === Number(file.uid));
}

/**
 * The whole of a file, as `openForReading` opens it; null, too, when it is longer than `limit` bytes. The size that
 * the file claims is not believed: files of /proc claim none, and one may grow while it is read.
 */
export function readLimited(file: string, limit: number): Buffer | null {
  return readWhole(openForReading(file), limit);
}

/** The whole of an open file, which is closed then; null for null, and when it is longer than `limit` bytes. */
export function readWhole(descriptor: number | null, limit: number): Buffer | null {
  if (descriptor === null) return null;
  try {
    const { bytes, more } = readUpTo(descriptor, limit);
    return more ? null : bytes;
  } finally {
    fs.closeSync(descriptor);
  }
}

const chunkBytes = 64 * 1024;

/** The first `limit` bytes of an open file from where it stands. `more`: it has more than that. */
export function readUpTo(
  descriptor: number,
  limit: number,
): { readonly bytes: Buffer; readonly more: boolean } {
  const parts: Buffer[] = [];
  let filled = 0;
  while (filled <= limit) {
    const chunk = Buffer.allocUnsafe(Math.min(chunkBytes, limit + 1 - filled));
    const count = fs.readSync(descriptor, chunk);
    if (count === 0) break;
    parts.push(chunk.subarray(0, count));
    filled += count;
  }
  const all = Buffer.concat(parts, filled);
  return { bytes: all.subarray(0, limit), more: filled > limit };
}

/**
 * Puts a file with this content at `name`: written beside under a name that must be new, then renamed, so that what
 * another user has planted at either name is replaced and never written through. Throws the system's error.
 */
export function replaceFile(directory: OpenDirectory, name: string, content: string, mode: number): void {
  const temporary = directory.entry(`.${name}.new`);
  // Left by a run that was killed, or planted: the name is removed, not its target.
  fs.rmSync(temporary, { force: true });
  const descriptor = fs.openSync(temporary, 'wx', mode);
  try {
    fs.writeFileSync(descriptor, content);
    fs.fchmodSync(descriptor, mode);
  } finally {
    fs.closeSync(descriptor);
  }
  fs.renameSync(temporary, directory.entry(name));
}

/**
 * The first of these paths and the directories above them, links followed, that another user than root could change;
 * null when root alone can. What root executes must have none.
 */
export function changeableByOthers(...files: readonly string[]): string | null {
  // The files share most of their directories.
  const roots = new Set<string>();
  const realDirectories = new Map<string, string>();
  const realPath = (file: string): string => {
    if (lstat(file)?.isSymbolicLink() !== false) return fs.realpathSync.native(file);
    const directory = path.dirname(file);
    const real = realDirectories.get(directory) ?? fs.realpathSync.native(directory);
    realDirectories.set(directory, real);
    return path.join(real, path.basename(file));
  };
  for (const file of files.map((one) => path.resolve(one))) {
    let real: string;
    try {
      real = realPath(file);
    } catch {
      return file;
    }
    for (const start of new Set([file, real])) {
      for (let at = start; !roots.has(at); at = path.dirname(at)) {
        const stats = lstat(at);
        if (stats === null) return at;
        if (Number(stats.uid) !== 0) return at;
        // A link has no permissions of its own. In a sticky directory others cannot exchange what root owns.
        const sticky = stats.isDirectory() && (stats.mode & 0o1000n) !== 0n;
        if (!stats.isSymbolicLink() && !sticky && (stats.mode & 0o022n) !== 0n) return at;
        roots.add(at);
        if (at === '/') break;
      }
    }
  }
  return null;
}

/** Goes to the directory of `file`, or to the directory `file` itself. Null: there is no such way. */
function walk(file: string, wanted: 'entry' | 'directory'): Way | null {
  if (!path.isAbsolute(file)) throw failed('open', file, 'it is not an absolute path');
  const strangers = new Set<number>();
  let open = true;
  let links = 0;
  let names = partsOf(file);
  let current = openAt('/', file);
  const found = (name: string): Way => ({ directory: new OpenDirectory(current), name, strangers, open });
  try {
    for (let name = names.shift(); name !== undefined; name = names.shift()) {
      const entry = `/proc/self/fd/${current}/${name}`;
      const stats = lstat(entry);
      if (stats?.isSymbolicLink() === true) {
        links += 1;
        if (links > maxLinks) return close(current);
        const target = fs.readlinkSync(entry);
        const stranger = strangerOf(current, stats);
        if (stranger !== null) strangers.add(stranger);
        names = [...partsOf(target), ...names];
        if (target.startsWith('/')) current = exchange(current, openAt('/', file));
        continue;
      }
      if (names.length === 0 && wanted === 'entry') return found(name);
      if (stats === null || !stats.isDirectory()) return close(current);
      if (strangers.size > 0) open &&= (stats.mode & 0o001n) !== 0n;
      current = exchange(current, openAt(entry, file));
    }
    return found('.');
  } catch (error) {
    close(current);
    const code = errnoOf(error);
    if (code === 'ENOENT' || code === 'ENOTDIR' || code === 'ELOOP' || code === 'ENAMETOOLONG') return null;
    if (code === 'EACCES' || code === 'EPERM') throw failed('read', file, code, error);
    throw error;
  }
}

function partsOf(file: string): string[] {
  return file.split('/').filter((part) => part !== '' && part !== '.');
}

/** A user who could have put this link into the open directory; null: only root. -1: not known. */
function strangerOf(directory: number, link: fs.BigIntStats): number | null {
  const { uid, mode } = fs.fstatSync(directory, { bigint: true });
  if (uid !== 0n) return Number(uid);
  if ((mode & 0o022n) === 0n) return null;
  if (link.uid !== 0n) return Number(link.uid);
  // In a sticky directory only the owner removes or moves what root put there.
  return (mode & 0o1000n) === 0n ? -1 : null;
}

function openAt(directory: string, shown: string): number {
  try {
    return fs.openSync(directory, O_PATH | O_DIRECTORY | O_NOFOLLOW);
  } catch (cause) {
    const code = errnoOf(cause);
    if (code === 'EACCES' || code === 'EPERM') throw failed('read', shown, code, cause);
    throw cause;
  }
}

function exchange(old: number, next: number): number {
  fs.closeSync(old);
  return next;
}

function close(descriptor: number): null {
  fs.closeSync(descriptor);
  return null;
}

function lstat(file: string): fs.BigIntStats | null {
  return fs.lstatSync(file, { bigint: true, throwIfNoEntry: false }) ?? null;
}

function failed(operation: string, shown: string, why: string, cause?: unknown): VgpuError {
  return new VgpuError(`cannot ${operation} ${shown}: ${why}`, {
    kind: 'failed',
    operation,
    path: shown,
    remedy: why === 'EACCES' || why === 'EPERM' ? 'run as root: sudo vgpu-agent ...' : undefined,
    cause,
  });
}
