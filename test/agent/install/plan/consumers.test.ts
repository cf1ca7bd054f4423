/** Several consumers share what is the machine's; each has what is its own. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Consumer, Manifest, OwnedItem } from '../../../../agent/contracts/manifest.js';
import {
  isNoted,
  itemsOnlyFor,
  withConsumer,
  withoutConsumer,
} from '../../../../agent/install/plan/owned.js';
import { planUninstall } from '../../../../agent/install/plan/uninstall.js';
import { loadProfile } from '../../../../agent/profile/load.js';
import { changesOf, facts, plan, warningCodes } from './support.js';

const profile = loadProfile('ollama');
const before = { kind: 'absent' } as const;
const file = (path: string): OwnedItem => ({
  kind: 'file',
  path,
  sha256: 'ab'.repeat(32),
  mode: 0o644,
  before,
  backup: null,
});
const link = (path: string): OwnedItem => ({
  kind: 'link',
  path,
  target: '/opt/vgpu/current/libcuda.so.1',
  before,
  backup: null,
});
const directory = (path: string): OwnedItem => ({ kind: 'directory', path, mode: 0o755 });
const ollama: Consumer = { profile: 'ollama', unit: 'ollama.service', links: ['/lib/a', '/made/b'] };
const llama: Consumer = { profile: 'llama-server', unit: 'llama-server.service', links: ['/lib/a'] };
const second: Consumer = { profile: 'ollama', unit: 'ollama@1.service', links: ['/lib/a', '/made/b'] };
const manifest = (...consumers: readonly Consumer[]): Manifest => ({
  schema: 2,
  agent: '0.1.0',
  storeId: '0123456789abcdef',
  endpoint: 'vsock:2:14833',
  consumers,
  items: [
    directory('/opt/vgpu'),
    file('/opt/vgpu/versions/0123456789abcdef/libcuda.so.1'),
    link('/lib/a'),
    directory('/made'),
    link('/made/b'),
    ...consumers.flatMap(({ unit }) => [
      directory(`/etc/systemd/system/${unit}.d`),
      file(`/etc/systemd/system/${unit}.d/50-vgpu.conf`),
      file(`/etc/systemd/system/${unit}.d/zzz-vgpu.conf`),
    ]),
  ],
});
const paths = (items: readonly OwnedItem[]): readonly string[] => items.map((item) => item.path);

test('a consumer alone has its drop-ins, and the links that no other one wants, with their directory', () => {
  assert.deepEqual(paths(itemsOnlyFor(manifest(ollama, llama), 'ollama.service')), [
    '/made',
    '/made/b',
    '/etc/systemd/system/ollama.service.d',
    '/etc/systemd/system/ollama.service.d/50-vgpu.conf',
    '/etc/systemd/system/ollama.service.d/zzz-vgpu.conf',
  ]);
});

test('a link that an instance of the same template wants stays', () => {
  const items = paths(itemsOnlyFor(manifest(ollama, second), 'ollama@1.service'));
  assert.deepEqual(items, [
    '/etc/systemd/system/ollama@1.service.d',
    '/etc/systemd/system/ollama@1.service.d/50-vgpu.conf',
    '/etc/systemd/system/ollama@1.service.d/zzz-vgpu.conf',
  ]);
});

test('the list keeps its order: a known consumer stays in its place, a new one comes last', () => {
  const both = manifest(ollama, llama);
  const changed = { ...ollama, links: [] };
  assert.deepEqual(withConsumer(both, changed), [changed, llama]);
  assert.deepEqual(withConsumer(both, second), [ollama, llama, second]);
  assert.deepEqual(withConsumer(null, ollama), [ollama]);
  assert.deepEqual(withoutConsumer(both, 'ollama.service'), [llama]);
});

test('a consumer is noted with the same profile and the same links, in any order', () => {
  const one = manifest(ollama);
  assert.ok(isNoted(one, { ...ollama, links: ['/made/b', '/lib/a'] }));
  assert.ok(!isNoted(one, { ...ollama, links: ['/lib/a'] }));
  assert.ok(!isNoted(one, { ...ollama, links: ['/lib/a', '/lib/c'] }));
  assert.ok(!isNoted(one, { ...ollama, profile: 'mine' }));
  assert.ok(!isNoted(one, llama));
  assert.ok(!isNoted(null, ollama));
});

test('removing one of two takes its drop-ins, a reload and its restart; store, loader and the other one stay', () => {
  const made = planUninstall(profile, facts({ manifest: manifest(ollama, llama) }), { restart: true });
  assert.deepEqual(made.kind === 'ready' && made.consumers, [llama]);
  const changes = changesOf(made).map((change) => ('path' in change ? change.path : change.kind));
  assert.deepEqual(changes, [
    '/etc/systemd/system/ollama.service.d/zzz-vgpu.conf',
    '/etc/systemd/system/ollama.service.d/50-vgpu.conf',
    'daemon-reload',
    '/made/b',
    'ldconfig',
    '/etc/systemd/system/ollama.service.d',
    '/made',
    'restart',
  ]);
});

test('the last one takes the shared parts with it', () => {
  const made = planUninstall(profile, facts({ manifest: manifest(ollama) }), { restart: true });
  assert.deepEqual(made.kind === 'ready' && made.consumers, []);
  const changes = changesOf(made).map((change) => ('path' in change ? change.path : change.kind));
  assert.ok(changes.includes('/lib/a') && changes.includes('/opt/vgpu'));
});

test('a consumer that is not installed changes nothing, and the plan names those that are', () => {
  const made = planUninstall(profile, facts({ manifest: manifest(llama) }), { restart: true });
  assert.deepEqual([changesOf(made), warningCodes(made)], [[], ['not-installed']]);
  assert.deepEqual(made.kind === 'ready' && made.consumers, [llama]);
});

test('a second consumer is added to the first, whose entry stays as it is', () => {
  const made = plan({ manifest: manifest(llama) });
  const consumers = made.kind === 'ready' ? made.consumers : [];
  assert.deepEqual(
    consumers.map((one) => one.unit),
    ['llama-server.service', 'ollama.service'],
  );
  assert.equal(consumers[0], llama);
});

test('a new host applies to all: the plan names the other consumers that it moves', () => {
  const other = { endpoint: 'vsock:2:1', restart: true, force: false };
  assert.ok(warningCodes(plan({ manifest: manifest(llama) }, other)).includes('host-for-all'));
  assert.ok(!warningCodes(plan({ manifest: manifest(ollama) }, other)).includes('host-for-all'));
});
