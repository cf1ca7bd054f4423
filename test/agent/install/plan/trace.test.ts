// The files that a trace adds to a service, and the cases in which a trace is impossible.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { MachineFacts } from '../../../../agent/contracts/facts.js';
import { planTrace, type TracePlan } from '../../../../agent/install/plan/trace.js';
import { unitFacts } from '../../../../agent/systemd/unit-facts.js';
import { facts, tracerManifest as manifest, unit } from './support.js';

const tracer = '/opt/vgpu/current/libvgpu-trace.so';
const user = { name: 'ollama', uid: 990, gid: 991, groups: [] };

function planned(changes: Partial<MachineFacts> = {}): TracePlan {
  const plan = planTrace(facts({ manifest, unit: unit(), serviceUser: user, ...changes }));
  return typeof plan === 'string' ? assert.fail(plan) : plan;
}

function lines(plan: TracePlan): readonly string[] {
  return plan.dropIn.content.split('\n').filter((line) => !line.startsWith('#') && line !== '');
}

test('the tracer comes before all that the unit preloads, and the drop-in after all others', () => {
  const preload = '/opt/vgpu/current/libcuda.so.1:/usr/lib/lib"odd%.so';
  const plan = planned({ unit: unit({ environment: { LD_PRELOAD: preload, A: 'b' } }) });
  assert.equal(plan.dropIn.path, '/run/systemd/system/ollama.service.d/zzzz-vgpu-trace.conf');
  assert.deepEqual(lines(plan), [
    '[Service]',
    `Environment="LD_PRELOAD=${tracer}:/opt/vgpu/current/libcuda.so.1:/usr/lib/lib\\"odd%%.so"`,
    'Environment="VGPU_TRACE=/run/vgpu-agent/trace/events"',
    'Environment="VGPU_TRACE_LIMIT=16777216"',
    'ReadWritePaths=-/run/vgpu-agent/trace',
  ]);
  assert.ok(
    lines(planned({ unit: unit({ environment: {} }) })).includes(`Environment="LD_PRELOAD=${tracer}"`),
  );
});

test('the user of the service alone may write, unless he is root or is made at the start', () => {
  assert.deepEqual(planned().writer, { uid: 990, gid: 991 });
  assert.equal(planned({ unit: unit({ dynamicUser: true }) }).writer, null);
  assert.equal(planned({ serviceUser: { ...user, uid: 0, gid: 0 } }).writer, null);
  assert.equal(planned({ serviceUser: null }).writer, null);
});

for (const [what, changes, why] of [
  ['without the unit', { unit: { kind: 'absent', name: 'ollama.service' } }, /ollama\.service is absent/],
  ['where nothing is installed', { manifest: null }, /nothing is installed: sudo vgpu-agent install/],
  ['with a version that has no tracer', { manifest: { ...manifest, items: [] } }, /has no libvgpu-trace\.so/],
  [
    'of a unit that is stopped',
    { unit: unit({ activeState: 'inactive' }) },
    /systemctl start ollama\.service/,
  ],
  ['of files that were not read', { unit: unit({ needDaemonReload: true }) }, /systemctl daemon-reload$/],
  [
    'on another architecture',
    { distribution: { ...facts().distribution, architecture: 'aarch64' } },
    /made for x86_64, and this machine is aarch64/,
  ],
  [
    'of a unit with a file system of its own',
    { unit: unit({ sandbox: { ...unit().sandbox, rootDirectory: '/srv' } }) },
    /RootDirectory=\/srv/,
  ],
] as const) {
  test(`no trace ${what}, and why`, () => {
    const plan = planTrace(facts({ manifest, unit: unit(), serviceUser: user, ...changes }));
    assert.match(typeof plan === 'string' ? plan : 'possible', why);
  });
}

test('a unit is seen as it is without its trace, and that it is traced', () => {
  const sources = {
    name: 'ollama.service',
    unit: { LoadState: 'loaded', Id: 'ollama.service' },
    fragment: '',
    dropIns: [
      { path: '/etc/systemd/system/ollama.service.d/50-vgpu.conf', content: '' },
      { path: planned().dropIn.path, content: '' },
    ],
  };
  const seen = (preload: string) =>
    unitFacts({
      ...sources,
      service: { Environment: [`LD_PRELOAD=${preload}`, 'VGPU_TRACE=/x', 'VGPU_TRACE_LIMIT=1', 'A=b'] },
    });
  const facts = seen(`${tracer}:/a:/b`);
  assert.ok(facts.kind === 'loaded');
  assert.equal(facts.traced, true);
  assert.deepEqual(facts.environment, { LD_PRELOAD: '/a:/b', A: 'b' });
  assert.deepEqual(
    facts.dropIns.map(({ path }) => path),
    ['/etc/systemd/system/ollama.service.d/50-vgpu.conf'],
  );
  const alone = seen(tracer);
  assert.deepEqual(alone.kind === 'loaded' && alone.environment, { A: 'b' });
  const plain = unitFacts({ ...sources, dropIns: [], service: { Environment: ['VGPU_TRACE=/x'] } });
  assert.deepEqual(plain.kind === 'loaded' && [plain.traced, plain.environment], [
    undefined,
    { VGPU_TRACE: '/x' },
  ]);
});
