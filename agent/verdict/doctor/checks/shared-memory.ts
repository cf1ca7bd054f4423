import { addMemory, lookAgain, vmMemoryOf } from '../../../install/plan/vm-memory.js';
import { defaultPort, vmMemoryRule } from '../../../lib/paths.js';
import { byHand, editUnit, fixes, notApplicable, ok, onTheHost, warning } from '../finding.js';
import type { Check } from '../types.js';

/** Without it calls take longer, and mapped and managed memory are refused. */
export const sharedMemory: Check = {
  id: 'shared-memory',
  title: 'calls go through shared memory',
  looksAt:
    "this machine's PCI devices of ivshmem, who may open their memory, the service's user and its groups, and whether the kernel is in lockdown",
  explains: [],
  examine(facts) {
    const { machine, observation } = facts;
    const { endpoint } = observation;
    const now = vmMemoryOf(machine, endpoint);
    switch (now.kind) {
      case 'not-concerned':
        return notApplicable(
          endpoint.startsWith('tcp:')
            ? `${endpoint}: TCP shares no memory. Between a VM and its own host vsock takes less time, and can have it: sudo vgpu-agent install --host vsock:2:${defaultPort}`
            : `the host is ${endpoint}`,
        );
      case 'open':
        return ok(`${now.device.path}: ${now.device.bytes / 1024 / 1024} MiB`);
      case 'missing':
        return warning({
          cause:
            'This machine has no memory that it shares with its host. Calls and pinned memory go over vsock, which takes longer; mapped and managed memory are refused.',
          evidence: [`the host is ${endpoint}, and no PCI device here is an ivshmem`, ...addMemory],
          remedy: onTheHost(
            'add it to the machine as above (NAME: the machine, CID: its own), stop it and start it again',
            'sudo virsh edit NAME && sudoedit /etc/vgpu/hostd.conf && sudo systemctl reload vgpu-hostd',
          ),
        });
      case 'locked':
        return warning({
          cause:
            'The kernel is in lockdown and no process can map memory of PCI devices. Calls go over vsock.',
          evidence: [now.device.path, '/sys/kernel/security/lockdown'],
          remedy: byHand('turn Secure Boot off in this machine, or leave it', 'mokutil --sb-state'),
        });
      case 'protected':
        return warning({
          cause:
            'The unit has ProtectKernelTunables=yes and cannot open the memory that this machine shares with its host. Calls go over vsock.',
          evidence: [now.device.path],
          remedy: editUnit(facts, 'set ProtectKernelTunables=no under [Service], or leave it'),
        });
      case 'overridden':
        return warning({
          cause:
            'The udev rule that lets the service open the memory shared with the host cannot be written: another file or link has its name. Calls go over vsock.',
          evidence: [facing(now.device), `${vmMemoryRule} was not written by vgpu-agent`],
          remedy: byHand('remove it and install again, or leave it', `ls -l ${vmMemoryRule}`),
        });
      case 'not-yet':
        if (now.rule === 'missing')
          return warning({
            cause:
              'The udev rule that lets the service open the memory shared with the host is missing or was changed. Calls go over vsock.',
            evidence: [facing(now.device), `${vmMemoryRule} is missing or was changed`],
            remedy: fixes(facts, 'write it again'),
          });
        return warning({
          cause:
            'The udev rule lets the service open the memory shared with the host, but udev has not applied it yet. Calls go over vsock.',
          evidence: [facing(now.device)],
          remedy: byHand('have udev apply it, then restart the service', lookAgain(now.device)),
        });
      case 'closed':
        return warning({
          cause:
            "The service's user may not open the memory that this machine shares with its host. Calls go over vsock.",
          evidence: [
            facing(now.device),
            `the user is not in the group ${now.group}, whose members see the calls and the pinned memory of all CUDA programs here`,
          ],
          remedy: editUnit(facts, `add SupplementaryGroups=${now.group} under [Service], run install again`),
        });
    }
  },
};

function facing(device: { readonly path: string; readonly mode: number; readonly gid: number }): string {
  return `${device.path} has mode ${device.mode.toString(8).padStart(4, '0')} and group ${device.gid}`;
}
