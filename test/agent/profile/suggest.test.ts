import assert from 'node:assert/strict';
import { test } from 'node:test';
import { editDistance, nearest } from '../../../agent/profile/suggest.js';

test('distances count inserted, deleted, replaced and swapped letters', () => {
  assert.equal(editDistance('', 'abc'), 3);
  assert.equal(editDistance('kitten', 'sitting'), 3);
  assert.equal(editDistance('ollama', 'ollmaa'), 1);
  assert.equal(editDistance('same', 'same'), 0);
});

test('a slip finds its word, something else finds none', () => {
  const words = ['ollama', 'llama-server', 'readiness'];
  assert.equal(nearest('olama', words), 'ollama');
  assert.equal(nearest('Readyness', words), 'readiness');
  assert.equal(nearest('vllm', words), null);
  assert.equal(nearest('x'.repeat(100_000), words), null);
});
