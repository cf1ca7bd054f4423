import assert from 'node:assert/strict';
import { test } from 'node:test';
import { diffLines, editScript } from '../../../../agent/cli/output/plan-text.js';

function shown(before: string, after: string): string[] {
  return diffLines(before, after).map(({ sign, text }) => sign + text);
}

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
  assert.deepEqual(shown('a', 'a\n'), [' a', '-\\ no newline at end of file']);
});

test('whatever the edit: without - it is the new file, without + the old one', () => {
  // A fixed linear congruence: the same cases in every run.
  let seed = 1;
  const below = (limit: number): number => {
    seed = (seed * 1103515245 + 12345) % 2147483648;
    return (seed >> 8) % limit;
  };
  const lines = (): string[] => Array.from({ length: below(8) }, () => 'xyz'.charAt(below(3)));
  const file = (all: readonly string[]): string => all.map((line) => `${line}\n`).join('');
  for (let round = 0; round < 500; round += 1) {
    const [before, after] = [lines(), lines()];
    const script = editScript(file(before), file(after));
    const without = (sign: string): string[] =>
      script.filter((line) => line.sign !== sign).map((line) => line.text);
    assert.deepEqual(without('-'), after);
    assert.deepEqual(without('+'), before);
  }
});
