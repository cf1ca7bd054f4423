/** The libraries of a process, recognized by their content and not by their names. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ProcessFacts } from '../../../agent/contracts/facts.js';
import {
  isLibcuda,
  isOurLibrary,
  isPreloaded,
  libcudaPaths,
  mappedBy,
  processesThatCount,
} from '../../../agent/verdict/watch-processes.js';
import { libraries, observation, ollama, processFacts, store } from './support.js';

type Library = ProcessFacts['libraries'][number];
const of = (...given: readonly Library[]) => mappedBy(processFacts({ libraries: given }));
const [shim] = libraries('vgpu');
const [stale] = libraries('stale');
const [foreign] = libraries('nvidia');
assert.ok(shim !== undefined && stale !== undefined && foreign !== undefined);
const nvml: Library = { path: `${store}/libnvidia-ml.so.1`, deleted: false, vendor: 'vgpu' };
const gone: Library = { path: '/opt/vgpu/versions/ffff/libcuda.so.1', deleted: true, vendor: null };

test('a libcuda is recognised by its name, in every version', () => {
  for (const name of ['libcuda.so', 'libcuda.so.1', 'libcuda.so.550.163.01'])
    assert.ok(isLibcuda(`/x/${name}`));
  for (const name of ['libcudart.so.12', 'xlibcuda.so.1', 'libnvidia-ml.so.1']) {
    assert.ok(!isLibcuda(`/libcuda.so/${name}`), name);
  }
});

test('the loaded library is the shim, an older one, another library, or both', () => {
  assert.equal(of(shim), 'shim');
  assert.equal(of(stale, shim), 'shim');
  assert.equal(of(stale), 'stale');
  assert.equal(of(foreign), 'foreign');
  assert.equal(of(foreign, nvml), 'foreign', 'NVML alone computes nothing');
  assert.equal(of(shim, foreign), 'mixed');
  assert.equal(of(stale, foreign), 'mixed');
  assert.equal(of({ ...foreign, vendor: 'foreign' }), 'foreign');
});

test('a file of the store that is gone cannot be examined and is an older shim', () => {
  assert.equal(of(gone), 'stale');
  assert.equal(of({ ...gone, deleted: false }), 'unknown');
  assert.equal(of({ ...gone, path: '/opt/vgpu2/libcuda.so.1' }), 'unknown');
});

test('nothing is loaded only where the maps could be read', () => {
  assert.equal(of(), 'none');
  assert.equal(of(nvml), 'none');
  assert.equal(mappedBy(processFacts({ libraries: [], unreadable: ['environ'] })), 'none');
  assert.equal(mappedBy(processFacts({ libraries: [], unreadable: ['maps'] })), 'unknown');
});

test('the profile says whose maps count', () => {
  const processes = [
    { role: 'main', facts: processFacts() },
    { role: 'child', facts: processFacts({ pid: 120 }) },
  ] as const;
  const pids = (mapsOf: 'main' | 'children' | 'either' | 'none') =>
    processesThatCount(
      observation({ processes, profile: { ...ollama, evidence: { ...ollama.evidence, mapsOf } } }),
    ).map(({ facts }) => facts.pid);
  assert.deepEqual(
    [pids('main'), pids('children'), pids('either'), pids('none')],
    [[100], [120], [100, 120], []],
  );
});

test('a preload counts when it names our libcuda, among others too', () => {
  const preloads = (value: string) => isPreloaded(processFacts({ loaderEnvironment: { LD_PRELOAD: value } }));
  for (const value of [
    '/opt/vgpu/current/libcuda.so.1',
    '/x/y.so:/opt/vgpu/current/libcuda.so.1',
    '/x/y.so /opt/vgpu/current/libcuda.so.1',
  ]) {
    assert.equal(preloads(value), true, value);
  }
  for (const value of [
    '',
    '/opt/vgpu/current/libnvidia-ml.so.1',
    '/usr/lib/libcuda.so.1',
    '/opt/vgpu2/libcuda.so.1',
  ]) {
    assert.equal(preloads(value), false, value);
  }
  assert.equal(isPreloaded(processFacts({ loaderEnvironment: {} })), false);
});

test('every libcuda is named, and one that is gone is called deleted', () => {
  assert.equal(
    libcudaPaths(processFacts({ libraries: [shim, nvml, gone] })),
    `${shim.path}, ${gone.path} (deleted)`,
  );
});

test('a path is of the shim in the store; in a container also where its loader looks', () => {
  assert.equal(isOurLibrary(`${store}/libcuda.so.1`, false), true);
  assert.equal(isOurLibrary('/opt/vgpu2/libcuda.so.1', false), false);
  const inside = '/usr/lib/x86_64-linux-gnu/libcuda.so.1';
  assert.deepEqual([isOurLibrary(inside, true), isOurLibrary(inside, false)], [true, false]);
  assert.equal(isOurLibrary('/srv/libcuda.so.1', true), false);
});
