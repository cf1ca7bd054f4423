import type { Manifest, OwnedItem, PathState } from '../../../../agent/contracts/manifest.js';
import type { ServingFacts, ServingFile, ServingRequest } from '../../../../agent/contracts/serving.js';
import { planServing, planServingAway } from '../../../../agent/install/plan/serving.js';
import { hostConf, hostDefaults, hostd } from '../../../../agent/lib/paths.js';
import { expected } from '../../expected.js';
import { planAsText } from './plan-text.js';
import { absent, program, request, service, serving, socket, stood, text, unit } from './serving-host.js';

// The changes of host install and host uninstall, word for word: each file, each unit, each refusal.

const file = expected('plan-serving');
const says = (title: string, facts: ServingFacts, wanted: Partial<ServingRequest> = {}) =>
  file.text(title, () => planAsText(planServing(facts, { ...request, ...wanted })));
const away = (title: string, facts: ServingFacts, endSessions = false) =>
  file.text(title, () => planAsText(planServingAway(facts, { endSessions })));

const stopped = { ...unit, activeState: 'inactive' };
const missing = (one: ServingFile): ServingFile => ({ ...one, state: absent, content: null });
const link = '/etc/systemd/system/sockets.target.wants/vgpu-hostd.socket';
const page = '/usr/share/man/man8/vgpu-hostd.8';
const gpu = '/usr/share/vgpu/devices/h100.json';
const defaults = text(hostDefaults, 'DEVICE=software\n', { keep: true });
const conf = text(hostConf, 'allow any\n', { keep: true });
const same = program('b'.repeat(64));
const whole: readonly ServingFile[] = [
  same,
  defaults,
  conf,
  text(service, '[Service]'),
  text(socket, '[Socket]'),
  text(page, 'x'),
];
const owner = { uid: 0, gid: 0, mtimeNs: '1' };
const target = '../vgpu-hostd.socket';
const linked = (state: PathState): ServingFile => ({
  ...text(link, ''),
  ...{ state, content: null, wanted: { kind: 'link', target } },
});
const right = linked({ kind: 'link', target, ...owner });
const host = (sessions: number, files = whole, starts = right): ServingFacts =>
  serving(sessions, [...files, starts]);

// install: the files
says('a machine that serves nothing yet', {
  ...host(0, [...whole, text(gpu, '{}')].map(missing), linked(absent)),
  listen: ['unix:/run/vgpu/hostd.sock', 'vsock:4444'],
  service: { ...stopped, needDaemonReload: false },
  socket: stopped,
  daemon: null,
});
says('nothing was changed since', host(3));
says('an earlier run was interrupted', { ...host(0), interrupted: true });
says('the link leads elsewhere', host(0, whole, linked({ kind: 'link', target: '/dev/null', ...owner })));
says('the link is a file', host(0, whole, linked(stood('x'))));
says('the mode of a file is another', host(0, [{ ...text(page, 'x'), state: stood('same', 0o600) }]));
says('the mode of the program is another', host(0, [{ ...same, state: stood('b'.repeat(64), 0o644) }]));
const masked = { kind: 'link', target: '/dev/null', ...owner } as const;
says(
  'the unit and the program are masked',
  host(0, [
    { ...same, state: masked },
    { ...text(service, '[Service]'), state: masked, content: null },
  ]),
);
const directory = { kind: 'directory', empty: true, mode: 0o755, ...owner } as const;
says(
  'in the place of a file is a directory',
  host(0, [{ ...text(page, 'x'), state: directory, content: null }]),
);
says('a file that a person may edit is gone', host(0, [missing(defaults), missing(conf)]));

// install: systemd reads again
const stale = { ...unit, needDaemonReload: true };
says('systemd has not read the socket again', { ...host(0), socket: stale });
says('systemd has not read the service again', { ...host(0), service: stale });

// install: what is started
says('the service does not run, the socket does', { ...host(0), service: stopped });
says('neither runs', { ...host(0), service: stopped, socket: stopped });
says('other addresses, and the service does not run', {
  ...host(0, [text(socket, 'new', { content: 'old' })]),
  service: stopped,
});
says('other addresses, and neither runs', {
  ...host(0, [text(socket, 'new', { content: 'old' })]),
  service: stopped,
  socket: stopped,
});

