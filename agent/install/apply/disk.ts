/**
 * The real file system behind `Disk`. Calls for metadata and directory entries are synchronous, because each takes
 * microseconds, and the thread pool adds tens. Calls that wait for the disk or read much data are asynchronous.
 */
import { createHash } from 'node:crypto';
import sync from 'node:fs';
import fs from 'node:fs/promises';
import { machine } from 'node:os';
import path from 'node:path';
import { ContentCache, stateAt } from '../../guest/files/content.js';
import { canLoad, describeLoadCheck } from '../../guest/unit/access.js';
import { mappedUnder } from '../../guest/unit/processes.js';
import { errnoOf, VgpuError } from '../../lib/errors.js';
import { guestState, type StatePaths } from '../../lib/paths.js';
import type { CommandRunner } from '../../lib/run-command.js';
import { type ApplyEffects, checkpoint, type Disk } from './effects.js';

/** `prefix`: a tree under test. cp(1) copies, because Node keeps neither extended attributes nor nanoseconds. */
export function nodeDisk(runner: CommandRunner, prefix = '', state: StatePaths = guestState): Disk {
  const write = async (file: string, flags: 'wx' | 'a', content: Buffer, mode: number): Promise<void> => {
    const handle = await fs.open(prefix + file, flags, mode);
    try {
      await handle.writeFile(content);
      if (flags === 'wx') await handle.chmod(mode);
      await handle.sync();
    } catch (error) {
      // Node's errors of an open file (ENOSPC while writing) lack the path.
      if (errnoOf(error) === undefined || !(error instanceof Error) || 'path' in error) throw error;
      throw Object.assign(error, { path: file });
    } finally {
      await handle.close();
    }
  };
  return {
    state,
    async inspect(file) {
      const host = prefix + file;
      return stateAt(host, async (size) => ({ size, sha256: await hashOf(host, size) }));
    },
    read: async (file) => absentAsNull(() => sync.readFileSync(prefix + file)),
    list: async (directory) => absentAsNull(() => sync.readdirSync(prefix + directory))?.sort() ?? [],
    async makeDirectory(directory, mode) {
      sync.mkdirSync(prefix + directory, { mode });
      sync.chmodSync(prefix + directory, mode);
      checkpoint(`mkdir ${directory}`);
    },
    async create(file, content, mode) {
      await write(file, 'wx', content, mode);
      checkpoint(`create ${file}`);
    },
    async append(file, content) {
      await write(file, 'a', content, 0o600);
      checkpoint(`append ${file}`);
    },
    async own(file, uid, gid) {
      sync.lchownSync(prefix + file, uid, gid);
      checkpoint(`own ${file}`);
    },
    async symlink(file, target) {
      sync.symlinkSync(target, prefix + file);
      checkpoint(`symlink ${file}`);
    },
    async rename(from, to) {
      sync.renameSync(prefix + from, prefix + to);
      checkpoint(`rename ${to}`);
    },
    async unlink(file) {
      sync.unlinkSync(prefix + file);
      checkpoint(`unlink ${file}`);
    },
    async removeDirectory(directory) {
      try {
        sync.rmdirSync(prefix + directory);
      } catch (error) {
        if (errnoOf(error) !== 'EBUSY') throw error;
      }
      checkpoint(`rmdir ${directory}`);
    },
    async copy(from, to) {
      const [source, target] = [prefix + from, prefix + to];
      const result = await runner.run('cp', ['-a', '-T', '--', source, target]);
      if (result.code !== 0) {
        throw copyError(from, to, result.stderr.toString().trim(), whyNoCopy(source, target));
      }
      if (sync.lstatSync(target).isFile()) await synced(target);
      checkpoint(`copy ${to}`);
    },
    syncDirectory: (directory) => synced(prefix + directory),
  };
}

/** Opened for reading: a copy may be of a file without the write bit, and fsync needs none. */
async function synced(host: string): Promise<void> {
  const handle = await fs.open(host, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

export function syncParent(disk: Disk, file: string): Promise<void> {
  return disk.syncDirectory(path.dirname(file));
}

function absentAsNull<T>(look: () => T): T | null {
  try {
    return look();
  } catch (error) {
    const code = errnoOf(error);
    if (code === 'ENOENT' || code === 'ENOTDIR') return null;
    throw error;
  }
}

/** A small file is read at once: the thread pool takes longer. */
const smallBytes = 1 << 18;

async function hashOf(host: string, size: number): Promise<string> {
  const hash = createHash('sha256');
  if (size <= smallBytes) return hash.update(sync.readFileSync(host)).digest('hex');
  for await (const chunk of sync.createReadStream(host)) hash.update(chunk);
  return hash.digest('hex');
}

/** cp(1) prints the errno only as text, so this repeats the copy to get the errno; null: it works, or is no file. */
function whyNoCopy(source: string, target: string): string | null {
  try {
    const stats = sync.lstatSync(source);
    // A copy that cp left is not complete.
    sync.rmSync(target, { force: true });
    if (stats.isSymbolicLink()) sync.symlinkSync(sync.readlinkSync(source), target);
    else if (stats.isFile()) sync.copyFileSync(source, target);
    // Nor is this: it has neither attributes nor exact times.
    sync.rmSync(target, { force: true });
    return null;
  } catch (error) {
    return errnoOf(error) ?? null;
  }
}

function copyError(from: string, to: string, said: string, code: string | null): VgpuError {
  const cause = Object.assign(new Error(said), { code, path: to });
  return new VgpuError(`cannot copy ${from} to ${to}: ${said}`, {
    kind: 'failed',
    operation: 'copy',
    path: to,
    cause,
  });
}

export function systemEffects(what: {
  readonly runner: CommandRunner;
  readonly manager: ApplyEffects['manager'];
  readonly agentVersion: string;
  readonly restartTimeoutMs: number;
}): ApplyEffects {
  return {
    ...what,
    disk: nodeDisk(what.runner),
    readSource: (file) => fs.readFile(file),
    mappedUnder: (directory) => mappedUnder(directory),
    loadProblem: async (user, file) => {
      // A new cache each time: the file has just been written.
      const effects = { runner: what.runner, contents: new ContentCache(), architecture: machine() };
      const check = await canLoad(effects, user, file);
      return check.kind === 'loadable' ? null : describeLoadCheck(file, user, check);
    },
  };
}
