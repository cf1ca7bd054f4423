import { createHash } from 'node:crypto';
import fs, { type BigIntStats } from 'node:fs';
import { promisify } from 'node:util';
import type { ElfFacts, LibraryVendor, OwnedFileFacts } from '../../contracts/facts.js';
import type { PathState } from '../../contracts/manifest.js';
import { errnoOf } from '../../lib/errors.js';
import { namesUpTo } from '../../lib/trust/files.js';
import { descriptorSource, type ElfReading, readElf } from '../elf.js';
import { openRegular, type Root } from './root.js';

export interface Content {
  readonly size: number;
  /** Hex; `unread` for a file above `maxContentBytes`. */
  readonly sha256: string;
  readonly elf: ElfReading;
  readonly vendor: LibraryVendor;
}

/** No driver library is near it (libcuda 550: 29 MB); a sparse file must not keep us reading for hours. */
export const maxContentBytes = 256 * 1024 * 1024;

/**
 * Marks of NVIDIA's driver libraries: parts of the kernel/library version check that every one of them
 * carries and that an interposer or a re-implementation has no use for. Found in .rodata of libcuda and
 * libnvidia-ml 470.256.02, 535.261.03 and 550.163.01; CUDA's link-time stubs and libcudart have neither.
 */
const nvidiaMarks = ['this NVIDIA driver component has version', '__RM_NO_VERSION_CHECK'].map((mark) =>
  Buffer.from(mark, 'latin1'),
);
const longestMark = Math.max(...nvidiaMarks.map((mark) => mark.length));
const chunkBytes = 4 * 1024 * 1024;

const readAsync = promisify(fs.read);

/** More files than one inspection reads; the service inspects for months and must not grow. */
const maxRemembered = 1_000;

/** Remembers contents by device, inode, size and both times: a rewritten file is read again. */
export class ContentCache {
  readonly #known = new Map<string, Promise<Content>>();

  /** The content at a path of this process's own view (`Root.hostPath`); null when it is not a regular file. */
  async of(hostPath: string, shown: string): Promise<Content | null> {
    return this.ofDescriptor(openRegular(hostPath, shown));
  }

