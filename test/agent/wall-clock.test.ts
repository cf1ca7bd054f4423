/** The time of day may be set back and on at any moment: it is for people to read, and nothing is counted in it. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { packageRoot } from '../../agent/lib/paths.js';

/** Every file that asks for the time of day or writes one, and what for. */
const readers: Readonly<Record<string, string>> = {
  'cli/commands/status.ts': 'the time of an event that a person watches',
  'service/keeper/machine.ts': 'when the next repair is allowed, in words',
  'verdict/node-effects.ts': 'the time of a look; its number never decreases',
  'service/judge/restart.ts': 'when the next restart is allowed, in words',
};

test('only what a person reads has the time of day', () => {
  const agent = path.join(packageRoot(), 'agent');
  const found = readdirSync(agent, { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.ts'))
    .filter((file) => /\bDate\b(?:\.now|\()/.test(readFileSync(path.join(agent, file), 'utf8')));
  assert.deepEqual(found.toSorted(), Object.keys(readers).toSorted());
});
