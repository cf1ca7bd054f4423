// The changes of install: on a bare machine, on one as install left it, and on one that has changed since.
import type { MachineFacts, ProcessFacts } from '../../../../agent/contracts/facts.js';
import type { PlanOptions } from '../../../../agent/contracts/plan.js';
import type { LoadedUnit } from '../../../../agent/contracts/unit.js';
import { planInstall } from '../../../../agent/install/plan/install.js';
import { expected } from '../../expected.js';
import { openSandbox, processFacts } from '../../verdict/support.js';
import { profile } from '../apply/world.js';
import { planAsText } from './plan-text.js';
import { fileWith, settled } from './settled.js';
import {
  absent,
  candidate,
  candidates,
  facts,
  linkTo,
  multiarch,
  options,
  owner,
  regular,
  unit,
} from './support.js';

const file = expected('plan-install');
const says = (title: string, machine: MachineFacts, wanted: Partial<PlanOptions> = {}) =>
  file.text(title, () => planAsText(planInstall(profile, machine, { ...options, ...wanted })));

const now = settled();
const { manifest, dropIn, guestConf, loaderConf, store } = now;
const unitWith = (changes: Partial<LoadedUnit>): LoadedUnit => ({
  ...(now.unit.kind === 'loaded' ? now.unit : unit()),
  ...changes,
});
const environment = unitWith({}).environment;
const text = dropIn.content ?? '';
if (manifest === null) throw new Error('settled() leaves a manifest');
const changed = (changes: Partial<MachineFacts>): MachineFacts => ({ ...now, ...changes });

says('a bare machine', facts());
says('nothing was changed since', now);
says('nothing was changed since, and no restart is wanted', now, { restart: false });
says('the host is found, where none is named', changed({ host: { ...now.host, endpoint: 'unix:/run/x' } }), {
  endpoint: null,
});

// the store
const version = (id: string, intact = true) => ({ id, intact });
says(
  'the version in use is another',
  changed({ store: { ...store, current: linkTo('versions/ffffffffffffffff') } }),
);
says('the link to the version in use is gone', changed({ store: { ...store, current: absent } }));
says(
  'files of the version were changed',
  changed({ store: { ...store, versions: [version('0123456789abcdef', false)] } }),
);
const formerItems = [
  ...manifest.items,
  { kind: 'directory', path: '/opt/vgpu/versions/aaaaaaaaaaaaaaaa', mode: 0o755 } as const,
  { kind: 'directory', path: '/opt/vgpu/versions/bbbbbbbbbbbbbbbbb', mode: 0o755 } as const,
];
const formerStore = {
  ...store,
  versions: [version('aaaaaaaaaaaaaaaa'), version('bbbbbbbbbbbbbbbb'), version('0123456789abcdef')],
};
says('a former version is given back together with other work', {
  ...changed({ store: formerStore, manifest: { ...manifest, items: formerItems } }),
  guestConf: { ...guestConf, state: absent, content: null },
});
says(
  'a former version alone is no reason for work',
  changed({ store: formerStore, manifest: { ...manifest, items: formerItems } }),
);
says(
  'the version is there, and the manifest does not list it',
  changed({
    manifest: {
      ...manifest,
      items: manifest.items.filter((item) => !('path' in item) || !item.path.startsWith('/opt/vgpu')),
    },
  }),
);

// a manifest that was lost
says('the manifest was lost', changed({ manifest: null }));
says(
  'the manifest was lost, and no store is in use',
  changed({ manifest: null, store: { ...store, current: absent } }),
);
says(
  'the manifest was lost, and the store is empty',
  changed({ manifest: null, store: { ...store, versions: [] } }),
);
says(
  'the manifest was lost, and files were changed',
  changed({
    manifest: null,
    guestConf: fileWith(guestConf, 'host=unix:/x\n'),
    dropIn: fileWith(dropIn, text.replace('profile', 'Profile')),
  }),
);

