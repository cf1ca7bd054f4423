import assert from 'node:assert/strict';
import { test } from 'node:test';
import { diffLines as shown } from '../../../../agent/cli/output/plan-text.js';

test('a new file is all additions', () => {
  assert.deepEqual(shown('', 'a\nb\n'), ['+a', '+b']);
});

test('a changed line is shown between its neighbours', () => {
  assert.deepEqual(shown('a\nb\nc\n', 'a\nB\nc\n'), [' a', '-b', '+B', ' c']);
});

test('lines far from a change are left out', () => {
  const before = Array.from({ length: 20 }, (_, index) => `line ${index}`);
  const after = before.with(10, 'changed');
  assert.deepEqual(shown(`${before.join('\n')}\n`, `${after.join('\n')}\n`), [
    ' line 8',
    ' line 9',
    '-line 10',
    '+changed',
    ' line 11',
    ' line 12',
  ]);
});

test('the same file has no lines', () => {
  assert.deepEqual(shown('a\nb\n', 'a\nb\n'), []);
});

test('a missing newline at the end is a difference', () => {
  assert.deepEqual(shown('a', 'a\n'), ['-a', '\\ No newline at end of file', '+a']);
});

test('two files without a common line are shown as replaced in bounded time', () => {
  const file = (mark: string): string => Array.from({ length: 20_000 }, (_, at) => `${mark}${at}\n`).join('');
  const lines = shown(file('a'), file('b'));
  assert.deepEqual([lines.length, lines[0], lines.at(-1)], [40_000, '-a0', '+b19999']);
});
