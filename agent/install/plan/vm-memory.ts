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
  | { readonly kind: 'open'; readonly device: SharedMemoryDevice }
  /** Over vsock. With `rule`, udev's rule would change that: udev has to apply it, or it is still missing. */
  | {
      readonly kind: 'over-vsock';
      readonly code: string;
      readonly message: string;
      readonly evidence: readonly string[];
      readonly remedy: string;
      readonly command: string;
      readonly rule?: 'written' | 'missing';
    };

export function vmMemoryOf(
  facts: Pick<MachineFacts, 'vmMemory' | 'serviceUser' | 'unit' | 'manifest'>,
  endpoint: string,
): VmMemory {
  const { vmMemory, serviceUser, unit } = facts;
  if (vmMemory === undefined || !splitHosts(endpoint).some((one) => one.startsWith('vsock:')))
    return { kind: 'not-concerned' };
  const [device] = vmMemory.devices;
  if (device === undefined) {
    return {
      kind: 'over-vsock',
      code: 'no-shared-memory',
      message:
        'this machine shares no memory with its host: calls and pinned memory go over vsock, which is slower, and mapped and managed memory are refused',
      evidence: addMemory,
      remedy:
        'on the host, add the memory to this machine (NAME: the machine, CID: its CID), then stop and start the machine',
      command: 'sudo virsh edit NAME && sudoedit /etc/vgpu/hostd.conf && sudo systemctl reload vgpu-hostd',
    };
  }
  const { path, mode, gid } = device;
  const edit = `sudo systemctl edit ${unit.name}`;
  const closed = (code: string, why: string, remedy: string, command: string) => ({
    kind: 'over-vsock' as const,
    code: `shared-memory-${code}`,
    message: `calls go over vsock: ${why}`,
    evidence: [`${path} has mode ${octal(mode)} and group ${gid}`],
    remedy,
    command,
  });
  if (vmMemory.locked) {
    return closed(
      'locked',
      `the kernel is in lockdown (Secure Boot) and no process can map ${path}`,
      'turn Secure Boot off in this machine, or accept vsock',
      'mokutil --sb-state',
    );
  }
  const cannot = `${unit.name} cannot open the memory that this machine shares with its host`;
  if (unit.kind === 'loaded' && unit.sandbox.protectKernelTunables === true) {
    // The device's file is below /sys.
    return closed(
      'protected',
      `${unit.name} has ProtectKernelTunables=yes and cannot open the memory that this machine shares with its host`,
      'set ProtectKernelTunables=no under [Service], or accept vsock',
      edit,
    );
  }
  if (serviceUser === null || mayOpen(device, serviceUser)) return { kind: 'open', device };
  const { group } = vmMemory;
  if (group === null || ![serviceUser.gid, ...serviceUser.groups].includes(group.gid)) {
    return closed(
      'closed',
      `the user of ${cannot}`,
      `add SupplementaryGroups=${group?.name ?? 'render'} under [Service] (its members can read the calls of all CUDA programs on this machine), then install again`,
      edit,
    );
  }
  const rule = ruleFacts(facts, vmMemory, group.name);
  if (rule === 'foreign') {
    return closed(
      'overridden',
      `${cannot}, and ${vmMemoryRule} was not written by vgpu-agent`,
      'remove that file and install again, or accept vsock',
      `ls -l ${vmMemoryRule}`,
    );
  }
  const later = closed(
    'later',
    `${cannot} until udev applies ${vmMemoryRule}, at the latest at the next boot`,
    'have udev apply the rule now, then restart the service',
    `sudo udevadm control --reload && sudo udevadm trigger --action=change ${path.slice(0, path.lastIndexOf('/'))}`,
  );
  return { ...later, rule };
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
  if (group === undefined || vmMemory === undefined || now.kind === 'not-concerned') return [];
  if (vmMemory.devices.length === 0) return [];
  const rule = ruleFacts(facts, vmMemory, group);
  const wanted =
    ('rule' in now && now.rule !== undefined) ||
    rule === 'written' ||
    ownedAt(manifest, vmMemoryRule) !== undefined;
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
  const now = vmMemoryOf(facts, endpoint);
  if (now.kind === 'not-concerned')
    return splitHosts(endpoint).every((one) => one.startsWith('tcp:')) ? [overTcp] : [];
  if (now.kind === 'open') return [];
  const { code, message, remedy, command, evidence } = now;
  const how = code === 'no-shared-memory' ? evidence.join('; ') : command;
  return told(code, message, `${remedy}: ${how}`);
}
