import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ContentCache } from '../../../../agent/guest/files/content.js';
import { Root } from '../../../../agent/guest/files/root.js';
import { readVmMemory } from '../../../../agent/guest/vgpu-host/devices.js';
import { type Tree, tree } from '../support.js';

/** Which PCI devices are memory that the guest shares with its host. */

const at = (address: string, vendor: string, device: string): Tree => ({
  [`sys/bus/pci/devices/${address}/vendor`]: `${vendor}\n`,
  [`sys/bus/pci/devices/${address}/device`]: `${device}\n`,
  [`sys/bus/pci/devices/${address}/resource2`]: 'x'.repeat(4096),
});

describe('memory that is shared with the host', () => {
  const read = (context: Parameters<typeof tree>[0], content: Tree) =>
    readVmMemory(new Root(tree(context, content)), new ContentCache());

  it('is an ivshmem, and no other device of its maker', async (context) => {
    const { devices } = await read(context, {
      ...at('0000:00:01.0', '0x1af4', '0x1041'),
      ...at('0000:00:02.0', '0x8086', '0x1110'),
      ...at('0000:00:05.0', '0x1af4', '0x1110'),
    });
    assert.deepEqual(
      devices.map(({ path, bytes }) => [path, bytes]),
      [['/sys/bus/pci/devices/0000:00:05.0/resource2', 4096]],
    );
  });

  it("has the group that uses GPUs, and the kernel's permission", async (context) => {
    const some = await read(context, {
      'etc/group': 'root:x:0:\nxrender:x:7:\nrender:x:105:ollama\n',
      'sys/kernel/security/lockdown': 'none [integrity] confidentiality\n',
      'etc/udev/rules.d/70-vgpu-memory.rules': 'rule\n',
    });
    assert.deepEqual(some.group, { name: 'render', gid: 105 });
    assert.equal(some.locked, true);
    assert.equal(some.rule.content, 'rule\n');
    const none = await read(context, {
      'sys/kernel/security/lockdown': '[none] integrity confidentiality\n',
    });
    assert.deepEqual(
      { ...none, rule: none.rule.state.kind },
      {
        devices: [],
        rule: 'absent',
        group: null,
        locked: false,
      },
    );
  });
});
