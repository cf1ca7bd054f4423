/**
 * One lock for the commands and the service. flock(2) has no call in Node, so flock(1) takes it on a descriptor that
 * it inherits: the lock belongs to the *open file description*, which both processes share, and so it stays when
 * flock(1) ends, and goes when this process does, however it dies.
 */

import { spawn } from 'node:child_process';
import { constants } from 'node:fs';
import fs from 'node:fs/promises';
import path from 'node:path';
import { errnoOf, VgpuError } from '../../lib/errors.js';
import { guestState, hostState, lockFile, serviceStarts } from '../../lib/paths.js';
import { toolEnvironment } from '../../lib/run-command.js';
import type { Disk } from './effects.js';

interface LockOptions {
  readonly command: string;
  readonly waitMs: number;
  readonly file?: string;
  readonly signal?: AbortSignal | undefined;
}

/** Only the owner may open the file, because a user who can open it, even for reading, can take the lock. */
const lockMode = 0o600;
const closedToOthers = constants.O_RDWR | constants.O_CREAT | constants.O_NOFOLLOW | constants.O_NONBLOCK;

/**
 * Runs `task` under the lock. After a complete uninstall of the last of guest and host no lock file stays. Throws as
 * `acquireLock` and `task` do.
 */
export async function underLock<T>(
  disk: Pick<Disk, 'inspect'>,
  options: LockOptions,
  task: () => Promise<T>,
): Promise<T> {
  const lock = await acquireLock(options);
  let remove = false;
  try {
    const result = await task();
    const manifests = await Promise.all(
      [guestState, hostState].map(({ manifest }) => disk.inspect(manifest)),
    );
    remove = options.command === 'uninstall' && manifests.every(({ kind }) => kind === 'absent');
    return result;
  } finally {
    await lock.release({ remove });
  }
}

/** Throws `refused` (who holds it), `interrupted` (by `signal`), `failed` (flock(1) cannot be run). */
export async function acquireLock(options: LockOptions): Promise<ReturnType<typeof lockOf>> {
  const file = options.file ?? lockFile;
  const deadline = performance.now() + options.waitMs;
  for (;;) {
    const handle = await openLockFile(file);
    try {
      if (!(await taken(handle.fd, deadline, options.signal))) throw await held(file);
      if (await isStill(file, handle)) {
        await handle.truncate(0);
        await handle.write(`${process.pid} ${options.command}\n`, 0);
        return lockOf(file, handle);
      }
      // The previous holder removed the file, so this lock excludes no process. Take the lock of the new file.
      await handle.close();
    } catch (error) {
      await handle.close();
      throw error;
    }
  }
}

function lockOf(file: string, handle: fs.FileHandle) {
  return {
    /** `remove` also deletes the lock file: a process that waits for it notices and makes a new one. */
    async release({ remove = false } = {}): Promise<void> {
      try {
        if (remove) {
          await fs.unlink(file);
          await fs.rm(path.join(path.dirname(file), path.basename(serviceStarts)), { force: true });
          await fs.rmdir(path.dirname(file));
        }
      } catch (error) {
        // Another process has opened a lock of its own there meanwhile, or has removed it already; a mount point stays.
        const code = errnoOf(error);
        if (code !== 'ENOTEMPTY' && code !== 'ENOENT' && code !== 'EBUSY') throw error;
      } finally {
        await handle.close();
      }
    },
  };
}

async function openLockFile(file: string): Promise<fs.FileHandle> {
  for (;;) {
    try {
      const made = await fs.mkdir(path.dirname(file), { recursive: true });
      // Other users read what lies beside the lock, whatever umask root has.
      if (made !== undefined) await fs.chmod(path.dirname(file), 0o755);
      return await fs.open(file, closedToOthers, lockMode);
    } catch (error) {
      const code = errnoOf(error);
      // An uninstall removed the directory between the two calls.
      if (code === 'ENOENT') continue;
      throw new VgpuError(`cannot open the lock ${file}: ${code ?? String(error)}`, {
        kind: code === 'EACCES' || code === 'EPERM' ? 'refused' : 'failed',
        operation: 'take the lock',
        path: file,
        remedy: code === 'EACCES' || code === 'EPERM' ? 'run as root: sudo vgpu-agent ...' : `check ${file}`,
        cause: error,
      });
    }
  }
}

async function isStill(file: string, handle: fs.FileHandle): Promise<boolean> {
  try {
    const [named, open] = await Promise.all([fs.stat(file), handle.stat()]);
    return named.ino === open.ino && named.dev === open.dev;
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return false;
    throw error;
  }
}

/** Waits only while the lock is held, so that a signal before that reports no wait. */
async function taken(
  descriptor: number,
  deadline: number,
  signal: AbortSignal | undefined,
): Promise<boolean> {
  if (await flock(descriptor, 0, signal)) return true;
  const seconds = (deadline - performance.now()) / 1000;
  return seconds > 0 && (await flock(descriptor, seconds, signal));
}

function flock(descriptor: number, seconds: number, signal: AbortSignal | undefined): Promise<boolean> {
  const patience = seconds > 0 ? ['-w', seconds.toFixed(3)] : ['-n'];
  return new Promise((resolve, reject) => {
    // 75: no other failure of flock(1) has it.
    const child = spawn('flock', [...patience, '-E', '75', '3'], {
      env: toolEnvironment(process.env),
      // A session of its own: Ctrl-C at the terminal is for us, and we say what it means.
      detached: true,
      stdio: ['ignore', 'ignore', 'ignore', descriptor],
    });
    const stop = (): void => void child.kill('SIGTERM');
    if (signal?.aborted === true) stop();
    signal?.addEventListener('abort', stop, { once: true });
    child.on('error', (cause) => reject(cannotLock(`cannot run flock: ${cause.message}`, cause)));
    child.on('exit', (code, ended) => {
      signal?.removeEventListener('abort', stop);
      if (signal?.aborted === true) reject(stopped(seconds > 0));
      else if (code === 0) resolve(true);
      else if (code === 75) resolve(false);
      else reject(cannotLock(`flock ended with ${code ?? ended ?? 'nothing'}`));
    });
  });
}

function stopped(waited: boolean): VgpuError {
  const when = waited ? 'while waiting for another vgpu-agent' : 'before it began';
  return new VgpuError(`stopped ${when}; nothing was changed`, {
    kind: 'interrupted',
    operation: 'take the lock',
  });
}

function cannotLock(message: string, cause?: unknown): VgpuError {
  const absent = errnoOf(cause) === 'ENOENT';
  return new VgpuError(message, {
    kind: 'failed',
    operation: 'take the lock',
    remedy: absent ? 'install the package util-linux, which provides flock' : undefined,
    cause,
  });
}

async function held(file: string): Promise<VgpuError> {
  const text = (await fs.readFile(file, 'utf8').catch(() => '')).trim();
  const match = /^(\d+) (.*)$/.exec(text);
  const who = match === null ? 'another vgpu-agent' : `vgpu-agent ${match[2]} (process ${match[1]})`;
  return new VgpuError(`${who} is changing this machine`, {
    kind: 'refused',
    operation: 'take the lock',
    path: file,
    remedy: 'wait until it is done, then run the same command again',
  });
}
