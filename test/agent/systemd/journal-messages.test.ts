import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { packageRoot } from '../../../agent/lib/paths.js';
import { messageIds } from '../../../agent/systemd/journal-writer.js';

test('the page for Cockpit has the IDs that the service writes, each by its name', () => {
  const page = readFileSync(path.join(packageRoot(), 'units/cockpit/page.js'), 'utf8');
  const ids = [...page.matchAll(/'([0-9a-f]{32})', \/\/ (\w+)$/gm)].map(([, id, name]) => [name, id]);
  assert.equal(ids.length, page.match(/[0-9a-f]{32}/g)?.length);
  const written = Object.entries(messageIds);
  assert.deepEqual(
    ids,
    written.filter(([name]) => ids.some(([shown]) => shown === name)),
  );
});

test('the catalog explains every entry that is written, once', () => {
  const catalog = readFileSync(path.join(packageRoot(), 'units/vgpu-agent.catalog'), 'utf8');
  const ids = [...catalog.matchAll(/^-- ([0-9a-f]{32})$/gm)].map((one) => one[1]);
  assert.deepEqual(ids.toSorted(), Object.values(messageIds).toSorted());
});
