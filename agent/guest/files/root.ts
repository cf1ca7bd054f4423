/**
 * A read-only view of a file system under a prefix: paths are absolute *inside*
 * it, and every link, `..` included, is resolved inside it too. So a guest's
 * unpacked root and a test's temporary tree are examined exactly as `/` is.
 *
 * Metadata is read with synchronous calls: each takes microseconds where a
 * trip through the thread pool takes tens. Content goes through `open`.
 * One view is one snapshot in time: directories' real paths are remembered,
 * so make a new one for each inspection.
 */
import fs from 'node:fs';
import path from 'node:path';
import type { LinkStep, Resolution } from '../../contracts/facts.js';
import { errnoOf, VgpuError } from '../../lib/errors.js';
import { namesUpTo, openFile, readWhole } from '../../lib/trust/files.js';

/** No package's directory has as many; one that has more was made to keep the agent reading. */
const mostNames = 100_000;

/** As the kernel (MAXSYMLINKS, path_resolution(7)). */
const maxLinks = 40;

type Directory =
  | { readonly kind: 'found'; readonly realPath: string }
  | { readonly kind: 'missing'; readonly path: string }
  | { readonly kind: 'loop' };

export class Root {
  /** Empty for the running system. */
  readonly prefix: string;
  readonly #directories = new Map<string, Directory>();

  constructor(prefix = '/') {
    const resolved = path.resolve(prefix);
    this.prefix = resolved === '/' ? '' : resolved;
  }

  /** The view is of the running system, so its tools (getent, setpriv, rpm) speak of the same files. */
  get isLive(): boolean {
    return this.prefix === '';
  }

  /** As this process sees `file`, its directories resolved. Null: one is missing, no directory, or loops. */
  hostPath(file: string): string | null {
    const real = this.canonical(file);
    return real === null ? null : this.prefix + real;
  }

  /** The path inside the view with its directories resolved and the last component not; null as `hostPath`. */
  canonical(file: string): string | null {
    const [directory, name] = splitLast(file);
    const parent = this.#walk('/', directory, 0);
    return parent.kind === 'found' ? path.join(parent.realPath, name) : null;
  }

  /** lstat; null when nothing is there. Throws a VgpuError when it may not be looked at. */
  lstat(file: string): fs.BigIntStats | null {
    const host = this.hostPath(file);
    return host === null ? null : lstatHost(host, file);
  }

  exists(file: string): boolean {
    return this.lstat(file) !== null;
  }

  stat(file: string): fs.BigIntStats | null {
    const resolution = this.resolve(file);
    if (resolution.kind === 'file' || resolution.kind === 'directory') {
      return lstatHost(this.prefix + resolution.realPath, file);
    }
    return null;
  }

  readlink(file: string): string | null {
    const host = this.hostPath(file);
    return host === null ? null : readlinkHost(host);
  }

  /** Sorted by code unit, at most 100 000; empty when it is no readable directory. */
  readdir(directory: string): readonly string[] {
    const found = this.#walk('/', directory, 0);
    if (found.kind !== 'found') return [];
    try {
      return namesUpTo(this.prefix + found.realPath, mostNames).sort();
    } catch {
      return [];
    }
  }

  realDirectory(directory: string): string | null {
    const found = this.#walk('/', directory, 0);
    return found.kind === 'found' ? found.realPath : null;
  }

  /** Links are followed inside the view. Null: no regular file (a FIFO would block). The caller closes it. */
  open(file: string): number | null {
    const resolution = this.resolve(file);
    if (resolution.kind !== 'file') return null;
    return openRegular(this.prefix + resolution.realPath, file);
  }

  /** The whole of a regular file of at most `limit` bytes; null when there is none or it is longer. */
  readFile(file: string, limit: number): Buffer | null {
    return readWhole(this.open(file), limit);
  }

