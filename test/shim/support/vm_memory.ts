/** Memory that a host shares with a VM, without a VM: a file, which the guest is told by name. */
import { mkdtempSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { atTheEnd } from '../shim_host.js';

export interface VmMemory {
  readonly path: string;
  /** For vgpu-hostd. */
  readonly args: readonly string[];
  /** For the guest's program. */
  readonly env: Readonly<Record<string, string>>;
  remove(): void;
}

/** The file (in memory, `megabytes` long) and a hostd.conf in `directory` that gives it to this user's programs. */
export function makeVmMemory(directory: string, megabytes: number): VmMemory {
  // A pid is no name: /dev/shm may be the one of other containers, and a killed run leaves its files there.
  const own = mkdtempSync('/dev/shm/vgpu-test-');
  const file = path.join(own, 'memory');
  const { done: remove } = atTheEnd(() => rmSync(own, { recursive: true, force: true }));
  writeFileSync(file, '', { mode: 0o600 });
  truncateSync(file, megabytes << 20);
  const conf = path.join(directory, `${path.basename(own)}.conf`);
  writeFileSync(conf, `allow unix uid=${process.getuid?.()} vm-memory=${file}\n`);
  return { path: file, args: ['--config', conf], env: { VGPU_VM_MEMORY: file }, remove };
}
