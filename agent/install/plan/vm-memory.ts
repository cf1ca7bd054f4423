/**
 * Memory that the guest shares with its host: calls and pinned memory go through it where the service may open it, and
 * over vsock otherwise. What there is, what is better, and the rule of udev that lets the service open it. Pure.
 */
import type { MachineFacts, SharedMemoryDevice, VmMemoryFacts } from '../../contracts/facts.js';
import { type Change, told, type Warning } from '../../contracts/plan.js';
import { splitHosts } from '../../guest/vgpu-host/endpoint.js';
import { defaultPort, vmMemoryRule } from '../../lib/paths.js';
import { octal } from '../../lib/text.js';
import { textChange } from './our-files.js';
import { ownedAt } from './owned.js';

/** How the calls of the service's programs travel, as far as it is known without a session. */
type VmMemory =
  /** A unix socket has its own rings; TCP has none; or it was not inspected. */
  | { readonly kind: 'not-concerned' }
  | { readonly kind: 'missing' }
  /** The kernel does not let any process map memory of PCI devices (Secure Boot). */
  | { readonly kind: 'locked'; readonly device: SharedMemoryDevice }
  | { readonly kind: 'open'; readonly device: SharedMemoryDevice }
  /** Its unit has ProtectKernelTunables=, and the device's file is below /sys. */
  | { readonly kind: 'protected'; readonly device: SharedMemoryDevice }
  /** The rule would let it: `written`, and udev has to look at the device again; or still `missing`. */
  | {
      readonly kind: 'not-yet';
      readonly device: SharedMemoryDevice;
      readonly group: string;
      readonly rule: 'written' | 'missing';
    }
  /** The rule would let it, but a person's file or link has its name. */
  | { readonly kind: 'overridden'; readonly device: SharedMemoryDevice }
  /** The service's user may not open it, and no rule would change that. */
  | { readonly kind: 'closed'; readonly device: SharedMemoryDevice; readonly group: string };

export function vmMemoryOf(
  facts: Pick<MachineFacts, 'vmMemory' | 'serviceUser' | 'unit' | 'manifest'>,
  endpoint: string,
): VmMemory {
  const { vmMemory, serviceUser, unit } = facts;
  if (vmMemory === undefined || !splitHosts(endpoint).some((one) => one.startsWith('vsock:')))
    return { kind: 'not-concerned' };
  const [device] = vmMemory.devices;
  if (device === undefined) return { kind: 'missing' };
  if (vmMemory.locked) return { kind: 'locked', device };
  if (unit.kind === 'loaded' && unit.sandbox.protectKernelTunables === true)
    return { kind: 'protected', device };
  if (serviceUser === null || mayOpen(device, serviceUser)) return { kind: 'open', device };
  const { group } = vmMemory;
  const member = group !== null && [serviceUser.gid, ...serviceUser.groups].includes(group.gid);
  if (group === null || !member) return { kind: 'closed', device, group: group?.name ?? 'render' };
  const rule = ruleFacts(facts, vmMemory, group.name);
  return rule === 'foreign'
    ? { kind: 'overridden', device }
    : { kind: 'not-yet', device, group: group.name, rule };
}

/** `foreign`: a person's own file, or a link with which the rule is masked. It is left alone. */
function ruleFacts(
  { manifest }: Pick<MachineFacts, 'manifest'>,
  { rule }: VmMemoryFacts,
  group: string,
): 'written' | 'missing' | 'foreign' {
  if (rule.content === vmMemoryRuleText(group)) return 'written';
  const ours = ownedAt(manifest, vmMemoryRule) !== undefined;
  return ours || rule.state.kind === 'absent' ? 'missing' : 'foreign';
}

function mayOpen(
  { uid, gid, mode }: SharedMemoryDevice,
  user: NonNullable<MachineFacts['serviceUser']>,
): boolean {
  if (user.uid === 0) return true;
  if (user.uid === uid) return (mode & 0o600) === 0o600;
  if ([user.gid, ...user.groups].includes(gid)) return (mode & 0o060) === 0o060;
  return (mode & 0o006) === 0o006;
}

export function vmMemoryRuleText(group: string): string {
  const match = 'ACTION=="add|change", SUBSYSTEM=="pci", ATTR{vendor}=="0x1af4", ATTR{device}=="0x1110"';
  return `# Members of the group ${group} may open the memory that this machine shares with its host: the calls and the pinned
# memory of all CUDA programs in this machine are in it. Removed by: vgpu-agent uninstall
${match}, RUN+="/bin/chgrp ${group} %S%p/resource2", RUN+="/bin/chmod 0660 %S%p/resource2"
`;
}

