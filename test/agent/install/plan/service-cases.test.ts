// Plans about vgpu-agent.service and Debian's alternatives, and the files that an uninstall gives back.
import type { AlternativeGroup, MachineFacts, ServiceFacts } from '../../../../agent/contracts/facts.js';
import type { OwnedItem } from '../../../../agent/contracts/manifest.js';
import type { PlanOptions } from '../../../../agent/contracts/plan.js';
import { planInstall } from '../../../../agent/install/plan/install.js';
import { planUninstall } from '../../../../agent/install/plan/uninstall.js';
import {
  agentConf,
  agentUnitFile,
  agentUnitLink,
  cockpitPage,
  completions,
  manDirectory,
} from '../../../../agent/lib/paths.js';
import { expected } from '../../expected.js';
import { processFacts } from '../../verdict/support.js';
import { profile } from '../apply/world.js';
import { planAsText } from './plan-text.js';
import { fileWith, settled } from './settled.js';
import { absent, candidate, facts, linkTo, multiarch, options, regular, unit } from './support.js';

const file = expected('plan-service');
const says = (title: string, machine: MachineFacts, wanted: Partial<PlanOptions> = {}) =>
  file.text(title, () => planAsText(planInstall(profile, machine, { ...options, ...wanted })));

const paths = [
  agentConf,
  agentUnitFile,
  '/etc/dbus-1/system.d/org.vgpu.Agent1.conf',
  '/usr/lib/systemd/catalog/vgpu-agent.catalog',
  `${manDirectory}/man1/vgpu-agent.1`,
  completions[0]?.[0] ?? '',
  `${cockpitPage}/page.js`,
  '/usr/share/other',
];
const packagedAs = (path: string) => {
  if (path === agentConf) return '';
  return path === agentUnitFile ? 'Before=@CONSUMER@\nReadWritePaths=@LIBRARIES@\n' : `of ${path}\n`;
};
const service: ServiceFacts = {
  unit: 'vgpu-agent.service',
  files: paths.map((path) => ({
    present: { path, state: absent, content: null },
    packaged: packagedAs(path),
    editable: path === agentConf,
  })),
  link: { path: agentUnitLink, target: agentUnitFile, state: absent },
  activeState: 'inactive',
  program: { node: '/usr/bin/node', watch: '/w/vgpu-watch', package: '/usr/lib/vgpu-agent' },
  consumers: [
    { unit: 'ollama.service', libraryDirectories: [multiarch] },
    { unit: 'llama-server.service', libraryDirectories: [multiarch, '/usr/lib/more'] },
  ],
  changeable: null,
  confProblem: null,
};
const bare = settled();
const now = settled({ service }, { service: true });
const there = now.service ?? service;
const { manifest } = now;
if (manifest === null) throw new Error('settled() leaves a manifest');
const withService = (changes: Partial<ServiceFacts>): MachineFacts => ({
  ...now,
  service: { ...there, ...changes },
});
const withFile = (path: string, content: string | null) =>
  withService({
    files: there.files.map((one) =>
      one.present.path !== path
        ? one
        : {
            ...one,
            present: content === null ? { path, state: absent, content } : fileWith(one.present, content),
          },
    ),
  });

