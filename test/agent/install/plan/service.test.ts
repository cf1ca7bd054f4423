import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { MachineFacts, ServiceFacts } from '../../../../agent/contracts/facts.js';
import { serviceText } from '../../../../agent/install/plan/service.js';
import { agentConf, agentUnitFile, agentUnitLink } from '../../../../agent/lib/paths.js';
import { absent, plan, refusalCodes, regular } from './support.js';

const template = [
  'Before=@CONSUMER@',
  'ExecStart=@COMMAND@',
  'ReadWritePaths=@LIBRARIES@',
  'ProtectHome=@PROTECT_HOME@',
  'BindReadOnlyPaths=@KEPT_IN_TMP@',
  'SystemCallFilter=@system-service @NONE@',
].join('\n');

/** The unit's text for a program in that directory, looking after these consumers. */
function text(
  directory: string,
  consumers: ServiceFacts['consumers'],
  packaged = template,
): readonly string[] {
  const facts = service(null, null);
  const program = { ...facts.program, package: directory };
  const present = { path: agentUnitFile, state: absent, content: null };
  const file = { present, packaged, editable: false };
  return serviceText({ ...facts, program, consumers }, file).split('\n');
}

/** The unit file there with `content` (null: none), and what others can change of what it executes. */
function service(content: string | null, changeable: string | null): ServiceFacts {
  const state = content === null ? absent : regular(content);
  return {
    unit: 'vgpu-agent.service',
    files: [{ present: { path: agentUnitFile, state, content }, packaged: 'wanted', editable: false }],
    link: { path: agentUnitLink, target: agentUnitFile, state: absent },
    activeState: 'inactive',
    program: {
      node: '/usr/bin/node',
      watch: '/usr/lib/vgpu-agent/vgpu-watch',
      package: '/usr/lib/vgpu-agent',
    },
    consumers: [],
    changeable,
    confProblem: null,
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
      },
    ],
  },
};

test('a service that would run a file that others can change is refused, with the path and a remedy', () => {
  const made = plan({ service: service(null, '/home/dev/vgpu/dist') }, { service: true });
  assert.ok(made.kind === 'refused');
  assert.deepEqual(refusalCodes(made), ['service-not-roots']);
  const [refusal] = made.refusals;
  assert.match(refusal?.message ?? '', /would run programs as root .*: \/home\/dev\/vgpu\/dist$/);
  assert.match(refusal?.remedy ?? '', /scripts\/install-agent/);
});

test('files that only root can change are not refused, nor an install without the service', () => {
  assert.equal(plan({ service: service(null, null) }, { service: true }).kind, 'ready');
  assert.equal(plan({ service: service(null, '/home/dev') }).kind, 'ready');
  assert.equal(plan({ service: service(null, '/home/dev') }, { service: false }).kind, 'ready');
});

test('a request for the service is refused while agent.json has a mistake; without one it is a warning', () => {
  const confProblem = '/etc/vgpu-agent/agent.json: line 2, checkMinutes: must be >= 1, but is 0';
  const wrong = { ...service('wanted', null), confProblem };
  const refused = plan({ service: wrong }, { service: true });
  assert.ok(refused.kind === 'refused');
  assert.deepEqual(refusalCodes(refused), ['agent-conf-invalid']);
  assert.ok(refused.refusals[0]?.message.endsWith(confProblem), refused.refusals[0]?.message);
  const upgrade = plan({ ...owned, service: wrong });
  assert.ok(upgrade.kind === 'ready');
  const warning = upgrade.warnings.find(({ code }) => code === 'agent-conf-invalid');
  assert.ok(warning?.message.endsWith(confProblem), warning?.message);
  const without = plan({ service: wrong });
  assert.ok(without.kind === 'ready');
  assert.ok(without.warnings.every(({ code }) => code !== 'agent-conf-invalid'));
});

test('an existing unit is kept, and never runs a file that others can change', () => {
  assert.equal(plan({ ...owned, service: service('wanted', '/home/dev') }).kind, 'ready');
  assert.deepEqual(refusalCodes(plan({ ...owned, service: service('former', '/home/dev') })), [
    'service-not-roots',
  ]);
});

test('the unit names its consumers and their directories once, in one order', () => {
  const consumers = [
    { unit: 'ollama.service', libraryDirectories: ['/usr/lib/x', '/opt/lib'] },
    { unit: 'comfyui.service', libraryDirectories: ['/usr/lib/x'] },
  ];
  const [before, command, writable, home, kept, calls] = text('/usr/lib/vgpu-agent', consumers);
  assert.equal(before, 'Before=comfyui.service ollama.service');
  assert.match(command ?? '', /^ExecStart=\/usr\/lib\/vgpu-agent\/vgpu-watch -- \/usr\/bin\/node --jitless /);
  assert.match(command ?? '', / \/usr\/lib\/vgpu-agent\/dist\/bundle\/daemon\.cjs$/);
  assert.equal(writable, 'ReadWritePaths=-/opt/lib -/usr/lib/x');
  assert.equal(home, 'ProtectHome=yes');
  assert.equal(kept, 'BindReadOnlyPaths=');
  // Text that is no placeholder stays: systemd has words with @ of its own.
  assert.equal(calls, 'SystemCallFilter=@system-service @NONE@');
  assert.deepEqual(text('/usr/lib/vgpu-agent', consumers.toReversed())[0], before);
});

test('a checkout is seen by the service, wherever it lies', () => {
  assert.equal(text('/home/dev/vgpu', [])[3], 'ProtectHome=read-only');
  assert.equal(text('/root/vgpu', [])[3], 'ProtectHome=read-only');
  assert.equal(text('/tmp/vgpu', [])[4], 'BindReadOnlyPaths=/tmp/vgpu');
  assert.equal(text('/srv/tmp/vgpu', [])[4], 'BindReadOnlyPaths=');
});

test('a path with characters that are special to systemd is one word of the command', () => {
  const [, command] = text('/srv/a b%c$d"e', []);
  assert.match(command ?? '', / "\/srv\/a b%%c\$\$d\\"e\/dist\/bundle\/daemon\.cjs"$/);
});

test('agent.json says the host that was asked for, else that it is as installed', () => {
  const facts = service(null, null);
  const file = { present: { path: agentConf, state: absent, content: null }, packaged: '', editable: true };
  const said = (endpoint: string | null) => JSON.parse(serviceText(facts, file, { endpoint }));
  assert.deepEqual(said(null), { schema: 1, consumers: 'installed', host: null });
  assert.equal(said('vsock:2:14833').host, 'vsock:2:14833');
  const other = { ...file, present: { ...file.present, path: '/usr/share/man/man8/x.8' }, packaged: '@A@' };
  assert.equal(serviceText(facts, other), '@A@');
});
