import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { MachineFacts, ServiceFacts } from '../../../agent/contracts/facts.js';
import { agentUnitFile, agentUnitLink } from '../../../agent/paths.js';
import { absent, plan, refusalCodes, regular } from './support.js';

/** The unit file there with `content` (null: none), and what others can change of what it executes. */
function service(content: string | null, changeable: string | null): ServiceFacts {
  const state = content === null ? absent : regular(content);
  return {
    unit: 'vgpu-agent.service',
    files: [{ present: { path: agentUnitFile, state, content }, content: 'wanted', editable: false }],
    link: { path: agentUnitLink, target: agentUnitFile, state: absent },
    activeState: 'inactive',
    changeable,
  };
}

const owned: Pick<MachineFacts, 'manifest'> = {
  manifest: {
    schema: 2,
    agent: '0.1.0',
    consumers: [{ profile: 'ollama', unit: 'ollama.service', links: [] }],
    storeId: '0123456789abcdef',
    endpoint: 'vsock:2:14833',
    items: [
      {
        kind: 'file',
        path: agentUnitFile,
        sha256: 'ab'.repeat(32),
        mode: 0o644,
        before: absent,
        backup: null,
        ownerPackage: null,
      },
    ],
  },
};

test('a service that would run what others can change is refused, with the path and what to do', () => {
  const made = plan({ service: service(null, '/home/dev/vgpu/dist') }, { service: true });
  assert.ok(made.kind === 'refused');
  assert.deepEqual(refusalCodes(made), ['service-not-roots']);
  const [refusal] = made.refusals;
  assert.match(refusal?.message ?? '', /would run as root .*: \/home\/dev\/vgpu\/dist$/);
  assert.match(refusal?.remedy ?? '', /scripts\/install-agent/);
});

test('what only root can change is not refused, nor an install without the service', () => {
  assert.equal(plan({ service: service(null, null) }, { service: true }).kind, 'ready');
  assert.equal(plan({ service: service(null, '/home/dev') }).kind, 'ready');
  assert.equal(plan({ service: service(null, '/home/dev') }, { service: false }).kind, 'ready');
});

test('a unit that is there is kept, and never written so that it runs what others can change', () => {
  assert.equal(plan({ ...owned, service: service('wanted', '/home/dev') }).kind, 'ready');
  assert.deepEqual(refusalCodes(plan({ ...owned, service: service('former', '/home/dev') })), [
    'service-not-roots',
  ]);
});
