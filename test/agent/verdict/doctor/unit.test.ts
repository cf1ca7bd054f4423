// The checks of the unit, its environment and its start.
import type { Change } from '../../../../agent/contracts/plan.js';
import type { LoggingFacts } from '../../../../agent/contracts/unit.js';
import type { ExecutableFacts, PreloadEntry } from '../../../../agent/guest/look/process.js';
import { guestConf } from '../../../../agent/verdict/doctor/checks/host.js';
import { output } from '../../../../agent/verdict/doctor/checks/output.js';
import { preloadReadable, secureExecution } from '../../../../agent/verdict/doctor/checks/process.js';
import {
  dropIn,
  environment,
  overrides,
  restarted,
  sandbox,
  unitRuns,
} from '../../../../agent/verdict/doctor/checks/unit.js';
import { expected } from '../../expected.js';
import { absent, linkTo, owner, regular } from '../../install/plan/support.js';
import { openSandbox, processFacts, unit } from '../support.js';
import { says } from './findings.js';
import { type Changes, doctorFacts, manifest, ready, toNamespace } from './support.js';

const file = expected('doctor-unit');
const notInstalled = { machine: { manifest: null } };
const away = { machine: { unit: { kind: 'absent', name: 'ollama.service' } } } as const;
const onCpu = { verdict: { mode: 'cpu' } } as const;

const seen = (changes: Parameters<typeof unit>[0], rest: object = {}) =>
  doctorFacts({ observation: { unit: unit(changes), ...rest } });
const words = ['one', 'two', 'three', 'four'].map((text) => ({ text, source: 'journal' }));
says(file, unitRuns, {
  'there is none': doctorFacts({ observation: { unit: { kind: 'absent', name: 'ollama.service' } } }),
  'it is masked': doctorFacts({
    observation: {
      unit: { kind: 'masked', name: 'ollama.service', path: '/etc/systemd/system/ollama.service' },
    },
  }),
  'it is masked by an unknown file': doctorFacts({
    observation: { unit: { kind: 'masked', name: 'ollama.service', path: '' } },
  }),
  'it cannot be loaded': doctorFacts({
    observation: {
      unit: { kind: 'bad', name: 'ollama.service', loadState: 'bad-setting', message: 'Unknown section' },
    },
  }),
  'it runs': seen({}),
  'it is being started': seen({ activeState: 'activating', subState: 'start', result: '' }),
  'it is being reloaded': seen({ activeState: 'reloading' }),
  'it was stopped': seen({ activeState: 'inactive', subState: 'dead' }, { lastWords: words }),
  'it has failed': seen(
    { activeState: 'failed', subState: 'failed', result: 'exit-code' },
    { lastWords: words },
  ),
  'it keeps ending': seen({}, { end: 'unit-restarting', lastWords: words }),
  'it was started again during the check': seen({}, { restarts: 1 }),
  'it was started again during the check, and logs to a namespace': seen(toNamespace, { restarts: 1 }),
});

const path = '/etc/systemd/system/ollama.service.d/50-vgpu.conf';
const last = '/etc/systemd/system/ollama.service.d/zzz-vgpu.conf';
const text = '# ours\n[Service]\nEnvironment="A=1"\nEnvironment="B=1"\n';
const write = (previousContent: string | null, changes: object = {}): Change => ({
  kind: 'write-file',
  path,
  content: text,
  mode: 0o644,
  before: absent,
  previousContent,
  reason: 'it differs',
  ...changes,
});
const reload: Change = { kind: 'daemon-reload', reason: 'systemd has not read the drop-in' };
const whole = doctorFacts().machine.dropIn;
const owned = (sha256: string) => ({
  manifest: {
    ...manifest,
    items: [
      {
        kind: 'file' as const,
        path,
        sha256,
        mode: 0o644,
        before: absent,
        backup: null,
      },
    ],
  },
});
const with50 = (state: typeof whole.state, rest: object = {}) => ({ dropIn: { ...whole, state }, ...rest });
const there = regular();
says(file, dropIn, {
  'there is no unit': doctorFacts(away),
  'nothing is installed': doctorFacts(notInstalled),
  'it is in force': doctorFacts({ plan: ready(write(null, { path: '/etc/other' })) }),
  'it is gone': doctorFacts({ plan: ready(write(null), reload) }),
  'a link took its place': doctorFacts({
    machine: with50(linkTo('/x')),
    plan: ready({ ...write(null), kind: 'write-link', target: 'x' } as Change),
  }),
  'lines were taken out and put in': doctorFacts({
    machine: with50(there, owned('00')),
    plan: ready(write('[Service]\n# theirs\nEnvironment="B=1"\nEnvironment="C=1"\n')),
  }),
  'its comments were changed': doctorFacts({
    machine: with50(there, owned('00')),
    plan: ready(write(text.replace('# ours', '# theirs'))),
  }),
  'another setting came since': doctorFacts({
    machine: with50(there, owned('ab'.repeat(32))),
    plan: ready(write('[Service]\n', { path: last })),
  }),
  'no manifest knows it': doctorFacts({ machine: with50(there), plan: ready(write('')) }),
  'another installed file has its content': doctorFacts({
    machine: with50(there, {
      manifest: {
        ...owned('ab'.repeat(32)).manifest,
        items: [{ ...owned('ab'.repeat(32)).manifest.items[0], path: '/etc/other' }],
      },
    }),
    plan: ready(write('')),
  }),
  'systemd has not read it': doctorFacts({ plan: ready(reload) }),
  'systemd says so itself': doctorFacts({
    machine: { unit: unit({ needDaemonReload: true }) },
    plan: ready(reload),
  }),
});

