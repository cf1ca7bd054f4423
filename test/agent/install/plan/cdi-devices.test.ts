/** The devices of a CDI file, for any content of the file. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { devicesIn } from '../../../../agent/containers/cdi.js';

test('the devices of a CDI file are named as a command asks for them', () => {
  const file = { cdiVersion: '0.5.0', kind: 'vgpu.org/gpu', devices: [{ name: 'all' }, { name: '0' }] };
  assert.deepEqual(devicesIn(JSON.stringify(file)), ['vgpu.org/gpu=all', 'vgpu.org/gpu=0']);
});

test('a name with control characters does not reach the terminal', () => {
  const file = { kind: 'vgpu.org/gpu', devices: [{ name: '\u001b[2Jall\n' }] };
  assert.doesNotMatch(devicesIn(JSON.stringify(file)).join(), /\p{Cc}/u);
});

for (const text of [
  '',
  'kind: vgpu.org/gpu',
  'null',
  '[]',
  '{"kind":3,"devices":[{"name":"all"}]}',
  '{"kind":"vgpu.org/gpu","devices":{"name":"all"}}',
  '{"kind":"vgpu.org/gpu","devices":[null,3,"all",{"name":0}]}',
]) {
  test(`a file that holds ${JSON.stringify(text)} offers no device`, () => {
    assert.deepEqual(devicesIn(text), []);
  });
}