// our files
says(
  'guest.conf names another host',
  changed({ guestConf: fileWith(guestConf, '# mine\nhost=unix:/a\nhost = unix:/b\nother=1\n') }),
);
says(
  'guest.conf names none, and does not end in a newline',
  changed({ guestConf: fileWith(guestConf, '# mine') }),
);
says('guest.conf is empty', changed({ guestConf: fileWith(guestConf, '') }));
says(
  'guest.conf cannot be read by every user',
  changed({ guestConf: fileWith(guestConf, guestConf.content ?? '', 0o640) }),
);
says(
  'guest.conf names the host in other words',
  changed({ guestConf: fileWith(guestConf, ' host = vsock:2:14833 \n') }),
);
says('the loader file is gone', changed({ loaderConf: { ...loaderConf, state: absent, content: null } }));
says(
  'the loader file cannot be read by every user',
  changed({ loaderConf: fileWith(loaderConf, loaderConf.content ?? '', 0o600) }),
);
says(
  "the loader's cache lacks a library",
  changed({ loader: { ...now.loader, cache: now.loader.cache.slice(0, 1) } }),
);
says('the drop-in was changed', changed({ dropIn: fileWith(dropIn, '[Service]\n') }));
says('the drop-in cannot be read by every user', changed({ dropIn: fileWith(dropIn, text, 0o600) }));
says('systemd has not read the drop-in', changed({ unit: unitWith({ environment: {} }) }));
says(
  'systemd has another value of one variable',
  changed({ unit: unitWith({ environment: { ...environment, LD_PRELOAD: '/x.so' } }) }),
);

// what the unit has set itself
const fragment = (lines: string) => `[Service]\nExecStart=/usr/local/bin/ollama serve\n${lines}\n`;
const own = (lines: string, changes: Partial<LoadedUnit> = {}) =>
  changed({ unit: unitWith({ fragmentContent: fragment(lines), ...changes }) });
says(
  'what the unit has set is kept behind ours',
  own(
    'Environment="LD_LIBRARY_PATH=/a::/opt/vgpu/current:/a:/opt/vgpu" "LD_PRELOAD=/b.so /c.so:%h/d.so:$X/e.so:f.so"',
  ),
);
const { fragmentContent: _, ...unread } = unitWith({
  environment: { ...environment, LD_PRELOAD: '/a%b.so:/opt/vgpu/x.so:/opt/vgpu-b/y.so' },
});
says('a fragment that could not be read', changed({ unit: unread }));
says(
  'the log goes to a file',
  own('', { standardOutput: 'append:/var/log/o.log', standardError: 'inherit' }),
);
const after = {
  path: '/etc/systemd/system/ollama.service.d/60-other.conf',
  content: '[Service]\nEnvironment=LD_PRELOAD=/x.so\n',
};
const clears = {
  path: '/etc/systemd/system/ollama.service.d/70-clear.conf',
  content: '[Service]\nEnvironment=\n',
};
const before = { path: '/etc/systemd/system/ollama.service.d/40-first.conf', content: after.content };
const latest = { path: '/etc/systemd/system/ollama.service.d/zzzz.conf', content: after.content };
says('another drop-in comes after ours', own('', { dropIns: [before, after] }));
says('another drop-in clears all variables', own('', { dropIns: [after, clears] }));
says('a drop-in comes after the last installed one', own('', { dropIns: [latest] }));
const last = '/etc/systemd/system/ollama.service.d/zzz-vgpu.conf';
const lastOwned = {
  ...manifest,
  items: [
    ...manifest.items,
    {
      kind: 'file',
      path: last,
      sha256: '',
      mode: 0o644,
      before: regular('was'),
      backup: 'b',
    } as const,
  ],
};
says('the last drop-in is not needed any more', changed({ manifest: lastOwned }));
says(
  'the last drop-in is there, and is another',
  changed({
    manifest: lastOwned,
    unit: unitWith({ dropIns: [after, { path: last, content: '[Service]\n' }] }),
  }),
);

// the running consumer
const running = (changes: Partial<ProcessFacts>) =>
  changed({ unit: unitWith({ mainPid: 100 }), processes: [processFacts(changes)] });
