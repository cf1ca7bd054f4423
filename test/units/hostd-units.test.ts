/** The units of a host against the names that NVIDIA's drivers register, and what its driver unit runs. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { packageRoot } from '../../agent/lib/paths.js';
import { assignments } from '../../agent/lib/unit-file.js';

const unit = (name: string): string => readFileSync(path.join(packageRoot(), 'units', name), 'utf8');

/**
 * Character devices of /proc/devices by driver. `nvidia-frontend`: kernel-open/nvidia/nv-frontend.c of 535; `nvidia` and
 * `nvidiactl`: nv.c of 545 and later (github.com/NVIDIA/open-gpu-kernel-modules).
 */
const registered = {
  535: ['nvidia-frontend', 'nvidia-uvm', 'nvidia-caps'],
  550: ['nvidia', 'nvidiactl', 'nvidia-uvm', 'nvidia-caps'],
};

describe('vgpu-hostd.service', () => {
  for (const [driver, names] of Object.entries(registered)) {
    it(`may open the devices that driver ${driver} registers`, () => {
      const allowed = assignments([unit('vgpu-hostd.service')], 'Service', 'DeviceAllow');
      for (const name of names) assert.ok(allowed.includes(`char-${name} rw`), name);
    });
  }
});

describe('both units', () => {
  it("start after the service of NVIDIA's packages", () => {
    for (const name of ['vgpu-hostd.service', 'vgpu-hostd-driver.service']) {
      const after = assignments([unit(name)], 'Unit', 'After')
        .join(' ')
        .split(' ');
      assert.ok(after.includes('nvidia-persistenced.service'), name);
    }
  });
});

describe('vgpu-hostd-driver.service', () => {
  /** The calls of nvidia-modprobe on a machine with these GPUs, by the unit's own command. */
  function asked(
    context: TestContext,
    device: string,
    tools: readonly string[],
  ): { readonly status: number | null; readonly calls: readonly string[] } {
    const scratch = mkdtempSync(path.join(tmpdir(), 'driver-unit-'));
    context.after(() => rmSync(scratch, { recursive: true }));
    const proc = path.join(scratch, 'nvidia');
    for (const [gpu, minor] of [
      ['0000:01:00.0', '0'],
      ['0000:41:00.0', '3'],
    ] as const) {
      mkdirSync(path.join(proc, 'gpus', gpu), { recursive: true });
      writeFileSync(
        path.join(proc, 'gpus', gpu, 'information'),
        `Model: \t\t GPU\nDevice Minor: \t ${minor}\nGPU Excluded:\t No\n`,
      );
    }
    const instance = path.join(proc, 'capabilities/gpu0/mig/gi1');
    mkdirSync(instance, { recursive: true });
    writeFileSync(path.join(instance, 'access'), '');
    for (const tool of tools) {
      writeFileSync(
        path.join(scratch, tool),
        `#!/bin/sh\necho "${tool} $*" >>${scratch}/calls\n[ "$1" != -f ]\n`,
      );
      chmodSync(path.join(scratch, tool), 0o755);
    }
    writeFileSync(path.join(scratch, 'calls'), '');
    for (const tool of ['sed', 'xargs', 'find'])
      spawnSync('ln', ['-s', `/usr/bin/${tool}`, path.join(scratch, tool)]);
    const [command = ''] = assignments([unit('vgpu-hostd-driver.service')], 'Service', 'ExecStart');
    const script = /^\/bin\/sh -c '(.*)'$/s.exec(command)?.[1] ?? '';
    const ran = spawnSync(
      '/bin/sh',
      ['-c', script.replaceAll('$$', '$').replaceAll('/proc/driver/nvidia', proc)],
      { env: { PATH: scratch, VGPU_DEVICE: device }, encoding: 'utf8' },
    );
    const calls = readFileSync(path.join(scratch, 'calls'), 'utf8').replaceAll(scratch, '');
    return { status: ran.status, calls: calls.split('\n').filter((line) => line !== '') };
  }

  it('makes the nodes of the control device, of managed memory, of each GPU and of each MIG instance', (context) => {
    assert.deepEqual(asked(context, 'cuda', ['nvidia-modprobe', 'modprobe']), {
      status: 0,
      calls: [
        'nvidia-modprobe -c 255',
        'nvidia-modprobe -c 0 -u',
        'nvidia-modprobe -c 0',
        'nvidia-modprobe -c 3',
        'nvidia-modprobe -f /nvidia/capabilities/gpu0/mig/gi1/access',
      ],
    });
  });

  it('loads the modules alone where there is no nvidia-modprobe, and does nothing where there is neither', (context) => {
    assert.deepEqual(asked(context, 'cuda', ['modprobe']), { status: 0, calls: ['modprobe nvidia-uvm'] });
    assert.deepEqual(asked(context, 'cuda', []), { status: 0, calls: [] });
  });

  it('leaves a machine that simulates a GPU alone', (context) => {
    assert.deepEqual(asked(context, 'software', ['nvidia-modprobe', 'modprobe']), { status: 0, calls: [] });
  });
});
