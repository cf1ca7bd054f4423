/** Memory that a host shares with a VM, without a VM: a file, which the guest is told by name. */
import { rmSync, truncateSync, writeFileSync } from 'node:fs';
import { atTheEnd } from '../shim_host.js';

export interface VmMemory {
  readonly path: string;
  /** For vgpu-hostd. */
  readonly args: readonly string[];
  /** For the guest's program. */
  readonly env: Readonly<Record<string, string>>;
  remove(): void;
}

let made = 0;

/** The file (in memory, `megabytes` long) and a hostd.conf in `directory` that gives it to this user's programs. */
export function makeVmMemory(directory: string, megabytes: number): VmMemory {
  const path = `/dev/shm/vgpu-test-${process.pid}-${made++}`;
  writeFileSync(path, '', { mode: 0o600, flag: 'wx' });
  truncateSync(path, megabytes << 20);
  const conf = `${path.replace('/dev/shm', directory)}.conf`;
  writeFileSync(conf, `allow unix uid=${process.getuid?.()} vm-memory=${path}\n`);
  return {
    path,
    args: ['--config', conf],
    env: { VGPU_VM_MEMORY: path },
    remove: atTheEnd(() => rmSync(path, { force: true })).done,
  };
}
