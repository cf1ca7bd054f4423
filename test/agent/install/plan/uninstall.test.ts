import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { LibraryCandidate, MachineFacts, ServiceFacts } from '../../../../agent/contracts/facts.js';
import type { Manifest, OwnedItem } from '../../../../agent/contracts/manifest.js';
import type { Plan } from '../../../../agent/contracts/plan.js';
import { planUninstall } from '../../../../agent/install/plan/uninstall.js';
import { agentUnit, agentUnitFile, agentUnitLink } from '../../../../agent/lib/paths.js';
import { profile } from '../apply/world.js';
import {
  absent,
  candidate,
  candidates,
  changesOf,
  facts,
  linkTo,
  multiarch,
  owner,
  regular,
  unit,
  warningCodes,
} from './support.js';

const dropIn = '/etc/systemd/system/ollama.service.d/50-vgpu.conf';
const version = '/opt/vgpu/versions/0123456789abcdef';
const none = { before: absent, backup: null } as const;

const items: readonly OwnedItem[] = [
  { kind: 'directory', path: '/opt/vgpu', mode: 0o755 },
  { kind: 'directory', path: '/opt/vgpu/versions', mode: 0o755 },
  { kind: 'directory', path: version, mode: 0o755 },
  { kind: 'file', path: `${version}/libcuda.so.1`, sha256: '', mode: 0o644, ...none },
  { kind: 'link', path: '/opt/vgpu/current', target: 'versions/0123456789abcdef', ...none },
  { kind: 'directory', path: '/etc/vgpu', mode: 0o755 },
  { kind: 'file', path: '/etc/vgpu/guest.conf', sha256: 'ab'.repeat(32), mode: 0o644, ...none },
  { kind: 'file', path: '/etc/ld.so.conf.d/000-vgpu.conf', sha256: '', mode: 0o644, ...none },
  {
    kind: 'link',
    path: `${multiarch}/libcuda.so.1`,
    target: '/opt/vgpu/current/libcuda.so.1',
    before: linkTo('/nowhere'),
    backup: 'x',
  },
  {
    kind: 'alternative',
    group: 'nvidia',
    path: '/opt/vgpu/current',
    priority: 10_000,
    before: { status: 'auto', value: '/usr/lib/nvidia/current' },
  },
  { kind: 'directory', path: '/etc/systemd/system/ollama.service.d', mode: 0o755 },
  { kind: 'file', path: dropIn, sha256: '', mode: 0o644, ...none },
];

const manifest: Manifest = {
  schema: 2,
  agent: '0.1.0',
  consumers: [{ profile: 'ollama', unit: 'ollama.service', links: [] }],
  storeId: '0123456789abcdef',
  endpoint: 'vsock:2:14833',
  items,
};

function plan(changes: Partial<MachineFacts> = {}, restart = true): Plan {
  const store = {
    root: { kind: 'directory', empty: false, mode: 0o755, ...owner } as const,
    current: linkTo('versions/0123456789abcdef'),
    versions: [{ id: '0123456789abcdef', intact: true }],
  };
  return planUninstall(profile, facts({ manifest, store, ...changes }), { restart });
}

describe('the order of an uninstall', () => {
  it("removes the unit's settings first, then everything that refers to the store, then the store", () => {
    const steps = changesOf(plan()).map((change) =>
      'path' in change && change.kind !== 'remove-alternative' ? change.path : change.kind,
    );
    assert.deepEqual(steps, [
      dropIn,
      'daemon-reload',
      'remove-alternative',
      `${multiarch}/libcuda.so.1`,
      '/etc/ld.so.conf.d/000-vgpu.conf',
      'ldconfig',
      '/etc/vgpu/guest.conf',
      '/opt/vgpu/current',
      'remove-store',
      '/etc/systemd/system/ollama.service.d',
      '/etc/vgpu',
      '/opt/vgpu/versions',
      '/opt/vgpu',
      'restart',
    ]);
  });

  it('says of each path what comes back', () => {
    const change = changesOf(plan()).find(
      (one) => one.kind === 'remove-owned' && one.path.startsWith(multiarch),
    );
    assert.deepEqual(change?.kind === 'remove-owned' && change.restores, linkTo('/nowhere'));
    assert.match(String(change?.reason), /link to \/nowhere before/);
  });

  it('lets ldconfig set a link that would come back dangling, because the driver was upgraded', () => {
    const link: OwnedItem = {
      kind: 'link',
      path: `${multiarch}/libcuda.so.1`,
      target: 'libcuda.so.99999.0',
      before: linkTo('libcuda.so.550.54.14'),
      backup: 'x',
    };
    const beside = (version: string): LibraryCandidate =>
      candidate(`${multiarch}/libcuda.so.${version}`, { state: regular() });
    const sets = (...versions: readonly string[]): unknown =>
      changesOf(
        plan({
          manifest: { ...manifest, items: [...items, link] },
          candidates: candidates(versions.map(beside)),
        }),
      ).flatMap((change) => (change.kind === 'ldconfig' ? [change.links] : []));
    assert.deepEqual(sets('550.54.14', '99999.0'), [false]);
    assert.deepEqual(sets('560.35.03', '99999.0'), [true]);
    assert.deepEqual(sets('99999.0'), [false]);
  });
});

