/** docs/howto/write-a-profile.md, followed word for word: the profile in it fits, and judges the log in it. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { packageRoot } from '../../../agent/lib/paths.js';
import { describing } from '../../../agent/lib/schema.js';
import {
  defaultProfilePlaces,
  listProfiles,
  loadProfile,
  parseProfile,
} from '../../../agent/profile/load.js';
import type { Profile } from '../../../agent/profile/types.js';
import { createProfileValidator } from '../../../agent/profile/validate.js';
import { explainLog } from '../../../agent/verdict/log/judge.js';

const document = readFileSync(path.join(packageRoot(), 'docs/howto/write-a-profile.md'), 'utf8');
const reference = readFileSync(path.join(packageRoot(), 'docs/reference/profiles.md'), 'utf8');

/** The only block of the document in that language after the heading. */
function block(language: string): string {
  const [, part = ''] = document.split('## An example\n');
  const found = new RegExp(`^\`\`\`${language}\n([\\s\\S]*?)^\`\`\`$`, 'm').exec(part)?.[1];
  assert.ok(found !== undefined, language);
  return found;
}

function painter(change: (text: string) => string = (text) => text): Profile {
  const changed: unknown = JSON.parse(change(block('json')));
  assert.ok(typeof changed === 'object' && changed !== null);
  const generic: object = loadProfile('generic');
  const text = JSON.stringify({ ...generic, ...changed });
  const schema: unknown = JSON.parse(readFileSync(defaultProfilePlaces().schema, 'utf8'));
  assert.ok(typeof schema === 'object' && schema !== null);
  return parseProfile(text, 'painter.json', createProfileValidator(describing({ ...schema })));
}

async function* bytes(text: string): AsyncGenerator<Buffer> {
  yield Buffer.from(text);
}

test('the example is a profile, and its log says GPU', async () => {
  const verdict = await explainLog(painter(), bytes(block('log')));
  assert.equal(verdict.mode, 'gpu', JSON.stringify(verdict));
  assert.deepEqual(
    verdict.devices.map(({ name, library }) => [name, library]),
    [['NVIDIA H100 80GB HBM3 (simulated)', 'cuda']],
  );
  assert.equal(verdict.simulated, true);
});

test('a service that gives its device a name of its own leaves the name out, as the document says', async () => {
  const nameless = painter((text) => text.replace('"name": ["name"]', '"name": []'));
  const verdict = await explainLog(
    nameless,
    bytes(block('log').replace(/device: .* via/, 'device: GPU #0 via')),
  );
  assert.equal(verdict.mode, 'gpu', JSON.stringify(verdict));
  assert.equal(verdict.devices[0]?.name, '');
});

test('the reference names every shipped profile, and those that were never run say so', () => {
  const places = { ...defaultProfilePlaces(), directories: [path.join(packageRoot(), 'profiles')] };
  const names = listProfiles(places).map(({ name }) => name);
  for (const name of names) assert.ok(reference.includes(`\`${name}\``), name);
  const untried = names.filter((name) => loadProfile(name, places).notRun !== undefined);
  assert.deepEqual(untried, ['comfyui', 'jupyter', 'vllm']);
});
