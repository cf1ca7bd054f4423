/** Containers where the manifest was lost, and which of the device's files are a reason to restart which container. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ContainerFacts, MachineFacts, OwnedFileFacts } from '../../../../agent/contracts/facts.js';
import type { Plan } from '../../../../agent/contracts/plan.js';
import type { LoadedUnit } from '../../../../agent/contracts/unit.js';
import { fileWith, settled } from './settled.js';
import { absent, changeAt, changesOf, facts, linkTo, options, owner, plan, unit } from './support.js';

const quadlet = '/etc/containers/systemd/ollama.container';
const spec = '/etc/cdi/vgpu.json';
const nvidia = '/etc/cdi/vgpu-nvidia.json';
const dropIn = `${quadlet}.d/50-vgpu.conf`;
const none = (path: string): OwnedFileFacts => ({ path, state: absent, content: null });

function containers(changes: Partial<ContainerFacts> = {}): ContainerFacts {
  const files = { spec: none(spec), nvidia: none(nvidia), dropIn: none(dropIn) };
  return { wanted: true, nvidiaFrom: null, podman: '5.4.2', ...files, ...changes };
}

function ofQuadlet(...device: readonly string[]): LoadedUnit {
  return unit({
    fragmentContent: `[Unit]\nSourcePath=${quadlet}\n`,
    user: '',
    execStart: ['/usr/bin/podman', 'run', '--name', 'systemd-ollama', '-d', ...device, 'ollama/ollama'],
  });
}

/** The file as the plan would write it. */
function written(made: Plan, path: string): OwnedFileFacts {
  const change = changeAt(made, path);
  if (change?.kind !== 'write-file') throw new Error(`${path} is not written`);
  return fileWith(none(path), change.content);
}

const kinds = (made: Plan): readonly string[] => changesOf(made).map(({ kind }) => kind);

function adopted(changes: Partial<MachineFacts>): readonly string[] {
  const root = { kind: 'directory', empty: false, mode: 0o755, ...owner } as const;
  const versions = [{ id: facts().shim.id, intact: true }];
  const store = { root, current: linkTo(`versions/${facts().shim.id}`), versions };
  return changesOf(plan({ store, ...changes })).flatMap((change) =>
    change.kind === 'adopt' && change.path.startsWith('/etc') ? [change.path] : [],
  );
}

test('the files of a container that are as install makes them are noted down, others are not', () => {
  const made = plan({ unit: ofQuadlet(), containers: containers() });
  const given = containers({
    spec: written(made, spec),
    nvidia: written(made, nvidia),
    dropIn: written(made, dropIn),
  });
  assert.deepEqual(adopted({ unit: ofQuadlet(), containers: given }), [spec, nvidia, dropIn]);
  const other = { ...given, nvidia: fileWith(none(nvidia), '{}'), dropIn: fileWith(none(dropIn), 'x') };
  assert.deepEqual(adopted({ unit: ofQuadlet(), containers: other }), [spec]);
  assert.deepEqual(adopted({ unit: ofQuadlet() }), []);
  // It asks for the device itself: vgpu-agent has no drop-in there.
  const own = ofQuadlet('--device', 'vgpu.org/gpu=all', '--device', 'nvidia.com/gpu=0');
  assert.deepEqual(adopted({ unit: own, containers: given }), [spec, nvidia]);
});

test('a file that nothing wants any more is not noted down', () => {
  const made = plan({ containers: containers() });
  const given = containers({ nvidia: written(made, nvidia), nvidiaFrom: '/etc/cdi/nvidia.yaml' });
  assert.deepEqual(adopted({ containers: given }), []);
});

test('another device description restarts a container that has it, and no consumer that is none', () => {
  const device = ['--device', 'vgpu.org/gpu=all'];
  const plain = settled();
  const withFiles = (machine: MachineFacts, given: ContainerFacts): Plan =>
    plan({ ...machine, containers: given }, options);
  assert.ok(changeAt(withFiles(plain, containers()), spec), 'it is written');
  assert.equal(kinds(withFiles(plain, containers())).includes('restart'), false);

  const container = settled({ unit: ofQuadlet(...device), containers: containers() });
  assert.equal(kinds(withFiles(container, containers())).includes('restart'), true);
  const right = containers({ spec: written(withFiles(container, containers()), spec) });
  assert.equal(kinds(withFiles(container, right)).includes('write-file'), true, 'the other name is missing');
  assert.equal(kinds(withFiles(container, right)).includes('restart'), false);
});

test('a quadlet that asks for the GPU itself loses the drop-in, and the former file comes back', () => {
  const device = ['--device', 'vgpu.org/gpu=0', '--device', 'vgpu.org/gpu=1'];
  const made = settled({ unit: ofQuadlet(), containers: containers() });
  const there = containers({
    dropIn: written(plan({ unit: ofQuadlet(), containers: containers() }), dropIn),
  });
  const after = plan({ ...made, unit: ofQuadlet(...device), containers: there });
  const change = changeAt(after, dropIn);
  assert.deepEqual(change, {
    kind: 'remove-owned',
    path: dropIn,
    restores: absent,
    reason: 'the quadlet asks for the GPU itself',
  });
  assert.equal(kinds(after).includes('daemon-reload'), true);
  const foreign = plan({ ...made, manifest: null, unit: ofQuadlet(...device), containers: there });
  assert.equal(changeAt(foreign, dropIn)?.kind, undefined, 'a drop-in that no manifest names stays');
});

test('for a podman of an unknown version the user gets the manual step; another quadlet keeps its drop-in', () => {
  for (const podman of ['dev', '4.9.9', null]) {
    const made = plan({ unit: ofQuadlet(), containers: containers({ podman }) });
    assert.deepEqual([changeAt(made, dropIn), made.warnings.length], [undefined, 1], String(podman));
  }
  const there = written(plan({ unit: ofQuadlet(), containers: containers() }), dropIn);
  const given = containers({ podman: '4.9.9', dropIn: there });
  const inForce = plan({ unit: ofQuadlet('--device', 'vgpu.org/gpu=all'), containers: given });
  assert.deepEqual(inForce.warnings, [], 'what is in force works, whatever version it is');
});
