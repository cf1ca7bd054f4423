/** The state of a path, exactly enough to restore it. */
import type { BigIntStats } from 'node:fs';
import type { OwnedFileFacts } from '../../contracts/facts.js';
import type { PathState } from '../../contracts/path-state.js';
import type { ContentCache } from './content.js';
import type { Root } from './root.js';

/** vgpu-agent's own files are small; a longer one in their place is another file, for which a hash is enough. */
const maxOwnedBytes = 256 * 1024;

/**
 * The state of `file`, its last link not followed. Directories on the way that are missing give `absent`.
 * Throws a VgpuError (`failed`) when it may not be read.
 */
export async function pathState(root: Root, file: string, contents: ContentCache): Promise<PathState> {
  for (;;) {
    const host = root.hostPath(file);
    const stats = host === null ? null : root.lstat(file);
    if (host === null || stats === null) return { kind: 'absent' };
    const owner = ownership(stats);
    if (stats.isSymbolicLink()) {
      const target = root.readlink(file);
      if (target !== null) return { kind: 'link', target, ...owner };
    } else if (stats.isDirectory()) {
      return {
        kind: 'directory',
        empty: root.readdir(file).length === 0,
        mode: permissions(stats),
        ...owner,
      };
    } else if (stats.isFile()) {
      const content = await contents.of(host, file);
      if (content !== null) {
        const { size, sha256 } = content;
        return { kind: 'file', size, sha256, mode: permissions(stats), ...owner };
      }
    } else {
      return { kind: 'other', type: typeOf(stats), ...owner };
    }
    // It was replaced between the two looks: look again.
  }
}

/** State and, for a readable regular file of sensible size, its text. */
export async function ownedFile(root: Root, file: string, contents: ContentCache): Promise<OwnedFileFacts> {
  const state = await pathState(root, file, contents);
  const content = state.kind === 'file' ? root.readFile(file, maxOwnedBytes) : null;
  return { path: file, state, content: content === null ? null : content.toString('utf8') };
}

/** Permission bits, set-id and sticky included. */
export function permissions(stats: BigIntStats): number {
  return Number(stats.mode & 0o7777n);
}

function ownership(stats: BigIntStats): { uid: number; gid: number; mtimeNs: string } {
  return { uid: Number(stats.uid), gid: Number(stats.gid), mtimeNs: stats.mtimeNs.toString() };
}

function typeOf(stats: BigIntStats): 'fifo' | 'socket' | 'block' | 'character' {
  if (stats.isFIFO()) return 'fifo';
  if (stats.isSocket()) return 'socket';
  return stats.isBlockDevice() ? 'block' : 'character';
}
