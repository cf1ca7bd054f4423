/** Memory that this guest shares with its host (ivshmem-plain), and who may open it. Reads, never writes. */
import type { SharedMemoryDevice, VmMemoryFacts } from '../../contracts/facts.js';
import { vmMemoryRule } from '../../lib/paths.js';
import type { ContentCache } from '../files/content.js';
import { ownedFile } from '../files/path-state.js';
import type { Root } from '../files/root.js';

const pciDevices = '/sys/bus/pci/devices';
/** ivshmem's own numbers: docs/specs/ivshmem-spec of QEMU; shim-src/guest/vm_memory.c looks for the same. */
const ivshmem = { vendor: '0x1af4', device: '0x1110' };
/** The group whose members may use GPUs; Ollama's installer and others add them to it. */
const group = 'render';
const maxFileBytes = 1024 * 1024;

export async function readVmMemory(root: Root, contents: ContentCache): Promise<VmMemoryFacts> {
  const lockdown = root.readFile('/sys/kernel/security/lockdown', maxFileBytes)?.toString('utf8') ?? '';
  return {
    devices: root.readdir(pciDevices).flatMap((name) => deviceAt(root, `${pciDevices}/${name}`)),
    rule: await ownedFile(root, vmMemoryRule, contents),
    group: groupNamed(root.readFile('/etc/group', maxFileBytes)?.toString('utf8') ?? '', group),
    locked: /\[(?:integrity|confidentiality)\]/.test(lockdown),
  };
}

function deviceAt(root: Root, directory: string): readonly SharedMemoryDevice[] {
  const says = (name: string): string | undefined =>
    root.readFile(`${directory}/${name}`, maxFileBytes)?.toString('utf8').trim();
  if (says('vendor') !== ivshmem.vendor || says('device') !== ivshmem.device) return [];
  // Its third region is the memory.
  const path = `${directory}/resource2`;
  const status = root.stat(path);
  if (status === null) return [];
  const { uid, gid, mode, size } = status;
  return [{ path, bytes: Number(size), uid: Number(uid), gid: Number(gid), mode: Number(mode & 0o7777n) }];
}

function groupNamed(text: string, name: string): VmMemoryFacts['group'] {
  const gid = new RegExp(`^${name}:[^:]*:(\\d+):`, 'm').exec(text)?.[1];
  return gid === undefined ? null : { name, gid: Number(gid) };
}