const mapped = (path: string, deleted = false) => ({
  libraries: [{ path, deleted, vendor: 'vgpu' as const }],
});
says('it was started before', running({ loaderEnvironment: {} }));
says(
  'it was started before one of the two was set',
  running({ loaderEnvironment: { LD_LIBRARY_PATH: '/opt/vgpu/current' } }),
);
says('its environment may not be read', running({ loaderEnvironment: {}, unreadable: ['environ'] }));
says('only its maps may not be read', running({ loaderEnvironment: {}, unreadable: ['maps'] }));
says('a child of it was started before', running({ pid: 101, loaderEnvironment: {} }));
says('it uses a former version', running(mapped('/opt/vgpu/versions/ffffffffffffffff/libcuda.so.1')));
says(
  'it uses one that was removed',
  running(mapped('/opt/vgpu/versions/0123456789abcdef/libcuda.so.1', true)),
);
says('it uses a library from elsewhere', running(mapped('/usr/lib/libcuda.so.1', true)));
says('it does not run', changed({ unit: unitWith({ activeState: 'inactive' }) }));
says('it has failed', changed({ unit: unitWith({ activeState: 'failed', result: 'exit-code' }) }));

// several consumers
const other = { profile: 'llama-server', unit: 'llama-server.service', links: [] };
says('another consumer is there', changed({ manifest: { ...manifest, consumers: [other] } }));
says(
  'this one is noted with another profile',
  changed({ manifest: { ...manifest, consumers: [{ ...other, unit: 'ollama.service' }, other] } }),
);
says(
  'the host moves for all',
  changed({ manifest: { ...manifest, consumers: [...manifest.consumers, other] } }),
  { endpoint: 'unix:/y' },
);
says('the host moves for this one', now, { endpoint: 'unix:/y' });
says('an earlier run was interrupted', changed({ interrupted: true }));
says(
  'an earlier run was interrupted, and nothing may be done',
  changed({ interrupted: true, unit: { kind: 'absent', name: 'ollama.service' } }),
);

// warnings
says(
  'the host does not answer',
  changed({ host: { ...now.host, answer: { kind: 'unreachable', message: 'refused', word: null } } }),
);
says(
  'another host does not answer',
  changed({
    host: {
      ...now.host,
      endpoint: 'unix:/z',
      answer: { kind: 'unreachable', message: 'refused', word: null },
    },
  }),
);
const shim = (version: string) => changed({ shim: { ...now.shim, version } });
says('an older version takes the place of a newer', shim('0.0.9'));
says('a newer version takes the place of an older', shim('0.2.0'));
says('versions that cannot be compared', shim('of today'));
says(
  'a manifest with a version that cannot be compared',
  changed({ manifest: { ...manifest, agent: 'of today' } }),
);
says(
  'both outputs go elsewhere',
  changed({ unit: unitWith({ standardOutput: 'file:/x', standardError: 'null' }) }),
);
says(
  'outputs that the journal gets',
  changed({ unit: unitWith({ standardOutput: 'journal+console', standardError: 'kmsg' }) }),
);
says(
  'outputs that the journal gets too',
  changed({ unit: unitWith({ standardOutput: 'syslog', standardError: '' }) }),
);
says(
  'a sandbox',
  changed({
    unit: unitWith({ sandbox: { ...openSandbox, rootDirectory: '/srv/jail', privateNetwork: true } }),
  }),
  { endpoint: 'unix:/run/x' },
);
says('its user does not exist', changed({ serviceUser: null }));
says('neither does its group', changed({ serviceUser: null, unit: unitWith({ group: '' }) }));
says(
  'variables are taken away',
  own('UnsetEnvironment=LD_PRELOAD', {
    environmentFileContents: [{ path: '/etc/default/ollama', content: 'LD_LIBRARY_PATH=/x\n' }],
  }),
);
const hides = (variables: Record<string, string>, content = '') =>
  changed({
    unit: unitWith({
      environment: { ...environment, ...variables },
      environmentFileContents: [{ path: '/etc/e', content }],
    }),
  });