says('a service that is not wanted', { ...bare, service });
says('a service that is wanted for the first time', { ...bare, service }, { service: true });
says('a service that nothing has happened to', now);
says('a service that is no longer wanted', now, { service: false });
says(
  "a service that is no longer wanted, beside a user's file",
  {
    ...now,
    manifest: {
      ...manifest,
      items: [
        { kind: 'directory', path: '/etc/vgpu-agent', mode: 0o755 },
        { kind: 'directory', path: '/usr/share', mode: 0o755 },
        ...manifest.items,
        {
          kind: 'file',
          path: '/usr/share/more',
          sha256: '',
          mode: 0o644,
          before: absent,
          backup: null,
        },
      ],
    },
  },
  { service: false },
);
says('it does not run', withService({ activeState: 'failed' }));
says('it is being started', withService({ activeState: 'activating' }));
says('its unit file was changed', withFile(agentUnitFile, 'edited\n'));
says('another file of it was changed', withFile('/usr/share/other', 'edited\n'));
says('its unit is masked', {
  ...withService({
    files: there.files.map((one) =>
      one.present.path === agentUnitFile
        ? { ...one, present: { path: agentUnitFile, state: linkTo('/dev/null'), content: null } }
        : one,
    ),
  }),
});
says('its link at boot is gone', withService({ link: { ...there.link, state: absent } }));
says(
  'its link at boot leads elsewhere',
  withService({ link: { ...there.link, state: linkTo('/dev/null') } }),
);
says('what a person wrote into agent.json stays', withFile(agentConf, '{"host":"unix:/mine"}\n'));
says('agent.json is gone', withFile(agentConf, null));
says('the host moves', now, { endpoint: 'unix:/y' });
says('the host moves to where agent.json has it already', withFile(agentConf, '{"host":"unix:/y"}\n'), {
  endpoint: 'unix:/y',
});
says('the host moves, and agent.json has more', withFile(agentConf, '{"host":"unix:/x","repair":false}\n'), {
  endpoint: 'unix:/y',
});
for (const text of ['{', 'null', '7'])
  says(`the host moves, and agent.json is ${text}`, withFile(agentConf, text), { endpoint: 'unix:/y' });

// Debian's alternatives
const cuda = `${multiarch}/libcuda.so.1`;
const short = `${multiarch}/libcuda.so`;
const group: AlternativeGroup = {
  name: 'nvidia',
  link: '/usr/lib/nvidia/nvidia',
  status: 'auto',
  value: '/usr/lib/nvidia/current',
  slaves: [
    { name: 'nvidia--libcuda.so.1', link: cuda },
    { name: 'nvidia--libcuda.so', link: short },
    { name: 'nvidia--other', link: '/usr/lib/other' },
    { name: 'nvidia--lost', link: '/usr/lib/lost' },
  ],
  choices: [
    { path: '/usr/lib/nvidia/old', priority: 1, slaves: { 'nvidia--other': '/old/other' } },
    { path: '/usr/lib/nvidia/current', priority: 2, slaves: { 'nvidia--other': '/current/other' } },
  ],
};
const slaveOf = (path: string, name: string, target: string) =>
  candidate(path, {
    state: linkTo(`/etc/alternatives/${name}`),
    alternative: { group: 'nvidia', slave: name },
    resolution: {
      kind: 'file',
      realPath: target,
      steps: [
        { path, target: `/etc/alternatives/${name}` },
        { path: `/etc/alternatives/${name}`, target },
      ],
    },
  });
