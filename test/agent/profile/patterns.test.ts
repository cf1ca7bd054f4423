import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compilePattern } from '../../../agent/profile/patterns.js';

test('plain expressions compile, with the names of their groups', () => {
  const result = compilePattern('^Listening on (?<address>\\S{1,100}) \\(version (?<version>[^)]+)\\)$');
  assert.equal(result.kind, 'ok');
  if (result.kind === 'ok') assert.deepEqual(result.groups, ['address', 'version']);
});

test('a bad expression is reported with the reason only', () => {
  const result = compilePattern('(a');
  assert.deepEqual(result, { kind: 'bad', message: 'not a regular expression: Unterminated group' });
});

for (const source of [
  '(a+)+$',
  '(a*)*',
  '(?:a|ab)+',
  '((x{2,})y)*',
  '(.*a){20,}',
  '(?:(?:a+)b?){1,100}',
  '(?<n>\\w+)+',
]) {
  test(`${source} may backtrack without end and is refused`, () => {
    const result = compilePattern(source);
    assert.equal(result.kind, 'bad');
    if (result.kind === 'bad') assert.match(result.message, /repeated group/);
  });
}

for (const source of [
  'a+b+',
  '(?:ab)?c*',
  '[a+*]+',
  '\\(a\\+\\)+',
  '(?:abc)+',
  'a{1,3}',
  '(?:a+){1,3}',
  '[^\\]]+',
  '\\p{Lu}+x',
]) {
  test(`${source} is harmless and allowed`, () => {
    assert.equal(compilePattern(source).kind, 'ok');
  });
}

function whyNot(source: string): string {
  const result = compilePattern(source);
  return result.kind === 'bad' ? result.message : 'it is allowed';
}

test('back references and looking around are refused', () => {
  for (const source of ['(a)\\1', 'x(?<x>a)\\k<x>']) {
    assert.equal(whyNot(source), 'back references are not allowed', source);
  }
  for (const source of ['a(?=b)', 'a(?!b)', '(?<=a)b', '(?<!a)b']) {
    assert.equal(whyNot(source), 'looking ahead or behind is not allowed', source);
  }
});

test('too many repetitions are refused; optional parts and small repetitions do not count', () => {
  assert.equal(compilePattern('.*.+x{3,}y{33}z{0,33}').kind, 'ok');
  assert.equal(whyNot('.*.+x{3,}y{33}z{0,33}.*'), 'more than 5 unbounded repetitions');
  assert.equal(compilePattern('a?b??.{32}.{0,32}.*?.*.*.*.*').kind, 'ok');
});

test('a character in a class or after a backslash repeats nothing', () => {
  for (const source of [
    '[*][*][*][*][*][*]',
    '[\\]*+][\\]*+][\\]*+]{3}x+x+x+x+x+',
    '(?:\\u{100000}){1,40}',
    '(?:\\*\\|\\+)+',
    '(?:[|(])+',
  ]) {
    assert.equal(whyNot(source), 'it is allowed', source);
  }
});

test('a group is judged by its content at any depth, not by the text before or after it', () => {
  assert.match(whyNot('(((x+)))+'), /repeated group/);
  assert.match(whyNot('(?:(?:(?:x|y)))*'), /repeated group/);
  assert.match(whyNot('(?:x|y){33}'), /repeated group/);
  assert.equal(whyNot('(?:x+)(?:y)+'), 'it is allowed');
  assert.equal(whyNot('x+|(?:y)+'), 'it is allowed');
  assert.equal(whyNot('(?:x|y)z+'), 'it is allowed');
  assert.equal(whyNot('(?:x|y)?z'), 'it is allowed');
});

test('an expression is as long as allowed, and no longer', () => {
  assert.equal(whyNot('a'.repeat(400)), 'it is allowed');
  assert.equal(whyNot('a'.repeat(401)), '401 characters; at most 400 are allowed');
});

test('the mistake is named even where the expression has colons and lines', () => {
  assert.equal(whyNot('a: b\n(c: d'), 'not a regular expression: Unterminated group');
  // Without the flag u this would be the letter.
  assert.match(whyNot('\\y'), /^not a regular expression: Invalid escape/);
});

test('a group in a class is none', () => {
  const result = compilePattern('[(?<no>](?<yes>x)|(?<other>y)');
  assert.deepEqual(result.kind === 'ok' && result.groups, ['yes', 'other']);
});

// An exponential pattern would not end within the age of the machine; a busy machine is no reason to fail.
test('an allowed expression ends on a hostile line', () => {
  const hostile = `${'a'.repeat(2047)}!`;
  for (const source of ['^a+b', 'a+b', '(?:aa)+b', '[a-z]+[a-z]+$']) {
    const result = compilePattern(source);
    assert.equal(result.kind, 'ok');
    const start = process.cpuUsage();
    if (result.kind === 'ok') result.pattern.test(hostile);
    assert.ok(process.cpuUsage(start).user < 20_000_000, source);
  }
});
