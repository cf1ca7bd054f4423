/** dist/bundle, what is installed: what it must not do because the service runs without WebAssembly. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { packageRoot } from '../../agent/lib/paths.js';

const bundle = path.join(packageRoot(), 'dist/bundle');

test('no file imports node:http as a module: in Node 22 that loads undici, which needs WebAssembly', () => {
  const files = readdirSync(bundle).filter((name) => /\.c?js$/.test(name));
  assert.ok(files.includes('daemon.cjs'), 'finds the bundle');
  const found = files.filter((name) =>
    /\b(from|import)\s*\(?\s*["'](node:)?http["']/.test(readFileSync(path.join(bundle, name), 'utf8')),
  );
  assert.deepEqual(found, []);
});
