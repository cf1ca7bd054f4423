import assert from 'node:assert/strict';
import { test } from 'node:test';
import { allPlaces, isLibrary, isTemporary, watchPlaces } from '../../../agent/service/watcher.js';
import { settled } from '../install/plan/settled.js';
import { candidate } from '../install/plan/support.js';
import { ollama, unit } from '../verdict/support.js';

test('all that a plan looks at is watched, by name where others write too', () => {
  const machine = settled();
  const before = watchPlaces(ollama, null, null);
  assert.deepEqual(
    [...before].map(([directory, names]) => `${directory}: ${names === null ? 'all' : [...names].join(' ')}`),
    [
      '/etc/vgpu-agent: agent.json',
      '/etc/vgpu: guest.conf',
      '/etc/ld.so.conf.d: 000-vgpu.conf',
      '/var/lib/vgpu-agent: manifest.json',
      '/opt: vgpu',
      '/opt/vgpu: all',
      '/opt/vgpu/versions: all',
      '/etc: ld.so.cache',
      '/etc/alternatives: nvidia glx',
      '/etc/systemd/system: ollama.service ollama.service.d',
      '/etc/systemd/system/ollama.service.d: all',
    ],
  );
  const items = [
    ...(machine.manifest?.items ?? []),
    {
      kind: 'alternative',
      group: 'mine',
      path: '/x',
      priority: 1,
      before: { status: 'auto', value: '' },
    } as const,
    { kind: 'directory', path: '/usr/share/ours', mode: 0o755 } as const,
  ];
  const seen = {
    ...machine,
    unit: unit({ fragment: '/lib/systemd/system/ollama.service' }),
    candidates: [candidate('/srv/cuda/libcuda.so.1')],
  };
  const manifest = machine.manifest === null ? null : { ...machine.manifest, items };
  const after = watchPlaces(ollama, seen, manifest);
  assert.deepEqual([...after.keys()].filter((directory) => !before.has(directory)).toSorted(), [
    '/lib/systemd/system',
    '/opt/vgpu/versions/0123456789abcdef',
    '/srv/cuda',
    '/usr/lib/x86_64-linux-gnu',
  ]);
  assert.equal(after.get('/opt/vgpu/versions/0123456789abcdef'), null);
  assert.deepEqual([...(after.get('/etc/alternatives') ?? [])], ['nvidia', 'glx', 'mine']);
  assert.deepEqual([...(after.get('/srv/cuda') ?? [])], ['libcuda.so.1']);
  const absent = { ...machine, candidates: [], unit: { kind: 'absent', name: 'ollama.service' } as const };
  assert.equal(watchPlaces(ollama, absent, null).has('.'), false);
  assert.equal(watchPlaces(ollama, { ...seen, unit: unit({ fragment: '' }) }, null).has('.'), false);
});

test('paths that several consumers need are watched once, and a whole directory where one needs all', () => {
  const merged = allPlaces([
    new Map([
      ['/a', new Set(['x'])],
      ['/b', null],
    ]),
    new Map([
      ['/a', new Set(['y'])],
      ['/b', new Set(['z'])],
      ['/c', new Set(['x'])],
    ]),
    new Map([['/c', null]]),
  ]);
  assert.deepEqual(
    [...merged],
    [
      ['/a', new Set(['x', 'y'])],
      ['/b', null],
      ['/c', null],
    ],
  );
});

test('a driver’s libraries matter in every version; files on their way to a name do not', () => {
  const names = ['libcuda.so', 'libcuda.so.550', 'libnvidia-ml.so.1', 'mylibcuda.so', 'libcudart.so'];
  assert.deepEqual(names.map(isLibrary), [true, true, true, false, false]);
  assert.deepEqual(['a.vgpu-new', 'ld.so.cache~', 'a.vgpu-new.b', 'ld.so.cache'].map(isTemporary), [
    true,
    true,
    false,
    false,
  ]);
});