const loader = 'LD_PRELOAD';
const fragment = (extra: string) => `[Service]\nExecStart=/usr/local/bin/ollama serve\n${extra}`;
says(file, environment, {
  'there is no unit': doctorFacts(away),
  'nothing is installed': doctorFacts(notInstalled),
  'nothing does': doctorFacts(),
  'the unit clears two of them': doctorFacts({
    machine: { unit: unit({ fragmentContent: fragment('UnsetEnvironment=LD_PRELOAD LD_LIBRARY_PATH\n') }) },
  }),
  'an environment file sets one': doctorFacts({
    machine: {
      unit: unit({
        fragmentContent: fragment(''),
        environmentFileContents: [{ path: '/etc/default/ollama', content: `${loader}=/x.so\n` }],
      }),
    },
  }),
});

const conf = '/etc/vgpu/guest.conf';
const confWith = (content: string | null, state = there) => ({
  guestConf: { path: conf, state, content },
});
const told = confWith('host=vsock:2:14833\n');
const writeConf = write('host=unix:/x\n', { path: conf, content: 'host=vsock:2:14833\n' });
const hostOf = (host: string) => ({ unit: unit({ environment: { VGPU_HOST: host } }) });
says(file, guestConf, {
  'nothing is installed': doctorFacts(notInstalled),
  'it is': doctorFacts({ machine: told, plan: ready(write(null)) }),
  'it is, and the unit says the same': doctorFacts({
    machine: { ...told, ...hostOf('vsock:2:14833') },
    plan: ready(),
  }),
  'the unit has an address of its own': doctorFacts({
    machine: { ...told, ...hostOf('tcp:10.0.0.1:7000') },
    plan: ready(),
  }),
  'an environment file has it, and counts': doctorFacts({
    machine: {
      ...told,
      unit: unit({
        environment: { VGPU_HOST: 'vsock:2:14833' },
        environmentFileContents: [{ path: '/etc/default/ollama', content: 'VGPU_HOST=unix:/elsewhere\n' }],
      }),
    },
    plan: ready(),
  }),
  'an empty one is none': doctorFacts({ machine: { ...told, ...hostOf('') }, plan: ready() }),
  'and it is none': doctorFacts({ machine: { ...confWith(null), ...hostOf('somewhere') }, plan: ready() }),
  'there is no unit, and it is': doctorFacts({ machine: { ...told, ...away.machine }, plan: ready() }),
  'the file is gone': doctorFacts({
    machine: { guestConf: { path: conf, state: absent, content: null } },
    plan: ready(writeConf),
  }),
  'it may not be read': doctorFacts({ machine: told, plan: ready(writeConf) }),
  'it names another': doctorFacts({ machine: confWith('host=unix:/x\n'), plan: ready(writeConf) }),
  'nothing has to be changed, and it names none': doctorFacts({ machine: confWith(null), plan: ready() }),
});

