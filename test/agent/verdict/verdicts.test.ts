// The text for a person, word for word: the sentence and the next command for each reason, and whole verdicts.

import type { ProbeReport, ProbeResult } from '../../../agent/contracts/probe.js';
import type { LoadedUnit } from '../../../agent/contracts/unit.js';
import { type Mode, type Reason, reasons } from '../../../agent/contracts/verdict.js';
import { adviceOn } from '../../../agent/verdict/advice.js';
import { decideVerdict } from '../../../agent/verdict/decide.js';
import type { Observation } from '../../../agent/verdict/observation.js';
import { expected } from '../expected.js';
import { answers, cpu, main, silent, unreachable } from './evidence.js';
import {
  answered,
  findingsOf,
  hostWord,
  noDevice,
  observation,
  ollama,
  openSandbox,
  processFacts,
  report,
  unit,
  withoutHost,
  withoutPreload,
} from './support.js';
import { usualLines, verdictText } from './verdict-text.js';

const file = expected('verdicts');

// advice
const device = { library: 'cuda', compute: '9.0', name: 'NVIDIA H100 80GB HBM3', pci: '0000:01:00.0' };
function advice(
  mode: Mode,
  reason: Reason | null,
  changes: Partial<Observation> = {},
  devices = [device],
): string {
  const { summary, next } = adviceOn(observation(changes), { mode, reason, detail: 'why so' }, devices);
  return `${summary}\n  ${next ?? 'nothing to do'}`;
}
/** The mode with which a reason that is none for the CPU is concluded. */
const modes: Partial<Readonly<Record<Reason, Mode>>> = {
  'no-discovery-line': 'undetermined',
  'unsupported-log-version': 'undetermined',
  'shim-not-loaded': 'undetermined',
  'output-bypasses-journal': 'undetermined',
  'unit-failed': 'undetermined',
  'unit-restarting': 'undetermined',
  'readiness-timeout': 'undetermined',
  'journal-unavailable': 'undetermined',
  'journal-cut': 'undetermined',
  'no-work-yet': 'undetermined',
  'evidence-stale': 'undetermined',
  'probe-crashed': 'degraded',
  'foreign-library-loaded': 'degraded',
  'memory-round-trip-failed': 'degraded',
  'consumer-not-restarted': 'degraded',
  'environment-removed': 'degraded',
  'probe-disagrees': 'degraded',
  'compute-failed': 'degraded',
  'context-create-failed': 'degraded',
};
file.text('advice for each reason', () =>
  reasons.map((reason) => `${reason}: ${advice(modes[reason] ?? 'cpu', reason)}`).join('\n'),
);
file.text('advice in each mode', () =>
  (['cpu', 'degraded', 'undetermined'] as const)
    .flatMap((mode) => [
      advice(mode, 'no-device'),
      advice(mode, null),
      advice(mode, null, { unit: rootsUnit }),
    ])
    .join('\n'),
);
const rootsUnit = unit({ user: '' });
file.text('advice without a detail', () => {
  const conclusion = { mode: 'cpu', reason: 'host-unreachable', detail: null } as const;
  return adviceOn(observation(), conclusion, []).summary;
});
file.text('advice for a GPU', () =>
  [
    advice('gpu', null),
    advice('gpu', null, {}, []),
    advice('gpu', null, {}, [device, { ...device, compute: '', name: 'Tesla T4 (simulated)' }]),
    advice('gpu', null, { probe: answered({ simulated: true }) }),
    advice('gpu', null, { probe: answered({ compute: { ok: true, values: 9, wrong: 0, microseconds: 1 } }) }),
    advice('gpu', null, {
      probe: answered({ compute: { ok: false, values: 9, wrong: 1, microseconds: 1 } }),
    }),
    advice('gpu', null, { probe: { kind: 'crashed', message: 'x' } }),
  ].join('\n'),
);
file.text('advice about what is different', () =>
  [
    advice('cpu', 'probe-crashed', { invocationId: null }),
    advice('cpu', 'driver-init-failed', { unit: rootsUnit }),
    advice('undetermined', 'unit-failed', { unit: { kind: 'masked', name: 'ollama.service', path: '/x' } }),
    advice('cpu', 'devices-hidden-by-environment', {
      unit: unit({ environmentFileContents: [{ path: '/etc/x', content: 'CUDA_VISIBLE_DEVICES=-1\n' }] }),
    }),
    advice('cpu', 'host-version', { probe: withoutHost(hostWord('version', { hostWire: 9 })) }),
    advice('cpu', 'host-version', { probe: withoutHost(hostWord('version', { hostWire: 0 })) }),
    advice('cpu', 'host-version', { host: unreachable(hostWord('version', { hostWire: 9 })) }),
    advice('cpu', 'host-version', { host: unreachable(null) }),
    advice('cpu', 'no-device', { profile: { ...ollama, unit: 'ollama@1.service' } }),
    advice('cpu', 'no-device', { profile: { ...ollama, name: 'generic', unit: 'painter.service' } }),
  ].join('\n'),
);

