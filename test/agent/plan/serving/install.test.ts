/** What host install plans: nothing that others wrote is overwritten, and no session ends unasked. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { HostDaemon } from '../../../../agent/contracts/host-daemon.js';
import type { PathState } from '../../../../agent/contracts/path-state.js';
import type { Change, Plan } from '../../../../agent/contracts/plan.js';
import type { ServingFacts, ServingFile, ServingRequest } from '../../../../agent/contracts/serving.js';
import { hostConf, hostDefaults, hostd } from '../../../../agent/paths.js';
import { planServingAway } from '../../../../agent/plan/serving/away.js';
import { planServing } from '../../../../agent/plan/serving/install.js';

const absent: PathState = { kind: 'absent' };
const owner = { uid: 0, gid: 0, mtimeNs: '1' };
const stood = (sha256: string, mode = 0o644): PathState => ({
  kind: 'file',
  size: 1,
  sha256,
  mode,
  ...owner,
});
const request: ServingRequest = {
  device: null,
  listen: null,
  limits: { memory: null, sessions: null },
  endSessions: false,
  force: false,
};

function text(path: string, content: string, more: Partial<ServingFile> = {}): ServingFile {
  const same = { path, mode: 0o644, state: stood('same'), content, ownerPackage: null };
  return { ...same, wanted: { kind: 'text', content }, editable: false, asked: false, ...more };
}

function program(sha256: string): ServingFile {
  const wanted = { kind: 'copy', source: '/p/vgpu-hostd', sha256: 'b'.repeat(64), size: 9 } as const;
  return { ...text(hostd, ''), mode: 0o755, state: stood(sha256, 0o755), content: null, wanted };
}

const socket = '/etc/systemd/system/vgpu-hostd.socket';
const unit = { activeState: 'active', needDaemonReload: false, unitFileState: 'enabled' };

/** A host as installed, which serves `sessions` guests. */
function serving(sessions: number, files: readonly ServingFile[]): ServingFacts {
  const session = { session: 1, peer: { kind: 'unix', id: 0 }, age: 1, memory: 0, launches: 0 };
  const claimed = { pid: 1, program: 'ollama' };
  const daemon: HostDaemon = {
    schema: 1,
    version: '0.1.0',
    wire: '1.0',
    device: 'software',
    simulated: true,
    draining: false,
    devices: [],
    totals: { begun: 0, ended: 0, turnedAway: 0, most: 128 },
    sessions: Array.from({ length: sessions }, () => ({ ...session, claimed })),
  };
  return {
    device: 'software',
    listen: ['unix:/run/vgpu/hostd.sock'],
    files,
    links: [],
    socket: unit,
    service: unit,
    outdated: false,
    daemon,
    problems: [],
    manifest: null,
    interrupted: false,
  };
}

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

test('a new program takes over, whoever is served; so does one that was put there and never took over', () => {
  const handOver = 'hand-over vgpu-hostd.service';
  assert.deepEqual(words(planServing(serving(2, [older]), request)), [`copy-file ${hostd}`, handOver]);
  assert.deepEqual(words(planServing({ ...serving(2, [same]), outdated: true }, request)), [handOver]);
});

test('new addresses wait while guests are served, and are in force at once with nobody or with --end-sessions', () => {
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

test('what a person may edit is left as it is, unless the command line says what has to stand in it', () => {
  const edited = text(hostDefaults, 'ours', { content: 'theirs', editable: true });
  assert.deepEqual(words(planServing(serving(0, [edited]), request)), []);
  assert.deepEqual(words(planServing(serving(0, [{ ...edited, asked: true }]), request)), [
    `write-file ${hostDefaults}`,
    'restart vgpu-hostd.service',
  ]);
});

test('rules of somebody else are never replaced by "allow any"; limits of our own are, without a restart', () => {
  const conf = text(hostConf, 'limits memory=1G\nallow any\n', {
    content: 'deny any\n',
    editable: true,
    asked: true,
  });
  assert.deepEqual(words(planServing(serving(0, [conf]), request)), ['refused: own-rules']);
  const facts = serving(0, [conf]);
  const item = { kind: 'file', path: hostConf, sha256: 'same', mode: 0o644, before: absent } as const;
  const items = [{ ...item, backup: null, ownerPackage: null }];
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

test('a driver that is not ready refuses, with --force it warns; what root would run and others can change refuses always', () => {
  const problem = { code: 'x', message: 'm', remedy: 'r', weight: 'device' } as const;
  const facts = { ...serving(0, [same]), problems: [problem] };
  assert.deepEqual(words(planServing(facts, request)), ['refused: x']);
  const forced = planServing(facts, { ...request, force: true });
  assert.deepEqual([words(forced), warned(forced)], [[], ['x']]);
  const certain = { ...facts, problems: [{ ...problem, weight: 'certain' as const }] };
  assert.deepEqual(words(planServing(certain, { ...request, force: true })), ['refused: x']);
});

test('an uninstall that was cut short before it stopped the units stops them when it is called again', () => {
  const gone = { ...text('/etc/systemd/system/vgpu-hostd.service', 'x'), state: absent, content: null };
  assert.deepEqual(words(planServingAway(serving(0, [gone]), request)), [
    'stop vgpu-hostd.socket',
    'stop vgpu-hostd.service',
    'daemon-reload vgpu-hostd.service',
  ]);
  assert.deepEqual(words(planServingAway(serving(0, [same]), request)), [], 'somebody else set that up');
});
