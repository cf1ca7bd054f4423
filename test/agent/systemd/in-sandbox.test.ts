/** A program in the sandbox of a unit file: the words for systemd-run. The guest tests run them. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { packageRoot } from '../../../agent/lib/paths.js';
import { sandboxArguments } from '../../../agent/systemd/unit-sandbox.js';

const unit = readFileSync(path.join(packageRoot(), 'units/vgpu-hostd.service'), 'utf8');

test('every setting of vgpu-hostd.service applies but those that place and start its own program', () => {
  const words = sandboxArguments({ unit, program: '/opt/check', args: ['--all'], limitMs: 1500 });
  const properties = words.flatMap((word) => /^--property=(.*)$/.exec(word)?.[1] ?? []);
  const own = ['Type', 'Environment', 'EnvironmentFile', 'ExecStart', 'ExecReload', 'RuntimeDirectory'];
  own.push('OOMPolicy', 'Restart', 'RestartSec', 'TimeoutStopSec', 'CacheDirectory', 'CacheDirectoryMode');
  const section = unit.slice(unit.indexOf('[Service]'), unit.indexOf('[Install]'));
  const lines = section.split('\n').filter((line) => /^\w+=/.test(line));
  const kept = lines.filter((line) => !own.includes(line.slice(0, line.indexOf('='))));
  assert.ok(kept.length > 20);
  assert.deepEqual(properties, [...kept, 'RuntimeMaxSec=2']);
  assert.deepEqual(words.slice(-3), ['--', '/opt/check', '--all']);
});