// verdicts
const says = (title: string, changes: Partial<Observation>) =>
  file.text(title, () => verdictText(decideVerdict(observation(changes)), usualLines()));

file.text('all is well', () => verdictText(decideVerdict(observation({ host: answers(40) }))));
file.text('CPU in the log', () => verdictText(decideVerdict(observation({ log: cpu }))));
file.text('all is well, loaded by the program itself', () =>
  verdictText(decideVerdict(withoutPreload(observation({ processes: main('vgpu') })))),
);

const probes: Readonly<Record<string, ProbeResult | null>> = {
  'was not asked': null,
  'did not run': { kind: 'not-run', message: 'systemd-run is missing' },
  'took too long': { kind: 'timed-out', milliseconds: 10_400 },
  crashed: { kind: 'crashed', message: 'vgpu-probe was ended by SIGSEGV' },
  'finds no device': noDevice,
  'finds another library': answered({ library: '/usr/lib/libcuda.so.1' }),
  'finds another device': answered({
    devices: report().devices.map((one) => ({ ...one, name: 'Tesla T4' })),
  }),
  'lists no device': answered({ ok: false, devices: [] }),
  'is not content, and does not say why': answered({ ok: false }),
  'reads changed bytes': answered({ ok: false, roundTrip: { bytes: 64, ok: false, microseconds: 1 } }),
};
for (const [name, probe] of Object.entries(probes)) {
  says(`GPU in the log, the probe ${name}`, { probe, host: answers(40) });
  says(`CPU in the log, the probe ${name}`, { log: cpu, probe, host: answers(40) });
}

type ProbeError = NonNullable<ProbeReport['error']>;
const failing = (error: Partial<ProbeError>, changes: Partial<ProbeReport> = {}): ProbeResult =>
  answered({
    ok: false,
    roundTrip: null,
    error: { kind: 'call', step: 'cuInit', code: 1, name: null, message: 'it failed', ...error },
    ...changes,
  });
const computed = { compute: { ok: false, values: 9, wrong: 1, microseconds: 1 } };
for (const [name, probe] of [
  ['a signal', failing({ kind: 'signal', message: 'SIGSEGV in cuInit' })],
  ['an exit', failing({ kind: 'exit' })],
  ['a time-out', failing({ kind: 'timeout' })],
  ['a time-out of a kernel', failing({ kind: 'timeout', step: 'cuCtxSynchronize' }, computed)],
  ['the host lost in the middle', failing({ name: 'CUDA_ERROR_SYSTEM_NOT_READY' })],
  ['wrong numbers', failing({ step: 'compute' }, computed)],
  ['changed bytes', failing({ kind: 'memory', step: 'compare' })],
  ...['cuMemAlloc', 'cuMemcpyHtoD', 'cuMemcpyDtoD', 'cuMemcpyDtoH', 'cuMemFree'].map(
    (step) => [step, failing({ step, name: 'CUDA_ERROR_UNKNOWN' })] as const,
  ),
  ['cuDevicePrimaryCtxRetain', failing({ step: 'cuDevicePrimaryCtxRetain', name: 'CUDA_ERROR_UNKNOWN' })],
  ['cuCtxSetCurrent', failing({ step: 'cuCtxSetCurrent' })],
  ['no library', failing({ kind: 'library', step: 'dlopen' })],
  ['no function', failing({ kind: 'symbol', step: 'dlsym' })],
  ['no device', failing({ kind: 'no-device' })],
  ['no device, by the driver', failing({ name: 'CUDA_ERROR_NO_DEVICE' })],
  ['a driver that does not fit', failing({ name: 'CUDA_ERROR_SYSTEM_DRIVER_MISMATCH' })],
  ['another error', failing({ name: 'CUDA_ERROR_UNKNOWN' })],
] as const) {
  says(`CPU in the log, the probe meets: ${name}`, { log: cpu, probe, host: answers(40) });
}