const grouped = (
  changes: Partial<AlternativeGroup>,
  slaves = [slaveOf(cuda, 'nvidia--libcuda.so.1', '/usr/lib/nvidia/current/libcuda.so.1')],
  items: readonly OwnedItem[] = [],
): MachineFacts => ({
  ...bare,
  alternatives: [
    { ...group, name: 'unrelated' },
    { ...group, ...changes },
  ],
  candidates: [...bare.candidates.filter(({ path }) => !slaves.some((one) => one.path === path)), ...slaves],
  manifest: bare.manifest === null ? null : { ...bare.manifest, items: [...bare.manifest.items, ...items] },
});
const mine = '/opt/vgpu/current';
const ourChoice = {
  path: mine,
  priority: 10_000,
  slaves: {
    'nvidia--libcuda.so.1': `${mine}/libcuda.so.1`,
    'nvidia--libcuda.so': `${mine}/libcuda.so.1`,
    'nvidia--other': '/current/other',
  },
};
const ourSlaves = [
  slaveOf(cuda, 'nvidia--libcuda.so.1', `${mine}/libcuda.so.1`),
  slaveOf(short, 'nvidia--libcuda.so', `${mine}/libcuda.so.1`),
];
const ownGroup: Extract<OwnedItem, { kind: 'alternative' }> = {
  kind: 'alternative',
  group: 'nvidia',
  path: mine,
  priority: 10_000,
  before: { status: 'auto', value: '/usr/lib/nvidia/current' },
};
const chosen = { value: mine, choices: [...group.choices, ourChoice] };
says('a group of alternatives sets a link', grouped({}));
says(
  'a group that an administrator set by hand',
  grouped({ status: 'manual', value: '/usr/lib/nvidia/old' }),
);
says('a group with no choice but an unknown one', grouped({ value: '/gone' }));
says(
  'a group of which we have the master',
  grouped({ name: 'nvidia', slaves: [] }, [slaveOf(cuda, 'nvidia', '/usr/lib/nvidia/current/libcuda.so.1')]),
);
says('our choice stands', grouped(chosen, ourSlaves, [ownGroup]));
says('our choice is set, and the manifest does not list it', grouped(chosen, ourSlaves));
says(
  'our choice stands, and another group is owned',
  grouped(chosen, ourSlaves, [{ ...ownGroup, group: 'glx' }]),
);
says('our choice is not in use', grouped({ ...chosen, value: '/usr/lib/nvidia/old' }, ourSlaves, [ownGroup]));
says(
  'our choice has another priority',
  grouped({ ...chosen, choices: [...group.choices, { ...ourChoice, priority: 5 }] }, ourSlaves, [ownGroup]),
);
says(
  'the group has a link more',
  grouped(
    {
      ...chosen,
      choices: [
        ...group.choices,
        { ...ourChoice, slaves: { 'nvidia--libcuda.so.1': `${mine}/libcuda.so.1` } },
      ],
    },
    ourSlaves,
    [ownGroup],
  ),
);
says(
  'the group has other links',
  grouped(
    {
      ...chosen,
      choices: [...group.choices, { ...ourChoice, slaves: { ...ourChoice.slaves, 'nvidia--other': '/x' } }],
    },
    ourSlaves,
    [ownGroup],
  ),
);
says(
  'a link of the group was changed by hand',
  grouped(chosen, [slaveOf(cuda, 'nvidia--libcuda.so.1', '/x'), ...ourSlaves.slice(1)], [ownGroup]),
);
says(
  'a link of the group is a file',
  grouped(
    chosen,
    [
      {
        ...slaveOf(cuda, 'nvidia--libcuda.so.1', ''),
        state: regular(),
        resolution: { kind: 'file', realPath: cuda, steps: [] },
      },
      ...ourSlaves.slice(1),
    ],
    [ownGroup],
  ),
);
says(
  'a link of the group is gone',
  grouped(
    chosen,
    [
      { ...slaveOf(cuda, 'nvidia--libcuda.so.1', ''), state: absent, resolution: { kind: 'absent' } },
      ...ourSlaves.slice(1),
    ],
    [ownGroup],
  ),
);

const owned = (value: string): typeof ownGroup => ({ ...ownGroup, before: { status: 'auto', value } });
says(
  'a link more is taken from the choice that was in use before',
  grouped({ ...chosen, choices: [...group.choices, { ...ourChoice, slaves: {} }] }, ourSlaves, [
    { ...owned('/x'), group: 'glx' },
    { ...owned('/x'), path: '/y' },
    owned('/usr/lib/nvidia/old'),
  ]),
);
says(
  'no choice but ours is left',
  grouped({ ...chosen, choices: [{ ...ourChoice, slaves: {} }] }, ourSlaves, [ownGroup]),
);
says('nothing is installed, and a group sets a link', { ...grouped({}), manifest: null });
says(
  'a link of the group leads elsewhere by another way',
  grouped(
    chosen,
    [
      { ...ourSlaves[0], path: cuda, state: linkTo('/etc/alternatives/other') } as (typeof ourSlaves)[number],
      ...ourSlaves.slice(1),
    ],
    [ownGroup],
  ),
);

// uninstall
const gives = (title: string, machine: MachineFacts, restart = true) =>
  file.text(`uninstall: ${title}`, () => planAsText(planUninstall(profile, machine, { restart })));