  /** As `of`, for a descriptor of a regular file, which it closes. */
  async ofDescriptor(descriptor: number | null): Promise<Content | null> {
    if (descriptor === null) return null;
    const before = fs.fstatSync(descriptor, { bigint: true });
    const key = [before.dev, before.ino, before.size, before.mtimeNs, before.ctimeNs].join(':');
    const known = this.#known.get(key);
    if (known !== undefined) {
      fs.closeSync(descriptor);
      return known;
    }
    const pending = examine(descriptor).finally(() => fs.closeSync(descriptor));
    this.#known.set(key, pending);
    if (this.#known.size > maxRemembered) {
      const [oldest] = this.#known.keys();
      if (oldest !== undefined) this.#known.delete(oldest);
    }
    pending.catch(() => this.#known.delete(key));
    return pending;
  }
}

/** The file that a path leads to; null where that is no regular file. Throws `failed` when this user may not look. */
export async function contentAt(root: Root, file: string, contents: ContentCache): Promise<Content | null> {
  const resolution = root.resolve(file);
  return resolution.kind === 'file' ? contents.of(root.prefix + resolution.realPath, file) : null;
}

/** Null, too, for what is no ELF file and for what this user may not read. */
export async function elfAt(root: Root, file: string, contents: ContentCache): Promise<ElfFacts | null> {
  const content = await contentAt(root, file, contents).catch(() => null);
  return content?.elf.kind === 'elf' ? content.elf.facts : null;
}

async function examine(descriptor: number): Promise<Content> {
  const source = descriptorSource(descriptor);
  const elf = readElf(source);
  const ours = elf.kind === 'elf' && elf.facts.provenance !== null;
  if (source.size > maxContentBytes) {
    return { size: source.size, sha256: 'unread', elf, vendor: ours ? 'vgpu' : 'foreign' };
  }
  const { sha256, marked } = await readThrough(descriptor, source.size, elf.kind === 'elf' && !ours);
  return { size: source.size, sha256, elf, vendor: ours ? 'vgpu' : marked ? 'nvidia' : 'foreign' };
}

async function readThrough(
  descriptor: number,
  size: number,
  lookForMarks: boolean,
): Promise<{ sha256: string; marked: boolean }> {
  const hash = createHash('sha256');
  const buffer = Buffer.alloc(Math.min(chunkBytes, size) + longestMark);
  let marked = false;
  // The end of each chunk is put before the next one, so a mark across the border is seen.
  let tail = 0;
  for (let offset = 0; offset < size; ) {
    const { bytesRead } = await readAsync(descriptor, buffer, tail, buffer.length - tail, offset);
    if (bytesRead === 0) break;
    hash.update(buffer.subarray(tail, tail + bytesRead));
    offset += bytesRead;
    const window = buffer.subarray(0, tail + bytesRead);
    if (lookForMarks && !marked) marked = nvidiaMarks.some((mark) => window.indexOf(mark) !== -1);
    tail = Math.min(longestMark - 1, window.length);
    window.copyWithin(0, window.length - tail);
  }
  return { sha256: hash.digest('hex'), marked };
}

/** vgpu-agent's own files are small; a longer one in their place is another file, for which a hash is enough. */
const maxOwnedBytes = 256 * 1024;

/** Does not follow a final link. Missing directories give `absent`. Throws `failed` when unreadable. */
export async function pathState(root: Root, file: string, contents: ContentCache): Promise<PathState> {
  const host = root.hostPath(file);
  // Throws with the path as the caller knows it.
  if (host === null || root.lstat(file) === null) return { kind: 'absent' };
  return stateAt(host, () => contents.of(host, file));
}

/** As `pathState`, of this process's own view. `read` gives null for what is no regular file any more. */
export async function stateAt(
  host: string,
  read: (size: number) => Promise<Pick<Content, 'size' | 'sha256'> | null>,
): Promise<PathState> {
  for (;;) {
    try {
      const stats = fs.lstatSync(host, { bigint: true });
      const owner = { uid: Number(stats.uid), gid: Number(stats.gid), mtimeNs: stats.mtimeNs.toString() };
      const mode = permissions(stats);
      if (stats.isSymbolicLink()) return { kind: 'link', target: fs.readlinkSync(host), ...owner };
      if (stats.isDirectory())
        return { kind: 'directory', empty: namesUpTo(host, 1).length === 0, mode, ...owner };
      if (!stats.isFile()) return { kind: 'other', type: typeOf(stats), ...owner };
      const content = await read(Number(stats.size));
      if (content !== null)
        return { kind: 'file', size: content.size, sha256: content.sha256, mode, ...owner };
    } catch (error) {
      const code = errnoOf(error);
      if (code === 'ENOENT' || code === 'ENOTDIR') return { kind: 'absent' };
      // EINVAL: readlink(2) of what is no link any more.
      if (code !== 'EINVAL') throw error;
    }
    // It was replaced between the two looks: look again.
  }
}

export async function ownedFile(root: Root, file: string, contents: ContentCache): Promise<OwnedFileFacts> {
  const state = await pathState(root, file, contents);
  const content = state.kind === 'file' ? root.readFile(file, maxOwnedBytes) : null;
  return { path: file, state, content: content === null ? null : content.toString('utf8') };
}

export function permissions(stats: BigIntStats): number {
  return Number(stats.mode & 0o7777n);
}

function typeOf(stats: BigIntStats): 'fifo' | 'socket' | 'block' | 'character' {
  if (stats.isFIFO()) return 'fifo';
  if (stats.isSocket()) return 'socket';
  return stats.isBlockDevice() ? 'block' : 'character';
}