for (const [name, changes] of Object.entries<Partial<Observation>>({
  'does not answer': { probe: noDevice, host: unreachable(null) },
  'is another version, seen from outside': {
    probe: noDevice,
    host: unreachable(hostWord('version', { hostWire: 9 })),
  },
  'took 6.2 s': { probe: noDevice, host: answers(6_210) },
  'took 5.0 s': { probe: noDevice, host: answers(5_000) },
  'gives no answer to the probe': { probe: { kind: 'timed-out', milliseconds: 10_000 }, host: null },
  'is named by the unit': {
    probe: withoutHost(hostWord('unreachable')),
    host: answers(40),
    unit: unit({ environment: { VGPU_HOST: 'tcp:127.0.0.1:9' } }),
  },
  ...Object.fromEntries(
    (['version', 'foreign', 'refused', 'timeout', 'unreachable', 'not-configured'] as const).map((code) => [
      `is ${code}`,
      { probe: withoutHost(hostWord(code)), host: answers(40) },
    ]),
  ),
  ...Object.fromEntries(
    ['EACCES', 'EPERM', 'EAFNOSUPPORT', 'ENOENT'].map((errno) => [
      `is unreachable by ${errno}`,
      { probe: withoutHost(hostWord('unreachable', { errno })), host: answers(40) },
    ]),
  ),
  'is beyond the sandbox': {
    probe: noDevice,
    host: answers(40),
    unit: unit({
      sandbox: {
        ...openSandbox,
        privateNetwork: true,
        restrictAddressFamilies: { deny: false, families: [] },
      },
    }),
  },
})) {
  says(`CPU in the log, the host ${name}`, { log: cpu, ...changes });
}

const executable = { executable: null };
for (const [name, processes] of Object.entries<Observation['processes']>({
  'a foreign library': main('nvidia'),
  'a foreign library beside the shim': main('vgpu', 'foreign'),
  'an older shim': main('stale'),
  'no library': main(),
  'no library and no name of the program': [
    { role: 'main', facts: processFacts({ libraries: [], ...executable }) },
  ],
  'none of the variables': [{ role: 'main', facts: processFacts({ libraries: [], loaderEnvironment: {} }) }],
  'maps that cannot be read': [
    { role: 'main', facts: processFacts({ libraries: [], unreadable: ['maps', 'environ'] }) },
  ],
  'no processes': [],
})) {
  says(`GPU in the log, the processes have ${name}`, { processes });
  says(`CPU in the log, just restarted, the processes have ${name}`, {
    log: cpu,
    processes,
    restarted: true,
  });
}

const ofUnit = (changes: Partial<LoadedUnit>) => ({ unit: unit(changes) });
for (const [name, changes] of Object.entries<Partial<Observation>>({
  'its output goes to a file': ofUnit({ standardOutput: 'append:/var/log/x' }),
  'its errors go nowhere': ofUnit({ standardError: 'null' }),
  'its errors go to the journal': ofUnit({ standardOutput: 'null', standardError: 'journal' }),
  'the journal cannot be read': { journalError: 'permission denied' },
  'it failed': {
    end: 'unit-failed',
    ...ofUnit({ activeState: 'failed', subState: 'failed', result: 'oom-kill' }),
  },
  'it is masked': { end: 'unit-failed', unit: { kind: 'masked', name: 'ollama.service', path: '/x' } },
  'it is gone': { end: 'unit-failed', unit: { kind: 'absent', name: 'ollama.service' } },
  'it ends again and again': { end: 'unit-restarting', restarts: 3 },
  'it never answers': {
    end: 'timed-out',
    readiness: { kind: 'silent', url: 'http://x/', lastError: 'ECONNREFUSED' },
  },
  'it is not asked': { readiness: { kind: 'unasked', why: 'no address' } },
  'it said something last': {
    end: 'unit-failed',
    lastWords: [{ text: 'panic: x', source: 'journal cursor s=1' }],
    ...ofUnit({ activeState: 'failed' }),
  },
})) {
  says(`nothing in the log: ${name}`, { log: silent, ...changes });
  says(`GPU in the log: ${name}`, changes);
}

for (const variable of ['CUDA_VISIBLE_DEVICES', 'OLLAMA_LLM_LIBRARY']) {
  const value = variable === 'CUDA_VISIBLE_DEVICES' ? '-1' : 'cpu';
  says(`CPU in the log, ${variable} of the unit`, {
    log: cpu,
    ...ofUnit({ environment: { [variable]: value } }),
  });
}
for (const name of [
  '0.32.9_gpu_model-load_debug0',
  '0.32.9_native-probe-crash_debug0',
  '0.32.9_v12dir-driver535_debug0',
  '0.11.11_libcuda550-nogpu_debug0',
  '0.32.9_slow-init-35s_debug0',
  '0.32.9_cuda_v13_no-libcuda_debug0',
]) {
  file.text(`the log ${name}`, () =>
    verdictText(decideVerdict(observation({ log: findingsOf(name) })), usualLines()),
  );
}

file.nothingElse();
