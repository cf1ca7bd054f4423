import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { packageRoot } from '../../../agent/lib/paths.js';
import { maxMatchLength, maxPatternLength } from '../../../agent/profile/patterns.js';

const text = readFileSync(path.join(packageRoot(), 'docs/reference/profiles.md'), 'utf8');
const schema: unknown = JSON.parse(
  readFileSync(path.join(packageRoot(), 'profiles/profile.schema.json'), 'utf8'),
);

/** Every key that the schema allows, wherever it stands. */
function keysOf(node: unknown): readonly string[] {
  if (typeof node !== 'object' || node === null) return [];
  const own =
    'properties' in node && typeof node.properties === 'object' ? Object.keys(node.properties ?? {}) : [];
  return [...own, ...Object.values(node).flatMap(keysOf)];
}

test('docs/reference/profiles.md explains every key of the schema', () => {
  const keys = new Set(keysOf(schema));
  assert.ok(keys.size > 40);
  // The parts of a device's fields, and the schema's own keyword, need no row of their own.
  for (const known of ['$schema', 'library', 'compute', 'pci', 'properties']) keys.delete(known);
  for (const key of keys) assert.ok(text.includes(`\`${key}\``) || text.includes(`(?<${key}>`), key);
});

test('the limits that it names are the true ones', () => {
  assert.ok(text.includes(`at most ${maxPatternLength} characters`));
  assert.ok(text.includes(`${maxMatchLength} characters`));
});
