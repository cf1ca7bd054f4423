/** The CDI files: what is in them, when they are written, and when they are withdrawn. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { ContainerFacts, OwnedFileFacts } from '../../../../agent/contracts/facts.js';
import type { Manifest, OwnedItem } from '../../../../agent/contracts/manifest.js';
import { cdiSpec, cdiText } from '../../../../agent/install/plan/container.js';
import { planUninstall } from '../../../../agent/install/plan/uninstall.js';
import { assertDocument } from '../../cli/commands/json-schemas.js';
import { profile } from '../apply/world.js';
import { absent, changeAt, changesOf, facts, options, plan, regular } from './support.js';

const file = '/etc/cdi/vgpu.json';
const nvidiaFile = '/etc/cdi/vgpu-nvidia.json';
const question = {
  kind: 'vgpu.org/gpu',
  storeId: '0123456789abcdef',
  endpoint: 'vsock:2:14833',
  devices: 2,
} as const;

function none(path: string): OwnedFileFacts {
  return { path, state: absent, content: null };
}

function containers(changes: Partial<ContainerFacts> = {}): ContainerFacts {
  return {
    wanted: true,
    spec: none(file),
    nvidia: none(nvidiaFile),
    nvidiaFrom: null,
    dropIn: null,
    podman: null,
    ...changes,
  };
}

function present(path: string, content: string): OwnedFileFacts {
  return { path, state: regular(content), content };
}

function written(made: ReturnType<typeof plan>, path: string): unknown {
  const change = changeAt(made, path);
  assert.ok(change?.kind === 'write-file', path);
  return JSON.parse(change.content);
}

/** An installation that made `path`, and what else is given. */
function noted(path: string, others: readonly OwnedItem[] = []): Manifest {
  const made = { sha256: 'ab'.repeat(32), mode: 0o644, before: absent, backup: null };
  const { storeId, endpoint } = question;
  const consumers = [{ profile: 'ollama', unit: 'ollama.service', links: [] }];
  return {
    schema: 2,
    agent: '0.1.0',
    consumers,
    storeId,
    endpoint,
    items: [{ kind: 'file', path, ...made }, ...others],
  };
}

describe('a CDI file', () => {
  it('conforms to the interface, for any host and number of devices', () => {
    for (const endpoint of ['vsock:2:14833', 'tcp:10.0.0.1:1', 'unix:/run/vgpu/hostd.sock', 'unix:/tmp/x'])
      for (const devices of [1, 2, 16])
        assertDocument('cdi-generate', cdiText({ ...question, endpoint, devices }));
  });

  it('has every device by its number, and all of them', () => {
    const { devices } = cdiSpec(question);
    assert.deepEqual(
      devices.map(({ name }) => name),
      ['all', '0', '1'],
    );
    assert.ok(devices[2]?.containerEdits.env?.includes('CUDA_VISIBLE_DEVICES=1'));
    assert.ok(!devices[0]?.containerEdits.env?.some((one) => one.startsWith('CUDA_')));
  });

  it('mounts one version, never the link that moves under a container that runs', () => {
    const paths = cdiSpec(question).containerEdits.mounts?.map(({ hostPath }) => hostPath) ?? [];
    assert.ok(paths.includes('/opt/vgpu/versions/0123456789abcdef'));
    assert.ok(!paths.some((path) => path.startsWith('/opt/vgpu/current')));
  });

  it('shows the socket of a host on this machine, by its directory where that is ours', () => {
    const socketOf = (endpoint: string) =>
      cdiSpec({ ...question, endpoint }).containerEdits.mounts?.at(-1)?.containerPath;
    assert.equal(socketOf('unix:/run/vgpu/hostd.sock'), '/run/vgpu');
    assert.equal(socketOf('unix:/tmp/other.sock'), '/tmp/other.sock', 'not the whole of /tmp');
    for (const endpoint of ['vsock:2:14833', 'tcp:127.0.0.1:1', 'unix:@abstract'])
      assert.equal(socketOf(endpoint), '/etc/vgpu/guest.conf', endpoint);
  });
});

describe('an install', () => {
  it('writes both files where something reads them, and none elsewhere', () => {
    const made = plan({ containers: containers() });
    assert.equal(Reflect.get(Object(written(made, file)), 'kind'), 'vgpu.org/gpu');
    assert.equal(Reflect.get(Object(written(made, nvidiaFile)), 'kind'), 'nvidia.com/gpu');
    const elsewhere = plan({ containers: containers({ wanted: false }) });
    assert.equal(changeAt(elsewhere, file), undefined);
    assert.equal(changeAt(elsewhere, nvidiaFile), undefined);
  });

  it('names the store and guest.conf only after they are there', () => {
    const steps = changesOf(plan({ containers: containers() })).map((change) =>
      'path' in change ? change.path : change.kind,
    );
    for (const before of ['store', '/etc/vgpu/guest.conf'])
      assert.ok(steps.indexOf(before) < steps.indexOf(file), before);
  });

  it('leaves nvidia.com/gpu to the file that offers it, and withdraws its own', () => {
    const ours = present(nvidiaFile, cdiText({ ...question, kind: 'nvidia.com/gpu', devices: 1 }));
    const foreign = containers({ nvidia: ours, nvidiaFrom: '/run/cdi/nvidia.yaml' });
    const manifest = noted(nvidiaFile);
    const change = changeAt(plan({ containers: foreign, manifest }), nvidiaFile);
    assert.ok(change?.kind === 'remove-owned');
    assert.match(change.reason, /\/run\/cdi\/nvidia\.yaml defines nvidia\.com\/gpu now/);
    // A file that the manifest does not list is not removed.
    assert.equal(changeAt(plan({ containers: foreign }), nvidiaFile), undefined);
  });

  it('has as many devices as the host, and keeps their number while the host is away', () => {
    const two = {
      endpoint: question.endpoint,
      from: 'default',
      answer: { kind: 'answers', device: 'x', simulated: false, milliseconds: 1, devices: 2 },
    } as const;
    const made = plan({ containers: containers(), host: two });
    const devices: unknown = Reflect.get(Object(written(made, file)), 'devices');
    assert.ok(Array.isArray(devices));
    assert.equal(devices.length, 3);
    const known = containers({
      spec: present(file, cdiText(question)),
      nvidia: present(nvidiaFile, cdiText({ ...question, kind: 'nvidia.com/gpu' })),
    });
    const away = { ...two, answer: { kind: 'unreachable', message: 'gone', word: null } } as const;
    const kept = plan({ containers: known, host: away }, { allowUnreachable: true });
    assert.equal(changeAt(kept, file), undefined);
  });

  it('follows an upgrade of the shim', () => {
    const former = cdiText({ ...question, storeId: 'ffffffffffffffff', devices: 1 });
    const made = plan({ containers: containers({ spec: present(file, former) }) });
    assert.match(JSON.stringify(written(made, file)), /versions\/0123456789abcdef/);
  });
});

it('an uninstall takes the files away with the rest', () => {
  const manifest = noted(file, [{ kind: 'directory', path: '/etc/cdi', mode: 0o755 }]);
  const made = planUninstall(profile, facts({ manifest }), options);
  assert.equal(changeAt(made, file)?.kind, 'remove-owned');
  assert.equal(changeAt(made, '/etc/cdi')?.kind, 'remove-directory');
});