const preload = (entry: string, check: PreloadEntry['check']) => ({
  entry,
  check,
  text: `${entry} is ${check.kind}`,
});
const preloads = (...entries: readonly PreloadEntry[]) => doctorFacts({ look: { preload: entries } });
const ours = '/opt/vgpu/current/libcuda.so.1';
const fine = preload(ours, { kind: 'loadable' });
says(file, preloadReadable, {
  'nothing is preloaded': preloads(),
  'all can be': preloads(fine),
  'a directory on the way is shut': preloads(
    fine,
    preload(ours, { kind: 'unreadable', blockedAt: '/opt/vgpu' }),
  ),
  'it lies where nothing may be executed': preloads(preload(ours, { kind: 'noexec', mount: '/opt' })),
  'ours is gone': preloads(preload(ours, { kind: 'missing', missing: ours })),
  'ours is no library': preloads(preload(ours, { kind: 'not-a-library', reason: '0 bytes' })),
  'one of theirs is for another machine': preloads(
    preload('/opt/vgpu-old/x.so', { kind: 'wrong-architecture', found: 'i386', wanted: 'x86_64' }),
  ),
});

const process = (secure: boolean | null, executable: string | null = '/usr/bin/ollama') => ({
  pid: 7,
  name: 'ollama',
  executable,
  secure,
});
const program = (changes: Partial<ExecutableFacts>): ExecutableFacts => ({
  path: '/usr/bin/ollama',
  setId: false,
  capabilities: '',
  elf: null,
  ...changes,
});
const gains = (...executables: readonly ExecutableFacts[]) => ({
  look: { security: [process(true), process(false)], executables },
});
says(file, secureExecution, {
  'nothing runs': doctorFacts(),
  'none of its processes gains rights': doctorFacts({ look: { security: [process(false), process(null)] } }),
  'it is not known': doctorFacts({ look: { security: [process(null), process(null)] } }),
  'by file capabilities, and GPU mode stands': doctorFacts(
    gains(program({ capabilities: 'cap_net_raw=ep' })),
  ),
  'by a set-user-ID bit': doctorFacts({ ...gains(program({ setId: true, capabilities: null })), ...onCpu }),
  'by something else': doctorFacts({
    ...gains(program({}), program({ path: '/usr/bin/other', setId: true })),
    ...onCpu,
  }),
  'by both, of the second of two programs': doctorFacts({
    look: {
      security: [process(true), process(true, '/usr/bin/runner')],
      executables: [
        program({}),
        program({ path: '/usr/bin/runner', setId: true, capabilities: 'cap_sys_nice=ep' }),
      ],
    },
    ...onCpu,
  }),
});

const shut = { ...openSandbox, restrictAddressFamilies: { deny: true, families: ['AF_UNIX'] } };
says(file, sandbox, {
  'there is no unit': doctorFacts(away),
  'nothing is in the way': doctorFacts(),
  'it keeps from the host and from the files': doctorFacts({
    machine: { unit: unit({ sandbox: { ...shut, rootDirectory: '/srv/jail' } }) },
  }),
});

const set = (variables: Readonly<Record<string, string>>, content?: string) => ({
  machine: {
    unit: unit({
      environment: variables,
      ...(content === undefined
        ? {}
        : { environmentFileContents: [{ path: '/etc/default/ollama', content }] }),
    }),
  },
  plan: ready(),
});
says(file, overrides, {
  'there is no unit': doctorFacts(away),
  'none does': doctorFacts(set({ OLLAMA_DEBUG: '1', CUDA_VISIBLE_DEVICES: '0' })),
  'two do, in the unit': doctorFacts(set({ CUDA_VISIBLE_DEVICES: '-1', OLLAMA_LLM_LIBRARY: 'cpu' })),
  'one in the unit, one in a file': doctorFacts(
    set({ CUDA_VISIBLE_DEVICES: '-1' }, 'OLLAMA_LLM_LIBRARY=cpu\n'),
  ),
  'one that may select nothing': doctorFacts(set({ CUDA_VISIBLE_DEVICES: 'GPU-deadbeef' })),
  'one that may select nothing, and the verdict says that it does': doctorFacts({
    ...set({ OLLAMA_LLM_LIBRARY: 'cuda_v13' }),
    verdict: { mode: 'cpu', reason: 'library-forced-to-cpu' },
  }),
});

