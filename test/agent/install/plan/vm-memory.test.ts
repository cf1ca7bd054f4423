/** Memory that a guest shares with its host: what a plan says of it, and the rule of udev. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { MachineFacts, VmMemoryFacts } from '../../../../agent/contracts/facts.js';
import { planUninstall } from '../../../../agent/install/plan/uninstall.js';
import { vmMemoryRuleText } from '../../../../agent/install/plan/vm-memory.js';
import { sharedMemory } from '../../../../agent/verdict/doctor/checks/host.js';
import { doctorFacts, troubleOf } from '../../verdict/doctor/support.js';
import { profile } from '../apply/world.js';
import {
  absent,
  changeAt,
  changesOf,
  facts,
  linkTo,
  options,
  plan,
  regular,
  tracerManifest,
  unit,
  warningCodes,
} from './support.js';

const file = '/etc/udev/rules.d/70-vgpu-memory.rules';
const device = {
  path: '/sys/bus/pci/devices/0000:00:05.0/resource2',
  bytes: 268_435_456,
  uid: 0,
  gid: 0,
  mode: 0o600,
};
const rule = vmMemoryRuleText('render');

function memory(changes: Partial<VmMemoryFacts> = {}): VmMemoryFacts {
  return {
    devices: [device],
    rule: { path: file, state: absent, content: null },
    group: { name: 'render', gid: 105 },
    locked: false,
    ...changes,
  };
}
const inRender: Partial<MachineFacts> = {
  serviceUser: { name: 'ollama', uid: 998, gid: 998, groups: [44, 105, 998] },
};
const written: VmMemoryFacts['rule'] = { path: file, state: regular(rule), content: rule };
const about = (made: ReturnType<typeof plan>): readonly string[] =>
  warningCodes(made).filter((code) => code.includes('shared-memory'));
const manifest: NonNullable<MachineFacts['manifest']> = {
  ...tracerManifest,
  endpoint: 'vsock:2:14833',
  items: tracerManifest.items.map((item) => ({ ...item, path: file })),
};

describe('a plan for a guest with a device of shared memory', () => {
  it('writes the rule where the service is in its group, and says from when on it holds', () => {
    const made = plan({ vmMemory: memory(), ...inRender });
    const change = changeAt(made, file);
    assert.ok(change?.kind === 'write-file');
    assert.equal(change.content, rule);
    assert.deepEqual(about(made), ['shared-memory-later']);
    assert.ok(made.kind === 'ready');
    const warning = made.warnings.find(({ code }) => code === 'shared-memory-later');
    assert.match(
      warning?.remedy ?? '',
      /udevadm trigger --action=change \/sys\/bus\/pci\/devices\/0000:00:05\.0$/,
    );
  });

  it('opens it to no user outside the group, and names the effect of membership', () => {
    const made = plan({ vmMemory: memory() });
    assert.equal(changeAt(made, file), undefined);
    assert.deepEqual(about(made), ['shared-memory-closed']);
    assert.deepEqual(about(plan({ vmMemory: memory({ group: null }), ...inRender })), [
      'shared-memory-closed',
    ]);
  });

  it('has nothing to do or to say where the service may open it', () => {
    const given = { ...device, gid: 105, mode: 0o660 };
    const made = plan({ vmMemory: memory({ devices: [given], rule: written }), ...inRender, manifest });
    assert.equal(changeAt(made, file), undefined);
    assert.deepEqual(about(made), []);
    const root = { name: 'root', uid: 0, gid: 0, groups: [0] };
    const asRoot = plan({ vmMemory: memory(), serviceUser: root });
    assert.equal(changeAt(asRoot, file), undefined);
    assert.deepEqual(about(asRoot), []);
    // A mode that lets its group only read is not enough.
    const readOnly = { ...device, gid: 105, mode: 0o640 };
    assert.deepEqual(about(plan({ vmMemory: memory({ devices: [readOnly] }), ...inRender })), [
      'shared-memory-later',
    ]);
  });

  it('keeps the rule for another consumer, and writes it again when it was changed', () => {
    const changed = { ...written, content: 'x', state: regular('x') };
    assert.equal(changeAt(plan({ vmMemory: memory({ rule: written }), manifest }), file), undefined);
    assert.equal(changeAt(plan({ vmMemory: memory({ rule: changed }), manifest }), file)?.kind, 'write-file');
  });

  it("leaves a user's file at the rule’s name alone: a file, a link that masks it, a long file", () => {
    const theirs: readonly VmMemoryFacts['rule'][] = [
      { path: file, content: 'x', state: regular('x') },
      { path: file, content: null, state: linkTo('/dev/null') },
      { path: file, content: null, state: regular('longer than is read') },
    ];
    for (const rule of theirs) {
      const made = plan({ vmMemory: memory({ rule }), ...inRender });
      assert.equal(changeAt(made, file), undefined, rule.state.kind);
      assert.deepEqual(about(made), ['shared-memory-overridden'], rule.state.kind);
    }
  });

  it('does not call the memory open to a unit that may write nothing below /sys', () => {
    const given = { ...device, gid: 105, mode: 0o660 };
    const strict = unit({ sandbox: { ...unit().sandbox, protectKernelTunables: true } });
    const machine = { vmMemory: memory({ devices: [given] }), ...inRender, unit: strict };
    assert.deepEqual(about(plan(machine)), ['shared-memory-protected']);
  });

  it('restarts no service for the rule', () => {
    const made = changesOf(plan({ vmMemory: memory(), ...inRender }));
    const without = changesOf(plan({ ...inRender }));
    assert.deepEqual(
      made.filter(({ kind }) => kind === 'restart').length,
      without.filter(({ kind }) => kind === 'restart').length,
    );
  });

  it('says so where the kernel is in lockdown', () => {
    assert.deepEqual(about(plan({ vmMemory: memory({ locked: true }), ...inRender })), [
      'shared-memory-locked',
    ]);
  });
});

describe('a plan for a guest without such a device', () => {
  it('names the faster transport over vsock, for libvirt, QEMU and Proxmox VE', () => {
    const made = plan({ vmMemory: memory({ devices: [] }) });
    assert.ok(made.kind === 'ready');
    const remedy = made.warnings.find(({ code }) => code === 'no-shared-memory')?.remedy ?? '';
    for (const part of [
      "<shmem name='vgpu-NAME' role='master'>",
      '-device ivshmem-plain,memdev=vgpu,master=on',
      'qm set VMID',
      'vm-memory=',
    ])
      assert.ok(remedy.includes(part), part);
  });

  it('names vsock over TCP, and nothing over a unix socket', () => {
    const over = (endpoint: string) => {
      const made = plan({ vmMemory: memory({ devices: [] }) }, { endpoint });
      assert.ok(made.kind === 'ready');
      return made.warnings.find(({ code }) => code === 'tcp-transport')?.remedy;
    };
    for (const endpoint of ['tcp:127.0.0.1:14833', 'tcp:[::1]:14833'])
      assert.match(over(endpoint) ?? '', /sudo vgpu-agent install --host vsock:2:14833$/, endpoint);
    for (const endpoint of ['unix:/run/vgpu/hostd.sock', 'vsock:2:14833'])
      assert.equal(over(endpoint), undefined, endpoint);
  });

  it('says nothing of such memory over a unix socket or TCP, or when it was not inspected', () => {
    for (const endpoint of ['unix:/run/vgpu/hostd.sock', 'tcp:127.0.0.1:14833'])
      assert.deepEqual(about(plan({ vmMemory: memory({ devices: [] }) }, { endpoint })), [], endpoint);
    assert.deepEqual(about(plan()), []);
  });
});

describe('an uninstall', () => {
  it('takes the rule away with the last consumer', () => {
    const made = planUninstall(profile, facts({ vmMemory: memory({ rule: written }), manifest }), options);
    assert.equal(changeAt(made, file)?.kind, 'remove-owned');
  });
});

describe('the check shared-memory', () => {
  const examine = (machine: Partial<MachineFacts>) =>
    sharedMemory.examine(doctorFacts({ machine, observation: { endpoint: 'vsock:2:14833' } }));

  it('does not concern TCP, and says which transport can have such memory', () => {
    const found = sharedMemory.examine(
      doctorFacts({ machine: { vmMemory: memory() }, observation: { endpoint: 'tcp:127.0.0.1:14833' } }),
    );
    assert.equal(found.kind, 'not-applicable');
    assert.match(JSON.stringify(found), /install --host vsock:2:14833/);
  });

  it('is a warning at most, with the command for the machine that it is for', () => {
    const missing = troubleOf(examine({ vmMemory: memory({ devices: [] }) }));
    assert.equal(missing.kind, 'warning');
    assert.match(missing.evidence, /<model type='ivshmem-plain'\/>/);
    assert.match(missing.command, /^sudo virsh edit NAME/);
    const unwritten = troubleOf(examine({ vmMemory: memory(), ...inRender }));
    assert.match(unwritten.cause, /udev rule.* is missing/);
    assert.match(unwritten.command, /doctor --fix/);
    const masked = { path: file, content: null, state: linkTo('/dev/null') };
    const overridden = troubleOf(examine({ vmMemory: memory({ rule: masked }), ...inRender }));
    assert.match(overridden.cause, /70-vgpu-memory\.rules was not written by vgpu-agent/);
    const later = troubleOf(examine({ vmMemory: memory({ rule: written }), ...inRender }));
    assert.match(later.command, /udevadm trigger/);
    assert.match(later.evidence, /mode 0600 and group 0/);
    const closed = troubleOf(examine({ vmMemory: memory() }));
    assert.match(closed.text, /SupplementaryGroups=render/);
    assert.match(troubleOf(examine({ vmMemory: memory({ locked: true }) })).cause, /lockdown/);
  });

  it('is ok with memory that the service may open', () => {
    const given = { ...device, gid: 105, mode: 0o660 };
    assert.deepEqual(examine({ vmMemory: memory({ devices: [given] }), ...inRender }), {
      kind: 'ok',
      evidence: [`${device.path}: 256 MiB`],
    });
    assert.equal(examine({}).kind, 'not-applicable');
  });
});
