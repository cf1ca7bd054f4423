/** Which consumer a command is about. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Consumer } from '../../../../agent/contracts/manifest.js';
import { type Choice, chooseAll, chooseOne } from '../../../../agent/install/pipeline/choose.js';
import { VgpuError } from '../../../../agent/lib/errors.js';
import { choiceOf, titleOf } from '../../../../agent/profile/instance.js';
import { loadProfile, readableProfiles } from '../../../../agent/profile/load.js';
import { unit as unitFacts } from '../../verdict/support.js';

const ollama: Consumer = { profile: 'ollama', unit: 'ollama.service', links: [] };
const first: Consumer = { profile: 'ollama', unit: 'ollama@1.service', links: [] };
const llama: Consumer = { profile: 'llama-server', unit: 'llama-server.service', links: [] };

function work(...consumers: readonly Consumer[]): Parameters<typeof chooseOne>[0] {
  return {
    manifest: async () =>
      consumers.length === 0
        ? null
        : { schema: 2, agent: '0', storeId: '0', endpoint: 'unix:/x', consumers, items: [] },
    profile: (name) => loadProfile(name),
    profiles: () => readableProfiles().profiles,
    unit: async (name) =>
      name === 'llm.service' ? unitFacts({ name: 'ollama.service' }) : { kind: 'absent', name },
  };
}

for (const [what, installed, choice, chosen] of [
  ['nothing said, nothing installed: the usual one', [], {}, ['ollama', 'ollama.service']],
  ['nothing said, one installed: that one', [llama], {}, ['llama-server', 'llama-server.service']],
  ['nothing said, an instance installed: that one', [first], {}, ['ollama', 'ollama@1.service']],
  ['the profile: its own unit', [llama], { profile: 'ollama' }, ['ollama', 'ollama.service']],
  [
    'the profile, installed for one instance: that one',
    [first, llama],
    { profile: 'ollama' },
    ['ollama', 'ollama@1.service'],
  ],
  [
    'the profile, installed for both: its own unit',
    [first, ollama],
    { profile: 'ollama' },
    ['ollama', 'ollama.service'],
  ],
  [
    'the unit of an instance: the profile of the template',
    [],
    { unit: 'ollama@7.service' },
    ['ollama', 'ollama@7.service'],
  ],
  [
    'the unit that a profile has: that profile',
    [ollama],
    { unit: 'llama-server.service' },
    ['llama-server', 'llama-server.service'],
  ],
  [
    'the unit that is installed: as it was installed',
    [{ ...ollama, unit: 'models.service' }],
    { unit: 'models.service' },
    ['ollama', 'models.service'],
  ],
  ['both', [], { profile: 'ollama', unit: 'models.service' }, ['ollama', 'models.service']],
] as const satisfies readonly (readonly [string, readonly Consumer[], Choice, readonly [string, string]])[]) {
  test(what, async () => {
    const { name, unit } = await chooseOne(work(...installed), choice);
    assert.deepEqual([name, unit], chosen);
  });
}

test('without a choice and with several installed, the error lists their names', async () => {
  await assert.rejects(
    chooseOne(work(ollama, llama), {}),
    (error) =>
      error instanceof VgpuError &&
      error.kind === 'usage' &&
      /ollama\.service \(profile ollama\), llama-server\.service \(profile llama-server\)/.test(
        error.message,
      ),
  );
});

test('a unit that no profile is for has the generic one, and is meant by its name', async () => {
  const web = await chooseOne(work(), { unit: 'nginx.service' });
  assert.deepEqual([web.name, web.unit], ['generic', 'nginx.service']);
  assert.equal(choiceOf(web), '--unit nginx.service');
  assert.equal(titleOf(web), 'nginx.service');
  const installed: Consumer = { profile: 'generic', unit: 'nginx.service', links: [] };
  assert.equal((await chooseOne(work(installed), {})).unit, 'nginx.service');
  const own = await chooseOne(work(), { unit: 'ollama.service' });
  assert.deepEqual([choiceOf(own), titleOf(own)], ['--profile ollama', 'ollama']);
  const instance = await chooseOne(work(), { unit: 'ollama@1.service' });
  assert.deepEqual([choiceOf(instance), titleOf(instance)], ['--unit ollama@1.service', 'ollama']);
});

test('all means every installed consumer, in order, or only the named one', async () => {
  const units = async (choice: Choice, ...installed: readonly Consumer[]): Promise<readonly string[]> =>
    (await chooseAll(work(...installed), choice)).map((one) => one.unit);
  assert.deepEqual(await units({}, llama, first), ['llama-server.service', 'ollama@1.service']);
  assert.deepEqual(await units({ unit: first.unit }, llama, first), ['ollama@1.service']);
  assert.deepEqual(await units({}), ['ollama.service']);
});

test('an alias of a unit stands for the unit, whose name the manifest, the drop-in and the journal have', async () => {
  const byAlias = await chooseOne(work(), { unit: 'llm.service' });
  assert.deepEqual([byAlias.name, byAlias.unit], ['ollama', 'ollama.service']);
  const installed = await chooseOne(work(ollama, llama), { unit: 'llm.service' });
  assert.equal(installed.unit, 'ollama.service');
  const profile = await chooseOne(work(), { unit: 'llm.service', profile: 'llama-server' });
  assert.deepEqual([profile.name, profile.unit], ['llama-server', 'ollama.service']);
});
