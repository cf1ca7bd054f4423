/** The effects of apply/, passed in, so that tests can make each of them fail or stop. */
import { channel } from 'node:diagnostics_channel';
import type { MachineFacts } from '../../contracts/facts.js';
import type { PathState } from '../../contracts/manifest.js';
import type { StatePaths } from '../../lib/paths.js';
import type { CommandRunner } from '../../lib/run-command.js';
import type { JobResult, Manager } from '../../systemd/types.js';

/**
 * The file system, one method a mutation. Paths are absolute; the real one (disk.ts) puts a prefix before
 * them. None follows a link at the end of `path`. Mutations are durable when they return, except that the
 * directory entry waits for `syncDirectory`.
 */
export interface Disk {
  /** Where the manifest, the log and the backups are: those of a guest or of a host. */
  readonly state: StatePaths;
  /** lstat, with the SHA-256 of a regular file. */
  inspect(path: string): Promise<PathState>;
  read(path: string): Promise<Buffer | null>;
  /** Names in the directory, sorted; empty when it is absent. */
  list(path: string): Promise<readonly string[]>;
  /** mkdir; mode exactly, whatever the umask. */
  makeDirectory(path: string, mode: number): Promise<void>;
  /** Creates a file that must not exist, writes, sets mode, fsyncs. Owner root. */
  create(path: string, content: Buffer, mode: number): Promise<void>;
  /** Appends and fsyncs; creates with mode 0600. */
  append(path: string, content: Buffer): Promise<void>;
  own(path: string, uid: number, gid: number): Promise<void>;
  symlink(path: string, target: string): Promise<void>;
  rename(from: string, to: string): Promise<void>;
  unlink(path: string): Promise<void>;
  /** Removes an empty directory. A mount point stays: it is the administrator's. */
  removeDirectory(path: string): Promise<void>;
  /** A copy of a file, link or empty directory: bytes, mode, owner, nanosecond times, extended attributes; fsynced. */
  copy(from: string, to: string): Promise<void>;
  syncDirectory(path: string): Promise<void>;
}

export interface ApplyEffects {
  readonly disk: Disk;
  readonly runner: CommandRunner;
  readonly manager: Pick<Manager, 'reload' | 'restart' | 'start' | 'stop'>;
  readonly readSource: (path: string) => Promise<Buffer>;
  readonly mappedUnder: (directory: string) => Promise<ReadonlySet<string>>;
  /** Why the service's user (null: root) cannot load this library; null when he can. */
  readonly loadProblem: (user: MachineFacts['serviceUser'], file: string) => Promise<string | null>;
  readonly agentVersion: string;
  readonly restartTimeoutMs: number;
}

export interface ApplyOptions {
  /** The caller then calls `rollback` or `settle`; if the process dies first, `recover` settles. */
  readonly keepUndo: boolean;
  /** Aborted between two changes: everything is taken back and a VgpuError `interrupted` is thrown. */
  readonly signal?: AbortSignal;
}

/** How the restart went. It comes after the commit: a service that fails to start undoes nothing by itself. */
export type RestartOutcome =
  | { readonly kind: 'not-planned' }
  | { readonly kind: 'restarted'; readonly job: JobResult }
  | { readonly kind: 'failed'; readonly message: string };

export interface Applied {
  readonly changes: number;
  readonly restart: RestartOutcome;
  readonly undoKept: boolean;
}

export type Recovery =
  | { readonly kind: 'nothing' }
  /** Cut short before its commit: taken back. */
  | { readonly kind: 'rolled-back'; readonly intent: 'install' | 'uninstall' }
  /** Cut short after its commit: the cleaning up was finished. */
  | { readonly kind: 'finished'; readonly intent: 'install' | 'uninstall' };

// Marks where a run may be cut short. Nothing subscribes in production, and then it costs one property read.
// A test preloads a module that subscribes to `vgpu.checkpoint` and kills its own process at the n-th.

interface Checkpoint {
  /** The fact that has just become true: `rename /etc/vgpu/guest.conf`. */
  readonly name: string;
}

const checkpoints = channel('vgpu.checkpoint');

export function checkpoint(name: string): void {
  if (checkpoints.hasSubscribers) checkpoints.publish({ name } satisfies Checkpoint);
}
