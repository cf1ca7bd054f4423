// biome-ignore-all lint/suspicious/noTemplateCurlyInString: profiles have variables of that form.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  choiceOf,
  expandVariables,
  fits,
  forUnit,
  genericProfile,
  titleOf,
  variablesIn,
} from '../../../agent/profile/instance.js';
import { loadProfile } from '../../../agent/profile/load.js';

const ollama = loadProfile('ollama');

test('a profile for another unit is the same but for the unit', () => {
  assert.deepEqual(forUnit(ollama, 'ollama@1.service'), { ...ollama, unit: 'ollama@1.service' });
  assert.equal(forUnit(ollama, 'ollama.service'), ollama);
});

test('a profile fits its very unit and the instances of a template of that name', () => {
  for (const unit of ['ollama.service', 'ollama@1.service', 'ollama@gpu-0.service', 'ollama@.service']) {
    assert.equal(fits(ollama, unit), true, unit);
  }
  for (const unit of [
    'llama.service',
    'ollama2@1.service',
    'ollama-x.service',
    'ollama.service.x@1.service',
  ]) {
    assert.equal(fits(ollama, unit), false, unit);
  }
});

test('a profile of one instance fits the others', () => {
  const first = forUnit(ollama, 'ollama@0.service');
  assert.equal(fits(first, 'ollama@1.service'), true);
  assert.equal(fits(first, 'ollama.service'), false);
});

test('a consumer is chosen by its profile, or by its unit where the profile would mean another one', () => {
  assert.equal(choiceOf({ name: 'ollama', unit: 'ollama.service' }), '--profile ollama');
  assert.equal(choiceOf({ name: 'ollama', unit: 'ollama@1.service' }), '--unit ollama@1.service');
});

test('a service without a profile of its own is called by its unit', () => {
  assert.equal(titleOf({ name: genericProfile, unit: 'painter.service' }), 'painter.service');
  assert.equal(titleOf({ name: 'ollama', unit: 'ollama@1.service' }), 'ollama');
  assert.equal(loadProfile(genericProfile).name, 'generic');
});

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
