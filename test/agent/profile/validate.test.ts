/** The schema's complaints, in words. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { describing, schemaCheck } from '../../../agent/lib/schema.js';
import { loadProfile } from '../../../agent/profile/load.js';
import { createProfileValidator, problemsOf, readablePointer } from '../../../agent/profile/validate.js';

/** The mistakes of `value`, by a schema of the test's own. */
function told(schema: Readonly<Record<string, unknown>>, value: unknown): readonly string[] {
  const checked = schemaCheck(describing<unknown>(schema))(value);
  return checked.kind === 'fits'
    ? []
    : problemsOf(checked.errors).map(({ pointer, message }) => `${pointer}: ${message}`);
}

for (const [pointer, readable] of [
  ['', 'the file'],
  ['/log/devices/0', 'log.devices[0]'],
  ['/12', '[12]'],
  ['/a1/1a', 'a1["1a"]'],
  ['/a-b/$c_1', 'a-b.$c_1'],
  ['/a.b/-c/d e', '["a.b"]["-c"]["d e"]'],
  ['/a~1b~0c', '["a/b~c"]'],
  ['/fields/', 'fields[""]'],
] as const) {
  test(`${JSON.stringify(pointer)} is read as ${readable}`, () => {
    assert.equal(readablePointer(pointer), readable);
  });
}

test('the error for an unknown key lists the allowed keys', () => {
  const schema = { type: 'object', properties: { name: {}, unit: {} }, additionalProperties: false };
  assert.deepEqual(told(schema, { nmae: 1 }), ['/nmae: unknown key. Allowed here: name, unit']);
  assert.deepEqual(told(schema, { 'a/b': 1 }), ['/a~1b: unknown key. Allowed here: name, unit']);
  assert.deepEqual(told({ type: 'object', additionalProperties: false }, { a: 1 }), [
    '/a: unknown key. Allowed here: ',
  ]);
});

test('a key with a forbidden name is reported, with the reason', () => {
  const schema = { type: 'object', propertyNames: { pattern: '^[a-z]+$' } };
  assert.deepEqual(told(schema, { A: 1 }), [
    ': "A" was given, allowed: what matches ^[a-z]+$',
    ': the key "A" is not allowed here',
  ]);
});

test('the error for a wrong choice lists all values', () => {
  assert.deepEqual(told({ enum: ['http', 'none', 3, null] }, 'htpp'), [
    ': "htpp" was given, allowed: "http", "none", 3, null',
  ]);
  assert.deepEqual(told({ enum: ['http', 3] }, 4), [': 4 was given, allowed: "http", 3']);
});

test('types, a constant, a pattern and other rules of ajv are reported', () => {
  assert.deepEqual(told({ type: ['string', 'null'] }, 7), [': 7 was given, allowed: string or null']);
  assert.deepEqual(told({ const: 1 }, 2), [': 2 was given, allowed: 1']);
  assert.deepEqual(told({ type: 'string', pattern: '^a' }, 'b'), [
    ': "b" was given, allowed: what matches ^a',
  ]);
  assert.deepEqual(told({ type: 'number', minimum: 3 }, 2), [': 2 was given, but it must be >= 3']);
});

test('for alternatives and conditions only the failed parts are reported, each once', () => {
  const anyOf = [{ type: 'string' }, { type: 'null' }];
  assert.deepEqual(told({ anyOf }, 7), [': 7 was given, allowed: string', ': 7 was given, allowed: null']);
  assert.deepEqual(told({ anyOf: [{ type: 'string' }, { type: 'string', minLength: 1 }] }, 7), [
    ': 7 was given, allowed: string',
  ]);
  const both = { a: {}, b: {} };
  const conditional = {
    properties: both,
    if: { properties: both, required: ['a'] },
    // biome-ignore lint/suspicious/noThenProperty: JSON Schema calls it so
    then: { properties: both, required: ['b'] },
  };
  assert.deepEqual(told(conditional, { a: 1 }), [': the key "b" is missing']);
});

test('the given value is quoted up to 80 characters', () => {
  const quoted = (length: number) => told({ const: 1 }, 'x'.repeat(length))[0]?.split(' ')[1] ?? '';
  assert.equal(quoted(78), `"${'x'.repeat(78)}"`);
  assert.equal(quoted(79), `"${'x'.repeat(79)}...`);
});

test('a profile that does not fit the schema is not looked at any further; one that fits must mean something', () => {
  const validate = createProfileValidator(
    describing({
      type: 'object',
      properties: { consumerLibraries: {} },
      required: ['consumerLibraries'],
    }),
  );
  assert.deepEqual(validate({}), {
    kind: 'bad',
    problems: [{ pointer: '', message: 'the key "consumerLibraries" is missing' }],
  });
  const ollama = JSON.parse(JSON.stringify(loadProfile('ollama')));
  assert.deepEqual(validate(ollama), { kind: 'ok', profile: ollama });
  const meant = validate({ ...ollama, consumerLibraries: ['$' + '{x}'] });
  assert.equal(meant.kind === 'bad' && meant.problems[0]?.pointer, '/consumerLibraries/0');
});
