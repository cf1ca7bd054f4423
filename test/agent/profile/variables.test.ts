// biome-ignore-all lint/suspicious/noTemplateCurlyInString: profiles have variables of that form.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { expandVariables, variablesIn } from '../../../agent/profile/variables.js';

test('variables are replaced by their values', () => {
  assert.equal(
    expandVariables('${store}/libcuda.so.1', { store: '/opt/vgpu/current' }),
    '/opt/vgpu/current/libcuda.so.1',
  );
  assert.equal(expandVariables('/usr/lib', {}), '/usr/lib');
});

test('a path whose variable has no value here is left out', () => {
  assert.equal(expandVariables('/usr/lib/${multiarch}', { multiarch: null }), null);
  assert.equal(expandVariables('/usr/lib/${nonsense}', { multiarch: 'x' }), null);
});

test('the names in a text are found, known or not', () => {
  assert.deepEqual(variablesIn('${a}/x/${store}'), ['a', 'store']);
});
