/** Limits of the system that any operation can meet. An error of this kind is not a bug in vgpu-agent. */
import { errnoOf } from './errors.js';

interface Limit {
  readonly reached: string;
  readonly remedy: string;
}

const limits: Readonly<Record<string, Limit>> = {
  EMFILE: {
    reached: 'this process may not open more files',
    remedy: 'raise its limit: ulimit -n 1024, or LimitNOFILE= of the unit that runs it',
  },
  ENFILE: {
    reached: 'this machine may not open more files',
    remedy: 'compare /proc/sys/fs/file-nr with fs.file-max (sysctl), and end what holds many files open',
  },
  ENOMEM: {
    reached: 'there is not enough memory',
    remedy: 'free memory, or raise the limit: ulimit -v, or MemoryMax= of the unit that runs it',
  },
  EAGAIN: {
    reached: 'no further process or thread can be started',
    remedy: 'raise the limit: ulimit -u, or TasksMax= of the unit that runs it',
  },
  ENOSPC: { reached: 'the disk is full', remedy: 'free space: df -h, df -i' },
  EDQUOT: {
    reached: "the quota of this command's user is used up",
    remedy: 'free space, or raise the quota',
  },
  EFBIG: {
    reached: 'this process may not write so much into one file',
    remedy: 'raise its limit: ulimit -f unlimited, or LimitFSIZE= of the unit that runs it',
  },
  EIO: { reached: 'the disk reported an error', remedy: 'look for errors of the disk: dmesg' },
};

/** The limit that an error of the system is about; null: none. */
export function limitReached(error: unknown): Limit | null {
  const code = errnoOf(error);
  if (code === undefined || !Object.hasOwn(limits, code)) return null;
  // Reading and writing report EAGAIN too, and mean something else.
  if (code === 'EAGAIN' && !isSpawn(error)) return null;
  return limits[code] ?? null;
}

function isSpawn(error: unknown): boolean {
  return (
    error instanceof Error &&
    'syscall' in error &&
    typeof error.syscall === 'string' &&
    error.syscall.startsWith('spawn')
  );
}