// install: what a running host is told
const unitChanged = text(service, 'new', { content: 'old' });
const moved = text(socket, 'new', { content: 'old' });
const device = text(hostDefaults, 'new', { content: 'old' });
says('another unit, no guest is served', host(0, [unitChanged]));
says('another unit, one guest is served', host(1, [unitChanged]));
says('another unit, address and device, two guests are served', host(2, [unitChanged, moved, device]));
says('the same, and sessions may be ended', host(2, [unitChanged, moved, device]), { endSessions: true });
says('another device, two guests are served', host(2, [device]));
const silent = { ...host(0, [unitChanged, device]), daemon: null };
says('another unit and device, and the daemon does not answer', silent);
says('the same, and sessions of a silent daemon may be ended', silent, { endSessions: true });
says('another program and another device, a guest is served', host(1, [program('a'.repeat(64)), device]));
const ours: OwnedItem = {
  kind: 'file',
  path: hostConf,
  sha256: 'same',
  mode: 0o644,
  before: absent,
  backup: null,
};
const manifest: Manifest = {
  schema: 2,
  agent: '0',
  storeId: 'feed',
  endpoint: 'unix:/run/vgpu/hostd.sock',
  consumers: [],
  items: [ours],
};
const limits = text(hostConf, 'new', { content: 'old' });
says('other limits', { ...host(2, [limits]), manifest });
says('other limits and another program', { ...host(2, [limits, program('a'.repeat(64))]), manifest });

// install: refusals
says('rules that a person has written', host(0, [limits]));
says('rules that a person has edited since', {
  ...host(0, [{ ...limits, state: stood('edited') }]),
  manifest,
});
says('no rules yet', host(0, [missing(limits)]));
says(
  'a file of a package',
  host(0, [{ ...text(page, 'new', { content: 'old' }), ownerPackage: 'vgpu-hostd' }]),
);
says(
  'a file of a package that is as it should be',
  host(0, [{ ...text(page, 'x'), ownerPackage: 'vgpu-hostd' }]),
);
const problem = (code: string) => ({ code, message: `it is ${code}`, remedy: 'correct it' });
const warnings = [problem('warning')];
says('problems of the machine', { ...host(0), refusals: [problem('certain'), problem('device')], warnings });
says('a warning', { ...host(0), warnings });

// uninstall
const was = stood('before', 0o600);
const items: readonly OwnedItem[] = [
  { kind: 'directory', path: '/usr/share/vgpu', mode: 0o755 },
  { ...ours, path: hostd, sha256: 'b'.repeat(64), before: was },
  { ...ours, path: service },
  ours,
  { kind: 'link', path: link, target, before: absent, backup: null },
];
const installed = { ...host(0), manifest: { ...manifest, items } };
away('uninstall', installed);
away('uninstall while one guest is served', { ...installed, daemon: host(1).daemon });
away('uninstall while guests are served', { ...installed, daemon: host(2).daemon });
away('uninstall while the daemon does not answer', { ...installed, daemon: null });
away('uninstall while it does not answer, and sessions may be ended', { ...installed, daemon: null }, true);
away('uninstall that may end sessions', { ...installed, daemon: host(2).daemon }, true);
away('uninstall where nothing is installed', host(2));
away('uninstall after a run that was cut short', { ...installed, interrupted: true });
away('uninstall of files that were edited or are gone', {
  ...installed,
  files: installed.files.map((one) =>
    one.path === hostConf ? { ...one, state: stood('edited') } : one.path === service ? missing(one) : one,
  ),
});
away('uninstall of units that do not run', {
  ...installed,
  socket: { ...unit, activeState: 'failed' },
  service: stopped,
});
const gone = host(0, [missing(text(service, 'x')), missing(text(socket, 'x'))]);
away('again: only the socket runs still', { ...gone, service: stopped });
away('again: only the service runs still', { ...gone, socket: stopped });
away('again: nothing runs any more', { ...gone, service: stopped, socket: stopped });

file.nothingElse();
