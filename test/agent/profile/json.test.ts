import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { packageRoot } from '../../../agent/lib/paths.js';
import { linesIn, parseJson, pointerPart } from '../../../agent/profile/validate.js';

test('text that JSON.parse accepts is read the same', () => {
  const texts = [
    'null',
    ' true ',
    '-0.5e+3',
    '"a\\u00e9\\n\\/\\"é"',
    '[]',
    '{}',
    '{"a":[1,{"b":null}],"":false}',
    '[12.25, 1e10, 2E-12, 1.5e300, 0, -7]',
    '"\\b\\f\\n\\r\\t\\\\ \\"\\u0041\\uD83D\\uDE00"',
    '[true\n,\tfalse\r,null]',
    '{"u0041":"xu0041"}',
    readFileSync(path.join(packageRoot(), 'package.json'), 'utf8'),
    readFileSync(path.join(packageRoot(), 'profiles/ollama.json'), 'utf8'),
  ];
  for (const text of texts) {
    const result = parseJson(text);
    assert.equal(result.kind, 'ok');
    if (result.kind === 'ok') assert.deepEqual(result.value, JSON.parse(text));
  }
});

test('text that JSON.parse refuses is refused', () => {
  const texts = [
    '',
    '{',
    '[1,]',
    '{"a":1,}',
    "{'a':1}",
    '{"a" 1}',
    '01',
    '1.',
    '.5',
    '+1',
    'nul',
    'truex',
    '"\\x41"',
    '"a\nb"',
    '1 2',
    '// x\n1',
    '"\\u12"',
    '[1 2]',
    '{"a":1 "b":2}',
  ];
  for (const text of texts) {
    assert.throws(() => JSON.parse(text), text);
    assert.equal(parseJson(text).kind, 'bad', text);
  }
});

test('a mistake is reported with its line and column', () => {
  const result = parseJson('{\n  "a": 1,\n  "b" 2\n}');
  assert.deepEqual(result, {
    kind: 'bad',
    problem: 'line 3, column 7: not JSON: colon expected',
  });
});

test('an unfinished file is reported with its end as the position', () => {
  const result = parseJson('{\n  "a": [1,\n');
  assert.deepEqual(result, {
    kind: 'bad',
    problem: 'line 3, column 1: not JSON: value expected',
  });
});

test('a repeated key is a mistake', () => {
  const result = parseJson('{"a": 1,\n "a": 2}');
  assert.deepEqual(result, {
    kind: 'bad',
    problem: 'line 2, column 2: not JSON: the key "a" is given twice',
  });
  assert.equal(parseJson('[{"b": "\\"x\\":", "b": 1}]').kind, 'bad');
});

test('every value has its line', () => {
  const lines = linesIn('{\n  "a": {\n    "b/c": [true]\n  }\n}');
  assert.deepEqual(lines.get('/a'), 2);
  assert.deepEqual(lines.get('/a/b~1c/0'), 3);
});

test('a text with a colon or a key inside a string is no mistake', () => {
  const value = { a: '":', b: ['": {"x": 1', '\\":'], c: { a: 1 } };
  assert.deepEqual(parseJson(JSON.stringify(value)), { kind: 'ok', value });
});

test('a key named __proto__ stays a key', () => {
  const result = parseJson('{"__proto__": {"x": 1}}');
  assert.equal(result.kind, 'ok');
  if (result.kind === 'ok') assert.equal(JSON.stringify(result.value), '{"__proto__":{"x":1}}');
});

test('a value with too many levels is refused instead of overflowing the stack', () => {
  const nested = (levels: number) => parseJson(`${'['.repeat(levels)}1${']'.repeat(levels)}`);
  assert.equal(nested(200).kind, 'ok');
  for (const result of [nested(201), nested(100_000), parseJson('['.repeat(100_000))])
    assert.equal(result.kind === 'bad' && result.problem, 'not JSON: too many levels');
});

test('a mark of the byte order at the beginning is passed over, elsewhere it is a mistake', () => {
  assert.deepEqual(parseJson('\uFEFF{"a":1}'), parseJson('{"a":1}'));
  assert.equal(parseJson('1\uFEFF').kind, 'bad');
});

for (const [text, message, column] of [
  ['1 2', 'end of file expected', 3],
  ['{1', 'property name expected', 2],
  ['{"a":1]', 'comma expected', 7],
  ['"ab', 'unexpected end of string', 1],
  ['"a\tb"', 'invalid character', 1],
  ['"a\\x"', 'invalid escape character', 1],
  ['"a\\u12"', 'invalid unicode', 1],
  ['// x', 'invalid comment token', 1],
  ['x true', 'invalid symbol', 1],
] as const) {
  test(`the mistake is told: ${JSON.stringify(text)}`, () => {
    assert.deepEqual(parseJson(text), {
      kind: 'bad',
      problem: `line 1, column ${column}: not JSON: ${message}`,
    });
  });
}

test('a part of a pointer is escaped as RFC 6901 says', () => {
  assert.equal(pointerPart('a/b~c'), 'a~1b~0c');
  assert.equal(pointerPart(3), '3');
});
