/** dist/bundle, which is what gets installed. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { packageRoot } from '../../agent/lib/paths.js';
import { load } from '../../scripts/bundle/load.js';

const bundle = path.join(packageRoot(), 'dist/bundle');

test('no file imports node:http as a module: in Node 22 that loads undici, which needs WebAssembly', () => {
  const files = readdirSync(bundle).filter((name) => /\.c?js$/.test(name));
  assert.ok(files.includes('daemon.cjs'), 'finds the bundle');
  const found = files.filter((name) =>
    /\b(from|import)\s*\(?\s*["'](node:)?http["']/.test(readFileSync(path.join(bundle, name), 'utf8')),
  );
  assert.deepEqual(found, []);
});

test('the command starts from a code cache that fits the Node of the build', () => {
  const { script } = load(path.join(bundle, 'command.cjs'));
  assert.equal(script.cachedDataRejected, false);
});