  /**
   * Follows the links at the end of `file` one by one. `absent`: nothing exists at the path itself, or its directory is
   * missing. `file` is everything that is neither link nor directory; PathState has its type. `steps` name each link by
   * its path inside the view, its directories resolved.
   */
  resolve(file: string): Resolution {
    const steps: LinkStep[] = [];
    let from = '/';
    let current = file;
    for (;;) {
      const [directory, name] = splitLast(current);
      const parent = this.#walk(from, directory, 0);
      if (parent.kind === 'loop') return { kind: 'loop', steps };
      if (parent.kind === 'missing') {
        return steps.length === 0 ? { kind: 'absent' } : { kind: 'dangling', missing: parent.path, steps };
      }
      const real = path.join(parent.realPath, name);
      const stats = lstatHost(this.prefix + real, file);
      if (stats === null) {
        return steps.length === 0 ? { kind: 'absent' } : { kind: 'dangling', missing: real, steps };
      }
      if (stats.isDirectory()) return { kind: 'directory', realPath: real, steps };
      if (!stats.isSymbolicLink()) return { kind: 'file', realPath: real, steps };
      const target = readlinkHost(this.prefix + real);
      // Removed or replaced between the two calls: its present state decides.
      if (target === null) continue;
      const seen = steps.some((step) => step.path === real);
      steps.push({ path: real, target });
      if (seen || steps.length > maxLinks) return { kind: 'loop', steps };
      from = parent.realPath;
      current = target;
    }
  }

  /** The directory `directory` (its components not yet resolved), beginning at the real directory `from`. */
  #walk(from: string, directory: string, depth: number): Directory {
    let real = directory.startsWith('/') ? '/' : from;
    for (const name of directory.split('/')) {
      if (name === '' || name === '.') continue;
      if (name === '..') {
        real = path.dirname(real);
        continue;
      }
      const next = this.#child(path.join(real, name), depth);
      if (next.kind !== 'found') return next;
      real = next.realPath;
    }
    return { kind: 'found', realPath: real };
  }

  /** The directory at a path whose parent is real: itself, or where its link leads. */
  #child(real: string, depth: number): Directory {
    if (depth > maxLinks) return { kind: 'loop' };
    const known = this.#directories.get(real);
    if (known !== undefined) return known;
    const answer = this.#lookUp(real, depth);
    this.#directories.set(real, answer);
    return answer;
  }

  #lookUp(real: string, depth: number): Directory {
    const stats = lstatHost(this.prefix + real, real);
    if (stats?.isDirectory()) return { kind: 'found', realPath: real };
    if (!stats?.isSymbolicLink()) return { kind: 'missing', path: real };
    const target = readlinkHost(this.prefix + real);
    return target === null
      ? { kind: 'missing', path: real }
      : this.#walk(path.dirname(real), target, depth + 1);
  }
}

/** Directory part and last component. A path that ends in `/`, `.` or `..` names a directory: `.` of it. */
function splitLast(file: string): [directory: string, name: string] {
  const slash = file.lastIndexOf('/');
  const name = file.slice(slash + 1);
  return name === '' || name === '.' || name === '..' ? [file, '.'] : [file.slice(0, slash + 1), name];
}

/** Opens a regular file by its path for this process; null for anything else and when it is gone. */
export function openRegular(hostPath: string, shown: string): number | null {
  try {
    return openFile(hostPath);
  } catch (cause) {
    const code = errnoOf(cause);
    if (code === 'ENOENT' || code === 'ENOTDIR' || code === 'ELOOP' || code === 'ENXIO') return null;
    throw notAllowed('open', shown, cause);
  }
}

function lstatHost(hostPath: string, shown: string): fs.BigIntStats | null {
  try {
    return fs.lstatSync(hostPath, { bigint: true, throwIfNoEntry: false }) ?? null;
  } catch (cause) {
    const code = errnoOf(cause);
    if (code === 'ENOTDIR' || code === 'ELOOP' || code === 'ENAMETOOLONG') return null;
    throw notAllowed('examine', shown, cause);
  }
}

function readlinkHost(hostPath: string): string | null {
  try {
    return fs.readlinkSync(hostPath);
  } catch {
    return null;
  }
}

function notAllowed(operation: string, shown: string, cause: unknown): VgpuError {
  return new VgpuError(`cannot ${operation} ${shown}: ${errnoOf(cause) ?? String(cause)}`, {
    kind: 'failed',
    operation,
    path: shown,
    remedy: 'run as root: sudo vgpu-agent ...',
    cause,
  });
}