/** A rule that is noted down stays for other consumers. */
export function vmMemoryChanges(facts: MachineFacts, endpoint: string): readonly Change[] {
  const now = vmMemoryOf(facts, endpoint);
  const { vmMemory, manifest } = facts;
  const group = vmMemory?.group?.name;
  if (vmMemory === undefined || group === undefined || now.kind === 'missing' || now.kind === 'not-concerned')
    return [];
  const rule = ruleFacts(facts, vmMemory, group);
  const wanted =
    now.kind === 'not-yet' || rule === 'written' || ownedAt(manifest, vmMemoryRule) !== undefined;
  if (!wanted || rule === 'foreign') return [];
  const reason = 'udev lets the service open the memory that this machine shares with its host';
  return textChange(facts, vmMemory.rule, vmMemoryRuleText(group), reason);
}

/** For libvirt, QEMU and Proxmox VE, and the line of the host. */
export const addMemory: readonly string[] = [
  "libvirt, in <devices>: <shmem name='vgpu-NAME' role='master'><model type='ivshmem-plain'/><size unit='M'>256</size></shmem>",
  'QEMU: -object memory-backend-file,id=vgpu,mem-path=/dev/shm/vgpu-NAME,size=256M,share=on -device ivshmem-plain,memdev=vgpu,master=on',
  "Proxmox VE: the same two options behind those of vsock, in qm set VMID --args '...'",
  'hostd.conf: allow vsock cid=CID vm-memory=/dev/shm/vgpu-NAME',
];

/** TCP is for a host that vsock does not reach. */
const overTcp: Warning = {
  code: 'tcp-transport',
  message: 'calls go over TCP: between a VM and its own host vsock is faster and can use shared memory',
  remedy: `where the host of this VM listens at vsock: sudo vgpu-agent install --host vsock:2:${defaultPort}`,
};

export function vmMemoryWarnings(facts: MachineFacts, endpoint: string): readonly Warning[] {
  if (vmMemoryOf(facts, endpoint).kind === 'not-concerned')
    return splitHosts(endpoint).every((one) => one.startsWith('tcp:')) ? [overTcp] : [];
  const trouble = vmMemoryTrouble(facts, endpoint);
  if (trouble === null) return [];
  const { code, message, remedy, command, evidence } = trouble;
  const how = code === 'no-shared-memory' ? evidence.join('; ') : command;
  return told(code, message, `${remedy}: ${how}`);
}

/** The reason why calls go over vsock, for install and the doctor; null if they do not, or memory cannot be shared. */
export function vmMemoryTrouble(
  facts: Pick<MachineFacts, 'vmMemory' | 'serviceUser' | 'unit' | 'manifest'>,
  endpoint: string,
): {
  readonly code: string;
  readonly message: string;
  readonly evidence: readonly string[];
  readonly remedy: string;
  readonly command: string;
} | null {
  const now = vmMemoryOf(facts, endpoint);
  if (now.kind === 'not-concerned' || now.kind === 'open') return null;
  if (now.kind === 'missing') {
    return {
      code: 'no-shared-memory',
      message:
        'this machine shares no memory with its host: calls and pinned memory go over vsock, which is slower, and mapped and managed memory are refused',
      evidence: addMemory,
      remedy:
        'on the host, add the memory to this machine (NAME: the machine, CID: its CID), then stop and start the machine',
      command: 'sudo virsh edit NAME && sudoedit /etc/vgpu/hostd.conf && sudo systemctl reload vgpu-hostd',
    };
  }
  const { name } = facts.unit;
  const { path, mode, gid } = now.device;
  const edit = `sudo systemctl edit ${name}`;
  const over = (code: string, why: string, remedy: string, command: string) => ({
    code: `shared-memory-${code}`,
    message: `calls go over vsock: ${why}`,
    evidence: [`${path} has mode ${octal(mode)} and group ${gid}`],
    remedy,
    command,
  });
  switch (now.kind) {
    case 'locked':
      return over(
        'locked',
        `the kernel is in lockdown (Secure Boot) and no process can map ${path}`,
        'turn Secure Boot off in this machine, or accept vsock',
        'mokutil --sb-state',
      );
    case 'protected':
      return over(
        'protected',
        `${name} has ProtectKernelTunables=yes and cannot open the memory that this machine shares with its host`,
        'set ProtectKernelTunables=no under [Service], or accept vsock',
        edit,
      );
    case 'overridden':
      return over(
        'overridden',
        `${name} cannot open the memory that this machine shares with its host, and ${vmMemoryRule} was not written by vgpu-agent`,
        'remove that file and install again, or accept vsock',
        `ls -l ${vmMemoryRule}`,
      );
    case 'not-yet':
      return over(
        'later',
        `${name} cannot open the memory that this machine shares with its host until udev applies ${vmMemoryRule}, at the latest at the next boot`,
        'have udev apply the rule now, then restart the service',
        `sudo udevadm control --reload && sudo udevadm trigger --action=change ${path.slice(0, path.lastIndexOf('/'))}`,
      );
    case 'closed':
      return over(
        'closed',
        `the user of ${name} cannot open the memory that this machine shares with its host`,
        `add SupplementaryGroups=${now.group} under [Service] (its members can read the calls of all CUDA programs on this machine), then install again`,
        edit,
      );
  }
}