says('devices are hidden', hides({ CUDA_VISIBLE_DEVICES: '' }));
says('the first device is shown', hides({ CUDA_VISIBLE_DEVICES: '0,1', OLLAMA_LLM_LIBRARY: 'cuda_v13' }));
says('the eleventh device alone is shown', hides({ CUDA_VISIBLE_DEVICES: '01' }));
says(
  'the first and only device is shown, no library is chosen',
  hides({ CUDA_VISIBLE_DEVICES: '0', OLLAMA_LLM_LIBRARY: '' }),
);
says(
  'devices are hidden by a file, and a library is forced',
  hides({ CUDA_VISIBLE_DEVICES: '0' }, 'CUDA_VISIBLE_DEVICES=1\nOLLAMA_LLM_LIBRARY=cpu\n'),
);
const theirs = candidate('/srv/cuda/libcuda.so.1', { state: regular(), vendor: 'nvidia' });
const loaderWith = (from: string, one = theirs) =>
  changed({
    candidates: [...now.candidates, one],
    loader: { ...now.loader, directories: [{ path: '/srv/cuda', from }] },
  });
says('the loader prefers another', loaderWith('/etc/ld.so.conf.d/000-cuda.conf'));
says('the loader comes to another later', loaderWith('/etc/ld.so.conf.d/cuda.conf'));
says('the loader is told elsewhere', loaderWith('/etc/000.conf'));
says(
  'the loader prefers an installed one',
  loaderWith('/etc/ld.so.conf.d/000-cuda.conf', { ...theirs, vendor: 'vgpu' }),
);
says(
  'the loader prefers a directory with nothing in it',
  loaderWith('/etc/ld.so.conf.d/000-cuda.conf', { ...theirs, state: absent }),
);
const gpu = (works: boolean) => changed({ realGpu: { kind: 'present', works, evidence: '/dev/nvidia0' } });
says('a real GPU works, and force is used', gpu(true), { force: true });
says('a real GPU does not work', gpu(false));

// refusals
says('a real GPU works', gpu(true));
const machineOf = (architecture: string, multiarchName: string | null) =>
  changed({ distribution: { ...now.distribution, architecture, multiarch: multiarchName } });
says('another architecture', machineOf('aarch64', 'aarch64-linux-gnu'));
says('a 32-bit system on a 64-bit kernel', machineOf('x86_64', 'i386-linux-gnu'));
says('a system without multiarch', machineOf('x86_64', null));
says('no unit', changed({ unit: { kind: 'absent', name: 'ollama.service' } }));
says(
  'a masked unit',
  changed({ unit: { kind: 'masked', name: 'ollama.service', path: '/etc/systemd/system/ollama.service' } }),
);
says(
  'a unit that an unknown file masks',
  changed({ unit: { kind: 'masked', name: 'ollama.service', path: '' } }),
);
says(
  'a unit that cannot be loaded',
  changed({
    unit: { kind: 'bad', name: 'ollama.service', loadState: 'bad-setting', message: 'No such section' },
  }),
);
says('an address that is none', now, { endpoint: 'host "a"' });
says('the store is a link', changed({ store: { ...store, root: linkTo('/srv/x') } }));
says('the store is a file', changed({ store: { ...store, root: regular() } }));
const foreign = linkTo('versions/../../0123456789abcdef');
says('the version in use leads elsewhere, and is ours', changed({ store: { ...store, current: foreign } }));
says(
  'the version in use leads elsewhere',
  changed({ store: { ...store, current: foreign }, manifest: null }),
);
says(
  'the link current leads to a version, and the manifest does not list it',
  changed({ store: { ...store, current: linkTo('versions/aaaaaaaaaaaaaaaa') }, manifest: null }),
);
says(
  'the version in use is a directory',
  changed({ store: { ...store, current: { kind: 'directory', empty: true, mode: 0o755, ...owner } } }),
);
says(
  'installed files are in the way',
  changed({
    guestConf: { ...guestConf, state: linkTo('/dev/null'), content: null },
    loaderConf: {
      ...loaderConf,
      state: { kind: 'directory', empty: true, mode: 0o755, ...owner },
      content: null,
    },
    dropIn: { ...dropIn, state: { kind: 'other', type: 'fifo', ...owner }, content: null },
  }),
);
says(
  'an installed file is a link to another file',
  changed({ guestConf: { ...guestConf, state: linkTo('/srv/guest.conf') } }),
);

// public links
const cuda = `${multiarch}/libcuda.so.1`;
const at = (path: string, changes: Parameters<typeof candidate>[1]) =>
  changed({
    candidates: candidates([
      ...now.candidates.filter((one) => one.path !== path && one.state.kind !== 'absent'),
      candidate(path, changes),
    ]),
  });
