import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Change, Plan } from '../../../../agent/contracts/plan.js';
import { planServing, planServingAway } from '../../../../agent/install/plan/serving.js';
import { hostConf, hostDefaults, hostd } from '../../../../agent/lib/paths.js';
import { absent, program, request, service, serving, socket, text } from './serving-host.js';

/** The plan of host install: it overwrites no file of others and ends no session without being told to. */

const words = (plan: Plan): readonly string[] =>
  plan.kind === 'refused'
    ? plan.refusals.map(({ code }) => `refused: ${code}`)
    : plan.changes.map((change: Change) =>
        change.kind === 'service'
          ? `${change.action} ${change.unit}`
          : 'path' in change
            ? `${change.kind} ${change.path}`
            : change.kind,
      );
const warned = (plan: Plan): readonly string[] => plan.warnings.map(({ code }) => code);

const same = program('b'.repeat(64));
const older = program('a'.repeat(64));
const moved = text(socket, 'new', { content: 'old' });

test('a host that is as it should be has nothing to do', () => {
  assert.deepEqual(words(planServing(serving(2, [same, text(socket, 'x')]), request)), []);
});

test('names in the manifest the vgpu-hostd that it installs', () => {
  const plan = planServing(serving(0, [older]), request);
  assert.equal(plan.kind === 'ready' ? plan.storeId : null, 'b'.repeat(16));
});

test('a new program takes over, whichever consumer it serves; so does one that was put there and never took over', () => {
  const handOver = 'hand-over vgpu-hostd.service';
  assert.deepEqual(words(planServing(serving(2, [older]), request)), [`copy-file ${hostd}`, handOver]);
  assert.deepEqual(words(planServing({ ...serving(2, [same]), outdated: true }, request)), [handOver]);
});

test('new addresses wait while guests are served, and apply at once without guests or with --end-sessions', () => {
  const waits = planServing(serving(2, [moved]), request);
  assert.deepEqual(words(waits), [`write-file ${socket}`, 'daemon-reload']);
  assert.deepEqual(warned(waits), ['restart-due']);
  const now = [
    `write-file ${socket}`,
    'daemon-reload',
    'stop vgpu-hostd.service',
    'restart vgpu-hostd.socket',
    'start vgpu-hostd.service',
  ];
  assert.deepEqual(words(planServing(serving(0, [moved]), request)), now);
  assert.deepEqual(words(planServing(serving(2, [moved]), { ...request, endSessions: true })), now);
});

test('a file that users may edit is not changed, unless the command line gives a value for it', () => {
  const edited = text(hostDefaults, 'ours', { content: 'theirs', keep: true });
  assert.deepEqual(words(planServing(serving(0, [edited]), request)), []);
  assert.deepEqual(words(planServing(serving(0, [{ ...edited, keep: false }]), request)), [
    `write-file ${hostDefaults}`,
    'restart vgpu-hostd.service',
  ]);
});

test('rules that a user wrote are never replaced by "allow any"; limits that vgpu-agent wrote are, without a restart', () => {
  const conf = text(hostConf, 'limits memory=1G\nallow any\n', {
    content: 'deny any\n',
  });
  assert.deepEqual(words(planServing(serving(0, [conf]), request)), ['refused: own-rules']);
  const facts = serving(0, [conf]);
  const item = { kind: 'file', path: hostConf, sha256: 'same', mode: 0o644, before: absent } as const;
  const items = [{ ...item, backup: null }];
  const manifest = { schema: 2, agent: '0', storeId: 'x', endpoint: 'x', consumers: [], items } as const;
  assert.deepEqual(words(planServing({ ...facts, manifest }, request)), [
    `write-file ${hostConf}`,
    'reload vgpu-hostd.service',
  ]);
});

test('a file of a package is not overwritten', () => {
  const owned = { ...older, ownerPackage: 'vgpu-hostd' };
  assert.deepEqual(words(planServing(serving(0, [owned]), request)), ['refused: package-owned']);
});

test('an uninstall that was cut short before it stopped the units stops them when it is called again', () => {
  const gone = [service, socket].map((file) => ({ ...text(file, 'x'), state: absent, content: null }));
  const left = serving(0, gone);
  assert.deepEqual(words(planServingAway(left, request)), [
    'stop vgpu-hostd.socket',
    'stop vgpu-hostd.service',
    'daemon-reload vgpu-hostd.service',
  ]);
  assert.deepEqual(words(planServingAway(serving(0, [same]), request)), [], 'somebody else set that up');
  const unit = { ...left.service, fragment: '/usr/lib/systemd/system/vgpu-hostd.service' };
  const packaged = {
    ...left,
    service: unit,
    socket: { ...unit, fragment: unit.fragment.replace('service', 'socket') },
  };
  assert.deepEqual(words(planServingAway(packaged, request)), [], 'the units of the package');
});
