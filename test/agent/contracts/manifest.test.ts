/** The manifest is checked when it is read. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Manifest, manifestSchema, type OwnedItem } from '../../../agent/contracts/manifest.js';
import { readAs } from '../../../agent/lib/schema.js';

const absent = { kind: 'absent' } as const;
const link: OwnedItem = {
  kind: 'link',
  path: '/usr/lib/x86_64-linux-gnu/libcuda.so.1',
  target: '/opt/vgpu/current/libcuda.so.1',
  before: absent,
  backup: null,
};
const dropIn = (unit: string): OwnedItem => ({
  kind: 'file',
  path: `/etc/systemd/system/${unit}.d/50-vgpu.conf`,
  sha256: 'ab'.repeat(32),
  mode: 0o644,
  before: absent,
  backup: null,
});
const manifest: Manifest = {
  schema: 2,
  agent: '0.1.0',
  storeId: '0123456789abcdef',
  endpoint: 'vsock:2:14833',
  consumers: [{ profile: 'ollama', unit: 'ollama.service', links: [link.path] }],
  items: [
    link,
    dropIn('ollama.service'),
    { kind: 'directory', path: '/opt/vgpu', mode: 0o755 },
    {
      kind: 'alternative',
      group: 'nvidia',
      path: '/opt/vgpu/current',
      priority: 1000,
      before: { status: 'auto', value: '/usr/lib/nvidia' },
    },
  ],
};

test('written text is read back unchanged', () => {
  const read = readAs(manifestSchema, JSON.stringify(manifest));
  assert.deepEqual(read, { kind: 'fits', value: manifest });
});

for (const [what, value, problem] of [
  ['no object', 'x', /^it must be object/],
  ['a later schema', { ...manifest, schema: 3 }, /^\/schema must be 2, but is 3$/],
  ['a later schema with other members', { things: [], schema: 3 }, /^\/schema must be 2, but is 3$/],
  ['no consumer', { ...manifest, consumers: [] }, /^\/consumers .* but is \[\]$/],
  [
    'a unit with a slash',
    { ...manifest, consumers: [{ profile: 'x', unit: '../x.service', links: [] }] },
    /^\/consumers\/0\/unit /,
  ],
  ['items that are no list', { ...manifest, items: {} }, /^\/items .* but is \{\}$/],
  [
    'a relative path',
    { ...manifest, items: [{ ...link, path: 'etc/passwd' }] },
    /^\/items\/0\/path .*"etc\/passwd"/,
  ],
  [
    'a backup outside of its directory',
    { ...manifest, items: [{ ...link, backup: '../../etc/shadow' }] },
    /^\/items\/0\/backup /,
  ],
  [
    'a mode that is no number',
    { ...manifest, items: [{ kind: 'directory', path: '/x', mode: '755' }] },
    /^\/items\/0\/mode /,
  ],
] as const) {
  test(`refused, with its place: ${what}`, () => {
    const read = readAs(manifestSchema, JSON.stringify(value));
    assert.match(read.kind === 'wrong' ? read.problem : 'it was taken', problem);
  });
}
