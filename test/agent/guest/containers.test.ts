/** The engines that read CDI files here, and the file that defines NVIDIA's name. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { offersNvidia, readContainers } from '../../../agent/guest/containers.js';
import { ContentCache } from '../../../agent/guest/files/content.js';
import { Root } from '../../../agent/guest/files/root.js';
import { spawnRunner } from '../../../agent/lib/run-command.js';
import { type Tree, tree } from './support.js';

const unit = { kind: 'absent', name: 'ollama.service' } as const;

describe('findings about containers', () => {
  const read = async (context: Parameters<typeof tree>[0], content: Tree) =>
    readContainers(new Root(tree(context, content)), spawnRunner(), unit, new ContentCache());

  it('is wanted where an engine or the directory is', async (context) => {
    assert.equal((await read(context, { usr: {} })).wanted, false);
    assert.equal((await read(context, { 'usr/bin/podman': '' })).wanted, true);
    assert.equal((await read(context, { 'usr/local/bin/docker': '' })).wanted, true);
    assert.equal((await read(context, { etc: { cdi: {} } })).wanted, true);
  });

  it("names another program's file that defines nvidia.com/gpu, not vgpu-agent's own", async (context) => {
    const yaml = '---\ncdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n- name: "0"\n';
    const json = '{"cdiVersion":"0.5.0","kind":"nvidia.com/gpu","devices":[]}';
    assert.equal((await read(context, { 'etc/cdi/vgpu-nvidia.json': json })).nvidiaFrom, null);
    assert.equal((await read(context, { 'run/cdi/nvidia.yaml': yaml })).nvidiaFrom, '/run/cdi/nvidia.yaml');
    assert.equal((await read(context, { 'etc/cdi/a.json': json })).nvidiaFrom, '/etc/cdi/a.json');
    assert.equal((await read(context, { 'etc/cdi/notes.txt': json, 'etc/cdi/d.yaml': {} })).nvidiaFrom, null);
  });

  it('takes no other kind for it', () => {
    for (const kind of ['vgpu.org/gpu', 'nvidia.com/gpu-other', 'mynvidia.com/gpu', 'nvidia.com/mig'])
      assert.equal(offersNvidia(`kind: ${kind}\n`), false, kind);
    for (const text of ['"kind" : "nvidia.com/gpu",', "kind: 'nvidia.com/gpu'", '  kind: nvidia.com/gpu # x'])
      assert.equal(offersNvidia(text), true, text);
  });
});
