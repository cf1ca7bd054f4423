/**
 * Memory that the guest shares with its host: calls and pinned memory go through it where the service may open it, and
 * over vsock otherwise. What there is, what is better, and the rule of udev that lets the service open it. Pure.
 */
import type { MachineFacts, SharedMemoryDevice, VmMemoryFacts } from '../../contracts/facts.js';
import { type Change, told, type Warning } from '../../contracts/plan.js';
import { splitHosts } from '../../guest/vgpu-host/endpoint.js';
import { defaultPort, vmMemoryRule } from '../../lib/paths.js';
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

export const addMemory: readonly string[] = [
  "libvirt, in <devices>: <shmem name='vgpu-NAME' role='master'><model type='ivshmem-plain'/><size unit='M'>256</size></shmem>",
  'QEMU: -object memory-backend-file,id=vgpu,mem-path=/dev/shm/vgpu-NAME,size=256M,share=on -device ivshmem-plain,memdev=vgpu,master=on',
  "Proxmox VE: the same two options behind those of vsock, in qm set VMID --args '...'",
  'hostd.conf: allow vsock cid=CID vm-memory=/dev/shm/vgpu-NAME',
];

export function lookAgain({ path }: SharedMemoryDevice): string {
  const device = path.slice(0, path.lastIndexOf('/'));
  return `sudo udevadm control --reload && sudo udevadm trigger --action=change ${device}`;
}

/** TCP is for a host that vsock does not reach. */
const overTcp: Warning = {
  code: 'tcp-transport',
  message:
    'calls go over TCP: between a VM and its own host vsock takes less time, and can have memory that the two share',
  remedy: `where the host of this VM listens at vsock: sudo vgpu-agent install --host vsock:2:${defaultPort}`,
};

export function vmMemoryWarnings(facts: MachineFacts, endpoint: string): readonly Warning[] {
  const now = vmMemoryOf(facts, endpoint);
  switch (now.kind) {
    case 'not-concerned':
      return splitHosts(endpoint).every((one) => one.startsWith('tcp:')) ? [overTcp] : [];
    case 'open':
      return [];
    case 'missing':
      return told(
        'no-shared-memory',
        'this machine has no memory that it shares with its host: calls and pinned memory go over vsock, which takes longer, and mapped and managed memory are refused',
        `on the host, add it to the machine: ${addMemory.join('; ')}`,
      );
    case 'locked':
      return told(
        'shared-memory-locked',
        `the kernel is in lockdown (Secure Boot) and no process can map ${now.device.path}: calls go over vsock`,
        'turn Secure Boot off in this machine, or leave it',
      );
    case 'protected':
      return told(
        'shared-memory-protected',
        `${facts.unit.name} has ProtectKernelTunables=yes and cannot open ${now.device.path}, the memory that this machine shares with its host: calls go over vsock`,
        `systemctl edit ${facts.unit.name}, ProtectKernelTunables=no under [Service], or leave it`,
      );
    case 'overridden':
      return told(
        'shared-memory-overridden',
        `${vmMemoryRule} was not written by vgpu-agent and is left unchanged: ${facts.unit.name} may not open ${now.device.path}, the memory that this machine shares with its host, and calls go over vsock`,
        `take ${vmMemoryRule} away and install again, or leave it`,
      );
    case 'not-yet':
      return told(
        'shared-memory-later',
        `${facts.unit.name} may open the memory that this machine shares with its host from the next boot on`,
        `or now: ${lookAgain(now.device)}`,
      );
    case 'closed':
      return told(
        'shared-memory-closed',
        `the user of ${facts.unit.name} may not open ${now.device.path}, the memory that this machine shares with its host: calls go over vsock`,
        `make it a member of the group ${now.group}, whose members see the calls of all CUDA programs here, then install again: systemctl edit ${facts.unit.name}, SupplementaryGroups=${now.group} under [Service]`,
      );
  }
}
