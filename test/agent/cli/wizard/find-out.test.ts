/** The facts that the wizard finds out and its refusals before any question, on made-up facts. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type FindOutEffects, findOut } from '../../../../agent/cli/wizard/find-out.js';
import type { MachineFacts } from '../../../../agent/contracts/facts.js';
import type { UnitFacts } from '../../../../agent/contracts/unit.js';
import { planInstall } from '../../../../agent/install/plan/install.js';
import { VgpuError } from '../../../../agent/lib/errors.js';
import { loadProfile } from '../../../../agent/profile/load.js';
import { facts } from '../../install/plan/support.js';

const profiles = [loadProfile('ollama'), loadProfile('llama-server')];

function looking(
  machine: Partial<MachineFacts> = {},
  units: (name: string) => UnitFacts = (name) =>
    name === 'ollama.service' ? facts().unit : { kind: 'absent', name },
): FindOutEffects & { readonly asked: string[] } {
  const asked: string[] = [];
  return {
    asked,
    profiles,
    unit: async (name) => units(name),
    inspect: async () => ({ ...facts(), ...machine }),
    planInstall,
    askHost: async (endpoint) => {
      asked.push(endpoint);
      return { kind: 'unreachable', message: 'nobody', word: null };
    },
    environmentHost: undefined,
    emit: () => {},
    signal: new AbortController().signal,
  };
}

async function refused(effects: FindOutEffects): Promise<VgpuError> {
  const error: unknown = await findOut(effects).catch((thrown: unknown) => thrown);
  assert.ok(error instanceof VgpuError, String(error));
  assert.equal(error.kind, 'refused');
  return error;
}

test('the services that are there, and every place where a host may be, asked once', async () => {
  const effects = looking();
  const found = await findOut(effects);
  assert.deepEqual(
    found.consumers.map(({ profile }) => profile.name),
    ['ollama'],
  );
  assert.equal(new Set(effects.asked).size, effects.asked.length);
  assert.ok(found.hosts.some(({ endpoint }) => endpoint === 'vsock:2:14833'));
  assert.equal(found.installed, null);
});

test('a real GPU that works is refused before any question', async () => {
  const effects = looking({ realGpu: { kind: 'present', works: true, evidence: 'libcuda lists a GPU' } });
  const error = await refused(effects);
  assert.match(error.message, /a real GPU works in this guest \(libcuda lists a GPU\)/);
  assert.deepEqual(effects.asked, [], 'no host is asked either');
});

test('a missing and a masked service are refused with a remedy', async () => {
  const none = await refused(looking({}, (name) => ({ kind: 'absent', name })));
  assert.match(none.message, /ollama\.service is absent, llama-server\.service is absent/);
  const masked = await refused(looking({}, (name) => ({ kind: 'masked', name, path: '' })));
  assert.match(masked.remedy ?? '', /systemctl unmask ollama\.service/);
});

test('a signal while it looks ends it before the first question', async () => {
  const stop = new AbortController();
  const effects = { ...looking(), signal: stop.signal };
  stop.abort();
  await assert.rejects(findOut(effects), /stopped before the first question; nothing was changed/);
});