const leads = (kind: 'loop' | 'directory' | 'absent', target = '/x') =>
  at(cuda, {
    state: linkTo(target),
    resolution:
      kind === 'directory'
        ? { kind, realPath: target, steps: [] }
        : kind === 'loop'
          ? { kind, steps: [] }
          : { kind },
  });
says("a package's file is there", at(cuda, { state: regular(), ownerOfPath: 'odd-cuda' }));
says(
  "a package's link is there",
  at(cuda, {
    state: linkTo('/x'),
    ownerOfPath: 'odd-cuda',
    resolution: { kind: 'dangling', missing: '/x', steps: [] },
  }),
);
says('a link leads in a circle', leads('loop'));
says('a link leads to a directory', leads('directory'));
says('a link has an unknown target', leads('absent'));
const toFile = (realPath: string, vendor: 'nvidia' | 'foreign' | 'vgpu') =>
  at(cuda, {
    state: linkTo(realPath),
    vendor,
    resolution: { kind: 'file', realPath, steps: [{ path: cuda, target: realPath }] },
  });
says("a link leads to NVIDIA's library", toFile('/usr/lib/nvidia/libcuda.so.550', 'nvidia'));
says('a link leads to a foreign library', toFile('/opt/vgpu-b/libcuda.so.1', 'foreign'));
says('a link leads past the version in use', toFile('/opt/vgpu/versions/x/libcuda.so.1', 'vgpu'));
says('a link was removed', at(cuda, {}));
says('a file of no package is there', at(cuda, { state: regular(), vendor: 'foreign' }));
says(
  'a directory with something in it is there',
  at(cuda, { state: { kind: 'directory', empty: false, mode: 0o755, ...owner } }),
);
says('a socket is there', at(cuda, { state: { kind: 'other', type: 'socket', ...owner } }));
says(
  'a sibling leads to itself',
  at(`${multiarch}/libcuda.so`, {
    state: linkTo('libcuda.so'),
    resolution: { kind: 'dangling', missing: 'x', steps: [] },
  }),
);
says(
  'a sibling leads to the one beside it',
  at(`${multiarch}/libcuda.so`, {
    state: linkTo('./libcuda.so.1'),
    resolution: { kind: 'file', realPath: '/opt/vgpu/current/libcuda.so.1', steps: [] },
  }),
);
says(
  'a sibling leads to the wrong one',
  at(`${multiarch}/libcuda.so`, {
    state: linkTo('libnvidia-ml.so.1'),
    resolution: { kind: 'file', realPath: '/opt/vgpu/current/libnvidia-ml.so.1', steps: [] },
  }),
);
const versioned = `${multiarch}/libcuda.so.550.54.14`;
const highest = `${multiarch}/libcuda.so.99999.0`;
const ldconfigs = (...given: readonly ReturnType<typeof candidate>[]) =>
  changed({
    candidates: candidates([
      ...now.candidates.filter((one) => one.path !== cuda && one.state.kind !== 'absent'),
      candidate(versioned, { state: regular(), vendor: 'nvidia' }),
      ...given,
    ]),
  });
says('ldconfig will set a link', ldconfigs());
says(
  'ldconfig would set a link where a file is',
  ldconfigs(candidate(cuda, { state: regular(), vendor: 'nvidia' })),
);
says(
  'ldconfig has set it to ours',
  ldconfigs(
    candidate(cuda, {
      state: linkTo('libcuda.so.99999.0'),
      resolution: {
        kind: 'file',
        realPath: 'x',
        steps: [
          { path: cuda, target: 'libcuda.so.99999.0' },
          { path: highest, target: '/opt/vgpu/current/libcuda.so.1' },
        ],
      },
    }),
  ),
);
says(
  'ours is the highest, and leads elsewhere',
  ldconfigs(
    candidate(cuda, {
      state: linkTo('libcuda.so.99999.0'),
      resolution: { kind: 'dangling', missing: '/y', steps: [{ path: cuda, target: 'libcuda.so.99999.0' }] },
    }),
    candidate(highest, { state: linkTo('/y'), resolution: { kind: 'dangling', missing: '/y', steps: [] } }),
  ),
);

file.nothingElse();