const other = { profile: 'llama-server', unit: 'llama-server.service', links: [cuda] };
const loaded = now.unit.kind === 'loaded' ? now.unit : unit();
const few: MachineFacts = {
  ...now,
  manifest: {
    ...manifest,
    items: manifest.items.filter(
      (item) => 'path' in item && [now.dropIn.path, now.guestConf.path].includes(item.path),
    ),
  },
};
gives('everything', now);
gives('without a restart', few, false);
gives('nothing is installed', facts());
gives('what was there before comes back', {
  ...grouped(chosen, ourSlaves, [ownGroup]),
  manifest: {
    ...manifest,
    items: [
      ...manifest.items.map((item) =>
        item.kind === 'link' && item.path === cuda
          ? { ...item, before: linkTo('/usr/lib/nvidia/current/libcuda.so.1'), backup: 'a' }
          : item.kind === 'link' && item.path === short
            ? { ...item, before: regular(), backup: 'b' }
            : item,
      ),
      ownGroup,
    ],
  },
});
gives('of several consumers, this one', {
  ...now,
  manifest: { ...manifest, consumers: [...manifest.consumers, other] },
});
gives('of several consumers, one that is not installed', {
  ...now,
  manifest: { ...manifest, consumers: [other] },
});
gives('files that were edited', {
  ...few,
  guestConf: fileWith(now.guestConf, 'host=unix:/x\n'),
  dropIn: fileWith(now.dropIn, 'x'),
});
gives('it does not run', { ...few, unit: { ...loaded, activeState: 'inactive' } });
gives('it has failed', { ...few, unit: { ...loaded, activeState: 'failed' } });
gives('its unit is gone', { ...few, unit: { kind: 'absent', name: 'ollama.service' } });
gives('another unit was looked at', { ...few, unit: { ...loaded, name: 'other.service' } });
gives('an earlier run was interrupted', { ...few, interrupted: true });
const without = { ...facts(), unit: unit() };
gives('nothing is installed, and a process uses the store', { ...without, processes: [processFacts()] });
gives('nothing is installed, and a process was told of the store', {
  ...without,
  processes: [processFacts({ libraries: [], loaderEnvironment: { LD_LIBRARY_PATH: '/a:/opt/vgpu' } })],
});
gives('nothing is installed, and a process was told of a neighbour', {
  ...without,
  processes: [
    processFacts({
      libraries: [{ path: '/opt/vgpu-b/x', deleted: false, vendor: null }],
      loaderEnvironment: { LD_LIBRARY_PATH: '/opt/vgpu-b' },
    }),
  ],
});
const forgotten = { environment: { LD_PRELOAD: '/opt/vgpu/current/libcuda.so.1' } };
gives('nothing is installed, and systemd has not forgotten', {
  ...without,
  unit: unit({ ...forgotten, environment: { A: 'b', ...forgotten.environment } }),
});
gives('nothing is installed, and a foreign drop-in names the store', {
  ...without,
  unit: unit({ ...forgotten, dropIns: [{ path: '/x', content: 'LD_PRELOAD=/opt/vgpu/x' }] }),
});
gives('nothing is installed, and the unit names the store', {
  ...without,
  unit: unit({ ...forgotten, fragmentContent: 'LD_PRELOAD=/opt/vgpu/x' }),
});
gives('nothing is installed, and a drop-in is there', {
  ...without,
  dropIn: now.dropIn,
  unit: unit(forgotten),
});
gives('the manifest was lost', { ...few, manifest: null });
gives('the manifest was lost, and the loader file was edited', {
  ...few,
  manifest: null,
  store: facts().store,
  dropIn: facts().dropIn,
  loaderConf: fileWith(now.loaderConf, 'x'),
});
const beside = (versioned: string, state = regular()) => ({
  ...bare,
  candidates: [
    ...bare.candidates,
    candidate(`${multiarch}/${versioned}`, { state }),
    candidate(`${multiarch}/libcuda.so.99999.0`, { state: linkTo('/x') }),
  ],
  manifest:
    bare.manifest === null
      ? null
      : {
          ...bare.manifest,
          items: bare.manifest.items.map((item) =>
            item.kind === 'link' && item.path === cuda
              ? { ...item, before: linkTo('libcuda.so.550.1'), backup: 'a' }
              : item,
          ),
        },
});
gives('the driver is the one that was there', beside('libcuda.so.550.1'));
gives('the driver was upgraded since', beside('libcuda.so.560.2'));
gives('the driver was removed since', beside('libcuda.so.550.1', absent as never));

file.nothingElse();
