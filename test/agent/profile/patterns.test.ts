import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compilePattern } from '../../../agent/profile/patterns.js';

test('plain expressions compile, with the names of their groups', () => {
  const result = compilePattern('^Listening on (?<address>\\S{1,100}) \\(version (?<version>[^)]+)\\)$');
  assert.equal(result.kind, 'ok');
  if (result.kind === 'ok') assert.deepEqual(result.groups, ['address', 'version']);
});

test('a bad expression is told with the reason and without the noise', () => {
  const result = compilePattern('(a');
  assert.deepEqual(result, { kind: 'bad', message: 'no regular expression: Unterminated group' });
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

test('back references and looking around are refused', () => {
  for (const source of ['(a)\\1', '(?<x>a)\\k<x>', 'a(?=b)', '(?<!a)b']) {
    assert.equal(compilePattern(source).kind, 'bad', source);
  }
});

test('too many repetitions and too long expressions are refused', () => {
  assert.equal(compilePattern('.*.*.*.*.*.*').kind, 'bad');
  assert.equal(compilePattern('a'.repeat(401)).kind, 'bad');
});

// An exponential pattern would not end within the age of the machine; a busy machine is no reason to fail.
test('what is allowed ends on a hostile line', () => {
  const hostile = `${'a'.repeat(2047)}!`;
  for (const source of ['^a+b', 'a+b', '(?:aa)+b', '[a-z]+[a-z]+$']) {
    const result = compilePattern(source);
    assert.equal(result.kind, 'ok');
    const start = process.cpuUsage();
    if (result.kind === 'ok') result.pattern.test(hostile);
    assert.ok(process.cpuUsage(start).user < 20_000_000, source);
  }
});
