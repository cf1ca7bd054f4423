import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bytes, duration, oneLine, printable, styleFor, wrap } from '../../../../agent/lib/text.js';

test('control characters of a log line are shown, never obeyed', () => {
  assert.equal(printable('a\u001b[31mred\u0007\u009b0m'), 'a\\x1b[31mred\\x07\\x9b0m');
  assert.equal(oneLine('one\ntwo\tthree\r'), 'one\\ntwo three\\x0d');
});

test('text is wrapped at the width, its indentation included', () => {
  const wrapped = wrap('the quick brown fox jumps over the lazy dog', 20, '    ');
  assert.deepEqual(wrapped.split('\n'), ['the quick brown fox', '    jumps over the', '    lazy dog']);
  for (const line of wrapped.split('\n')) assert.ok(line.length <= 20, line);
});

test('a word longer than the line gets a line of its own, unbroken', () => {
  assert.equal(
    wrap('see /usr/lib/x86_64-linux-gnu/libcuda.so.1 now', 12),
    'see\n/usr/lib/x86_64-linux-gnu/libcuda.so.1\nnow',
  );
});

test('runs of spaces in a quoted line survive', () => {
  assert.equal(wrap('load_tensors:        CUDA0 model', 80), 'load_tensors:        CUDA0 model');
});

test('sizes and durations are said as a person says them', () => {
  assert.deepEqual([bytes(0), bytes(999), bytes(1_200_000)], ['0 B', '999 B', '1.2 MB']);
  assert.deepEqual([duration(400), duration(12_400), duration(125_000)], ['0.4 s', '12 s', '2 min 5 s']);
});

const terminal = { isTty: true, columns: 80, wanted: true, env: {} };

test('colour needs a terminal that supports it, and no option or variable against it', () => {
  assert.equal(styleFor(terminal).good('x'), '\u001b[32mx\u001b[39m');
  for (const options of [
    { ...terminal, isTty: false },
    { ...terminal, wanted: false },
    { ...terminal, env: { NO_COLOR: '1' } },
    { ...terminal, env: { TERM: 'dumb' } },
  ]) {
    assert.equal(styleFor(options).good('x'), 'x', JSON.stringify(options));
  }
});

test('an empty NO_COLOR does not count, as no-color.org asks', () => {
  assert.notEqual(styleFor({ ...terminal, env: { NO_COLOR: '' } }).good('x'), 'x');
});

test('prose follows the terminal between 40 and 100 columns, and is not wrapped elsewhere', () => {
  assert.equal(styleFor({ ...terminal, columns: 20 }).width, 40);
  assert.equal(styleFor(terminal).width, 80);
  assert.equal(styleFor({ ...terminal, columns: 300 }).width, 100);
  assert.equal(styleFor({ ...terminal, isTty: false }).width, Number.POSITIVE_INFINITY);
});
