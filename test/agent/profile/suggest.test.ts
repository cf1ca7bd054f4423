import assert from 'node:assert/strict';
import { test } from 'node:test';
import { editDistance, nearest } from '../../../agent/profile/validate.js';

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

test('neighbours are swapped once; letters that only stand apart are not', () => {
  assert.equal(editDistance('ab', 'ba'), 1);
  assert.equal(editDistance('abc', 'cab'), 2);
  assert.equal(editDistance('abcd', 'badc'), 2);
  assert.equal(editDistance('ca', 'abc'), 3);
  assert.equal(editDistance('xab', 'xcd'), 2);
  assert.equal(editDistance('xa', 'ay'), 2);
  assert.equal(editDistance('ax', 'ya'), 2);
});

test('a slip is one letter of a short word, and a third of a long one', () => {
  assert.equal(nearest('ab', ['ax']), 'ax');
  assert.equal(nearest('ab', ['xy']), null);
  assert.equal(nearest('abcdefghi', ['abcdefxyz']), 'abcdefxyz');
  assert.equal(nearest('abcdefghi', ['abcdewxyz']), null);
  assert.equal(nearest('abcdefghi', ['abcdefghijkl']), 'abcdefghijkl');
});

test('the first of two that are equally near is named, the nearer one before it', () => {
  assert.equal(nearest('cat', ['car', 'cut']), 'car');
  assert.equal(nearest('abcdef', ['abcdxy', 'abcdex']), 'abcdex');
});
