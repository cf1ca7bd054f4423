import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { packageRoot } from '../../../agent/paths.js';
import { parseJson } from '../../../agent/profile/json.js';

test('what JSON.parse accepts is read the same', () => {
  const texts = [
    'null',
    ' true ',
    '-0.5e+3',
    '"a\\u00e9\\n\\/\\"é"',
    '[]',
    '{}',
    '{"a":[1,{"b":null}],"":false}',
    readFileSync(path.join(packageRoot(), 'package.json'), 'utf8'),
    readFileSync(path.join(packageRoot(), 'profiles/ollama.json'), 'utf8'),
  ];
  for (const text of texts) {
    const result = parseJson(text);
    assert.equal(result.kind, 'ok');
    if (result.kind === 'ok') assert.deepEqual(result.value, JSON.parse(text));
  }
});

test('what JSON.parse refuses is refused', () => {
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

test('a mistake is told with its line and column', () => {
  const result = parseJson('{\n  "a": 1,\n  "b" 2\n}');
  assert.deepEqual(result, {
    kind: 'bad',
    message: '":" was expected, but there is "2"',
    place: { line: 3, column: 7 },
  });
});

test('an unfinished file is told at its end', () => {
  const result = parseJson('{\n  "a": [1,\n');
  assert.deepEqual(result, {
    kind: 'bad',
    message: 'a value was expected, but the file ends',
    place: { line: 3, column: 1 },
  });
});

test('a repeated key is a mistake', () => {
  const result = parseJson('{"a": 1,\n "a": 2}');
  assert.deepEqual(result, {
    kind: 'bad',
    message: 'the key "a" stands here twice',
    place: { line: 2, column: 2 },
  });
});

test('every value has its place', () => {
  const result = parseJson('{\n  "a": {\n    "b/c": [true]\n  }\n}');
  assert.equal(result.kind, 'ok');
  if (result.kind === 'ok') {
    assert.deepEqual(result.places.get('/a'), { line: 2, column: 8 });
    assert.deepEqual(result.places.get('/a/b~1c/0'), { line: 3, column: 13 });
  }
});

test('a key named __proto__ stays a key', () => {
  const result = parseJson('{"__proto__": {"x": 1}}');
  assert.equal(result.kind, 'ok');
  if (result.kind === 'ok') assert.equal(JSON.stringify(result.value), '{"__proto__":{"x":1}}');
});

test('a nest too deep is refused instead of overflowing the stack', () => {
  const result = parseJson('['.repeat(100_000));
  assert.equal(result.kind, 'bad');
});