describe('the consumer after an uninstall', () => {
  const restarts = (plan: Plan): boolean => changesOf(plan).some((change) => change.kind === 'restart');

  it('is not started when it does not run, was removed, or was not requested', () => {
    assert.equal(restarts(plan()), true);
    assert.equal(restarts(plan({ unit: unit({ activeState: 'inactive' }) })), false);
    assert.equal(restarts(plan({ unit: unit({ activeState: 'failed' }) })), false);
    assert.equal(restarts(plan({ unit: { kind: 'absent', name: 'ollama.service' } })), false);
    assert.equal(restarts(plan({}, false)), false);
  });

  it('is restarted when a run before was killed between taking away and restarting', () => {
    const process = {
      pid: 7,
      parent: 1,
      name: 'ollama',
      startTicks: '1',
      executable: null,
      libraries: [{ path: `${version}/libcuda.so.1`, deleted: true, vendor: null }],
      loaderEnvironment: {},
    };
    const store = { root: absent, current: absent, versions: [] };
    const made = plan({ manifest: null, store, processes: [process] });
    assert.deepEqual(
      changesOf(made).map((change) => change.kind),
      ['restart'],
    );
  });

  it('is left alone when only the unit of our service changes: it was not installed for', () => {
    const others = ['a.service', 'b.service'].map((unit) => ({ profile: 'generic', unit, links: [] }));
    const state = regular();
    const present = { path: agentUnitFile, state, content: 'Before=former.service' };
    const service: ServiceFacts = {
      unit: agentUnit,
      files: [{ present, packaged: 'Before=@CONSUMER@', editable: false }],
      link: { path: agentUnitLink, target: agentUnitFile, state: absent },
      activeState: 'active',
      program: { node: '/usr/bin/node', watch: '/usr/bin/watch', package: '/usr/lib/vgpu-agent' },
      consumers: others.map(({ unit }) => ({ unit, libraryDirectories: [] })),
      changeable: null,
      confProblem: null,
    };
    const own: OwnedItem = { kind: 'file', path: agentUnitFile, sha256: '', mode: 0o644, ...none };
    const made = plan({
      manifest: { ...manifest, consumers: others, items: [...items.slice(0, -2), own] },
      service,
    });
    assert.deepEqual([changesOf(made), warningCodes(made)], [[], ['not-installed']]);
  });

  it('is freed of a drop-in that is gone but that systemd still has in force', () => {
    const store = { root: absent, current: absent, versions: [] };
    const environment = { LD_PRELOAD: '/opt/vgpu/current/libcuda.so.1' };
    const made = plan({ manifest: null, store, unit: unit({ environment }) });
    assert.deepEqual(
      changesOf(made).map((change) => change.kind),
      ['daemon-reload', 'restart'],
    );
  });
});

describe('an uninstall where nothing is installed', () => {
  it('has nothing to do', () => {
    const made = planUninstall(profile, facts(), { restart: true });
    assert.deepEqual([changesOf(made), made.warnings], [[], []]);
  });

  it('tells of traces that no manifest owns, and touches none of them', () => {
    const made = plan({ manifest: null });
    assert.deepEqual([changesOf(made), warningCodes(made)], [[], ['unowned-traces']]);
  });
});

describe('an edited file', () => {
  it('is announced before it is kept aside', () => {
    const state = { ...regular(), sha256: 'cd'.repeat(32) } as ReturnType<typeof regular>;
    const made = plan({ guestConf: { path: '/etc/vgpu/guest.conf', state, content: 'host=x' } });
    assert.deepEqual(warningCodes(made), ['edited-file']);
  });
});
