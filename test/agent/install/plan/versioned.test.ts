/** Versioned libraries beside a public link, as Ubuntu's drivers have them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { highestName, isVersionOf, versionsBeside } from '../../../../agent/install/plan/public-links.js';
import { candidate, facts, linkTo, multiarch } from './support.js';

const link = `${multiarch}/libcuda.so.1`;

test('ldconfig takes our name for the highest version', () => {
  assert.equal(highestName(link), `${multiarch}/libcuda.so.99999.0`);
  assert.equal(highestName('/usr/lib/libnvidia-ml.so.12'), '/usr/lib/libnvidia-ml.so.99999.0');
});

test('a version is a file of that library with numbers behind its name, in the same directory', () => {
  for (const name of ['libcuda.so.550.163.01', 'libcuda.so.99999.0', 'libcuda.so.1.0']) {
    assert.equal(isVersionOf(link, `${multiarch}/${name}`), true, name);
  }
  for (const name of [
    'libcuda.so.1',
    'libcuda.so',
    'libcuda.so.550.x',
    'libcuda.so.x550.1',
    'libcuda.so.550.163.vgpu-save',
    'libnvidia-ml.so.550.1',
  ]) {
    assert.equal(isVersionOf(link, `${multiarch}/${name}`), false, name);
  }
  assert.equal(isVersionOf(link, '/usr/lib/libcuda.so.550.1'), false);
});

test('only links that ldconfig would set have versions', () => {
  for (const name of ['libcuda.so', 'xlibcuda.so.1', 'libcuda.so.1.0', 'libcuda.so.1x']) {
    assert.equal(isVersionOf(`${multiarch}/${name}`, `${multiarch}/${name}.550.1`), false, name);
  }
  assert.equal(isVersionOf(`${multiarch}/libcuda.so.12`, `${multiarch}/libcuda.so.550.1`), true);
});

test('versions of other libraries are listed, and the shim is not', () => {
  const there = (name: string) => candidate(`${multiarch}/${name}`, { state: linkTo('x') });
  const gone = candidate(`${multiarch}/libcuda.so.470.1`);
  const machine = facts({
    candidates: [there('libcuda.so.1'), there('libcuda.so.550.1'), there('libcuda.so.99999.0'), gone],
  });
  assert.deepEqual(
    versionsBeside(link, machine).map(({ path }) => path),
    [`${multiarch}/libcuda.so.550.1`],
  );
});