const toFile = { machine: { unit: unit({ standardError: 'append:/var/log/ollama.log' }) } };
const journald = '/etc/systemd/journald.conf.d/90-local.conf';
const logs = (changes: Partial<LoggingFacts>): Changes => ({
  machine: {
    unit: unit({ logging: { ...toNamespace.logging, namespace: '', ...changes } }),
  },
});
const unsure = { verdict: { mode: 'undetermined' } } as const;
says(file, output, {
  'there is no unit': doctorFacts(away),
  'it does': doctorFacts(),
  'it goes to a file that was not read': doctorFacts(toFile),
  'it goes to a file that was read': doctorFacts({
    ...toFile,
    ...unsure,
    observation: { logFile: '/var/log/ollama.log' },
  }),
  'it goes to a file, and nothing can be told': doctorFacts({ ...toFile, ...unsure }),
  'the journal cannot be read': doctorFacts({
    observation: { journalError: 'journalctl: Permission denied' },
  }),
  'lines are dropped by their level': doctorFacts({ ...logs({ levelMax: 'warning' }), ...unsure }),
  'it goes to a namespace': doctorFacts(logs({ namespace: 'apart' })),
  'a limit of the unit drops lines': doctorFacts(logs({ burst: 40, intervalMs: 3_600_000 })),
  'a limit of the unit drops lines, and the discovery line is missing': doctorFacts({
    ...logs({ burst: 40 }),
    verdict: { mode: 'undetermined', reason: 'no-discovery-line' },
  }),
  'a limit of the unit is higher than that of journald': doctorFacts(logs({ burst: 20_000 })),
  'a limit of journald drops lines': doctorFacts({
    look: {
      journald: {
        RateLimitBurst: { value: '100', file: journald },
        RateLimitIntervalSec: { value: '1min 30s', file: journald },
      },
    },
  }),
  "a limit of a namespace's journald drops lines": doctorFacts({
    ...logs({ namespace: 'apart' }),
    look: { journald: { RateLimitBurst: { value: '100', file: '/etc/systemd/journald@apart.conf' } } },
  }),
  'each half of the limit is in another file': doctorFacts({
    look: {
      journald: {
        RateLimitBurst: { value: '100', file: journald },
        RateLimitIntervalSec: { value: '1h', file: '/etc/systemd/journald.conf' },
      },
    },
  }),
  'one half of the limit is in the unit': doctorFacts({
    ...logs({ burst: 40 }),
    look: { journald: { RateLimitIntervalSec: { value: '500 ms', file: journald } } },
  }),
  'one half of the limit is in the unit, and is low': doctorFacts({
    ...logs({ burst: 40 }),
    look: { journald: { RateLimitIntervalSec: { value: '2weeks 1 day 0.5h', file: journald } } },
  }),
  'the interval is not understood': doctorFacts({
    ...logs({ burst: 40 }),
    look: { journald: { RateLimitIntervalSec: { value: '2 fortnights', file: journald } } },
  }),
  'the interval is not a time span': doctorFacts({
    ...logs({ burst: 40 }),
    look: { journald: { RateLimitIntervalSec: { value: '-2s', file: journald } } },
  }),
  'the burst is not understood': doctorFacts({
    ...logs({ intervalMs: 3_600_000 }),
    look: { journald: { RateLimitBurst: { value: 'some', file: journald } } },
  }),
  'journald has no limit': doctorFacts({
    look: { journald: { RateLimitIntervalSec: { value: '0', file: journald } } },
  }),
  'the journal is not kept': doctorFacts({
    look: { journald: { Storage: { value: 'none', file: journald } } },
    ...unsure,
  }),
  'the journal keeps only lines of higher levels': doctorFacts({
    ...logs({ namespace: 'apart' }),
    look: { journald: { MaxLevelStore: { value: 'warning', file: journald } } },
  }),
  'the journal has lost the beginning': doctorFacts({
    verdict: { mode: 'undetermined', reason: 'journal-cut' },
  }),
  "a namespace's journal has lost the beginning": doctorFacts({
    ...logs({ namespace: 'apart' }),
    verdict: { mode: 'undetermined', reason: 'journal-cut' },
  }),
});

const old = processFacts({ loaderEnvironment: {} });
says(file, restarted, {
  'there is no unit': doctorFacts(away),
  'nothing is installed': doctorFacts(notInstalled),
  'it does not run': doctorFacts({ machine: { unit: unit({ mainPid: 0 }) } }),
  'its process was not seen': doctorFacts({ machine: { unit: unit() } }),
  'it was': doctorFacts({
    machine: { unit: unit(), processes: [processFacts({ pid: 99, libraries: [] }), processFacts()] },
  }),
  'it was not': doctorFacts({ machine: { unit: unit(), processes: [old] } }),
});

file.text('another file at the path of the drop-in is named', () =>
  (['directory', 'other'] as const)
    .map((kind) => {
      const state =
        kind === 'other'
          ? ({ kind, type: 'fifo', ...owner } as const)
          : ({ kind, empty: true, mode: 0o755, ...owner } as const);
      const finding = dropIn.examine(doctorFacts({ machine: with50(state), plan: ready(write(null)) }));
      return finding.kind === 'broken' ? finding.cause : finding.kind;
    })
    .join('\n'),
);

file.nothingElse();
