// The text for a person, word for word, about loaded models, the host's list of its sessions, and the test kernels.

import type { HostSession, MemoryTold, RefusedMemory } from '../../../agent/contracts/sessions.js';
import { decideVerdict } from '../../../agent/verdict/decide.js';
import type { Observation, SessionsSeen } from '../../../agent/verdict/observation.js';
import { expected } from '../expected.js';
import { child, cpu, gpu, main, notRun, silent, unreachable } from './evidence.js';
import {
  answered,
  findingsOf,
  fixtureText,
  judgeLog,
  llamaServer,
  noDevice,
  observation,
  ollama,
  processFacts,
  report,
  unit,
  withoutPreload,
} from './support.js';
import { usualLines, verdictText } from './verdict-text.js';

const file = expected('verdicts-present');
const says = (title: string, changes: Partial<Observation>) =>
  file.text(title, () => verdictText(decideVerdict(observation(changes)), usualLines()));

type Told = Extract<SessionsSeen, { kind: 'told' }>;
const model = (name: string, gpuBytes: number, bytes = 4_096) => ({ name, bytes, gpuBytes });
/** The loaded models, and the host's sessions of them. */
function seen(
  models: readonly ReturnType<typeof model>[] | null,
  sessions: Partial<Told> | null = null,
): Pick<Observation, 'present'> {
  const none = { own: [], processes: 9, others: 0, turnedAway: null, refusedKernels: null, memory: null };
  return {
    present: {
      loaded: models === null ? { kind: 'unasked' } : { kind: 'told', url: 'http://x/api/ps', models },
      sessions: sessions === null ? { kind: 'unasked' } : { kind: 'told', ...none, ...sessions },
    },
  };
}
function session(changes: Partial<HostSession> = {}): HostSession {
  const claimed = { library: 'libcuda', pid: 140, pidNamespace: 0, program: 'llama-server' } as const;
  const counts = {
    memory: 4_096,
    launches: 9,
    calls: 99,
    refused: 0,
    lastRefusal: 0,
    carrier: 'rings' as const,
  };
  return { session: 3, age: 5_400, ...counts, claimed, ...changes };
}
const nvml = session({ claimed: { ...session().claimed, library: 'libnvidia-ml' } });
const idle = session({ launches: 0, memory: 0, claimed: { ...session().claimed, pid: 141 } });

says('one model is on the GPU, one is not', seen([model('a', 4_096), model('b', 0)]));
says('it does not tell what it has loaded', {
  present: {
    loaded: { kind: 'silent', url: 'http://x/api/ps', message: 'ECONNREFUSED' },
    sessions: { kind: 'unknown', message: 'this host tells no sessions' },
  },
});
says('the host lists a session that computes, one that waits and one that only looks', {
  ...seen([model('a', 4_096)], { own: [session(), session({ launches: 1 }), idle, nvml] }),
});
says('the host lists none, and nothing is loaded', seen([], {}));
says('the host lists none, and a model is loaded', seen([model('a', 4_096)], {}));
says('the host lists none, and it was not asked what it has loaded', seen(null, { own: [nvml] }));
says('the unit names another host than the file', {
  ...seen(null, { own: [session()] }),
  unit: unit({ environment: { VGPU_HOST: 'tcp:127.0.0.1:9' } }),
});
says('there is no unit, and the host lists a session', {
  ...seen(null, { own: [session()] }),
  unit: { kind: 'absent', name: 'ollama.service' },
});
for (const status of ['busy', 'not-allowed', null] as const) {
  const turnedAway = { count: status === null ? 1 : 2, status, age: 3 };
  says(`the host turned one away: ${status}`, seen([model('a', 0)], { own: [idle], turnedAway }));
}
says('the host could not run a kernel, and a program launched more', {
  ...seen([model('a', 4_096)], {
    own: [session()],
    refusedKernels: { count: 2, age: 7, program: 'llama-server', kernel: 'gemv' },
  }),
});
const refused: RefusedMemory = {
  ...{ count: 1, age: 3, program: 'llama-server', by: 'guest' },
  ...{ bytes: 8_192, limit: 4_096, free: 2_048 },
};
const limits: Readonly<Record<string, MemoryTold>> = {
  'by a line': { limit: 4_096, by: 'guest', line: 3, refused },
  'by the file, more than once': { limit: 4_096, by: 'guest', line: 0, refused: { ...refused, count: 4 } },
  'by the session': { limit: 4_096, by: 'session', line: 0, refused: { ...refused, by: 'session' } },
  'by the device': { limit: 0, by: 'none', line: 0, refused: { ...refused, by: 'device' } },
  'by nothing that is known': { limit: 0, by: 'none', line: 0, refused: { ...refused, by: 'none' } },
  'never, and it is below what is loaded': { limit: 4_095, by: 'session', line: 0, refused: null },
  'never, and it is what is loaded': { limit: 4_096, by: 'session', line: 0, refused: null },
};
for (const [how, memory] of Object.entries(limits))
  says(`the host refused memory ${how}`, seen([model('a', 4_096)], { own: [session()], memory }));
says('a process is young and may be loading', {
  ...seen([model('a', 4_096), model('b', 4_096)], { own: [session(), idle], youngest: 119 }),
});
says('a process is not young any more', {
  ...seen([model('a', 4_096), model('b', 4_096)], { own: [session(), idle], youngest: 120 }),
});
says('two models are partly on the CPU', seen([model('a', 1_024), model('b', 3_072)]));

// A consumer of which only sessions tell.
const wordless = { ...llamaServer, log: { ...llamaServer.log, devices: [] } };
const alone = { profile: wordless, log: judgeLog(wordless, []) };
const hidden = unit({ environment: { CUDA_VISIBLE_DEVICES: '-1' } });
const when = (changes: Partial<Observation>): Partial<Observation> => ({ ...alone, ...changes });
says('its log is not read: the host has run kernels', when(seen(null, { own: [session()] })));
says(
  'its log is not read: it has opened the GPU',
  when(seen(null, { own: [idle, session({ launches: 0 })] })),
);
says(
  'its log is not read: the host has no session',
  when({ ...seen(null, {}), readiness: { kind: 'unasked', why: 'x' } }),
);
says('its log is not read: the host does not report it', {
  ...when({}),
  present: { loaded: { kind: 'unasked' }, sessions: { kind: 'unknown', message: 'it is too old' } },
});
says(
  'its log is not read: no host',
  when({ probe: noDevice, host: { kind: 'unreachable', message: 'gone', word: null } }),
);
says('its log is not read: a variable hides the GPU', when({ unit: hidden }));
says('its log is not read: it has loaded another library', when({ processes: main('nvidia') }));
says('its log is not read: the probe finds no device', when({ probe: noDevice }));

// Obstacles for a consumer that is ready and says nothing.
const ready = { profile: llamaServer, log: judgeLog(llamaServer, []) };
says('it is ready and silent: another library', { ...ready, processes: main('foreign') });
says('it is ready and silent: no device', { ...ready, probe: noDevice });
says('it is ready and silent: nothing is in the way', ready);
says('it does not answer yet', {
  ...ready,
  probe: noDevice,
  readiness: { kind: 'silent', url: 'http://x/', lastError: 'ECONNREFUSED' },
});

// Our kernels.
const ran = (compute: { readonly ok: boolean; readonly wrong: number } | null, changes = {}) =>
  answered({
    ...(compute === null ? {} : { compute: { values: 9, microseconds: 70, ...compute } }),
    ...changes,
  });
const wrong = { ok: false, wrong: 2 };
const failed = (step: string, message: string, kind: 'call' | 'compute' = 'call') => ({
  ok: false,
  error: { kind, step, code: null, name: kind === 'call' ? 'CUDA_ERROR_ILLEGAL_ADDRESS' : null, message },
});
for (const [name, probe] of [
  ['ran', ran({ ok: true, wrong: 0 })],
  ['were not reached', ran(null)],
  [
    'computed wrong',
    ran(wrong, failed('compare', '2 of 9 numbers that the kernels computed are wrong', 'compute')),
  ],
  ['failed in a call', ran(wrong, failed('cuLaunchKernel', 'an illegal address'))],
  ['failed in a call that the message names', ran(wrong, failed('cuLaunchKernel', 'cuLaunchKernel failed'))],
  ['were not run', notRun],
  ['were not run: not requested', null],
] as const) {
  says(`our kernels ${name}`, { computeAsked: true, probe });
}

// The processes.
says('the probe goes back and forth without numbers', {
  probe: answered({ roundTrip: null, library: null }),
});
says('its child has an older shim, and one cannot be looked at', {
  processes: [...child(['stale']), ...child([], { unreadable: ['maps'] })],
});
says('its child has loaded the shim itself', withoutPreload(observation({ processes: child(['vgpu']) })));
says('it has no variables, and no main process was seen', {
  processes: child(['vgpu'], { loaderEnvironment: {} }),
});
says('it was seen without any variable, and wants none', {
  profile: { ...ollama, environment: [] },
  processes: [{ role: 'main', facts: processFacts({ loaderEnvironment: {} }) }],
});

// Why it is on the CPU, where the log gives a hint or a word that says little.
const cpuWith = (changes: Partial<Observation>): Partial<Observation> => ({ log: cpu, ...changes });
says('CPU in the log, with a hint at a setting', cpuWith({ log: { ...cpu, hint: 'library-forced-to-cpu' } }));
says(
  'CPU in the log, with a hint and no probe',
  cpuWith({ log: { ...cpu, hint: 'no-device' }, probe: null, processes: [] }),
);
says(
  'CPU in the log, "no device", and the probe finds one',
  cpuWith({ log: { ...cpu, reason: 'no-device' } }),
);
says(
  'CPU in the log, "no device", and no probe',
  cpuWith({ log: { ...cpu, reason: 'no-device' }, probe: null }),
);
says('CPU in the log, another kind of GPU, and the probe meets trouble', {
  ...cpuWith({ log: { ...cpu, reason: 'not-cuda' }, probe: noDevice }),
});
says('CPU in the log, a variable that the log names too', {
  ...cpuWith({ log: { ...cpu, reason: 'devices-hidden-by-environment' }, unit: hidden }),
});
says('CPU in the log, a variable, and another reason in the log', {
  ...cpuWith({ log: { ...cpu, reason: 'driver-too-old' }, unit: hidden }),
});
const quiet = { ...ollama, environment: [], evidence: { ...ollama.evidence, childrenMayExit: false } };
const bare = { role: 'main' as const, facts: processFacts({ libraries: [], loaderEnvironment: {} }) };
const unset = unit({ environment: {} });
says('CPU in the log, no process has a library, and its children live on', {
  ...cpuWith({ profile: quiet, processes: [bare], unit: unset }),
});
says('CPU in the log, no process has a library, and its children may be gone', {
  ...cpuWith({ profile: { ...ollama, environment: [] }, processes: [bare], unit: unset }),
});
says('CPU in the log, no child has a library', {
  ...cpuWith({
    profile: { ...ollama, environment: [] },
    processes: child([], { loaderEnvironment: {} }),
    unit: unset,
  }),
});

// Another library is the first reason. A fault that the log names stays the reason, whatever the host says.
const crashed = findingsOf('0.32.9_native-probe-crash_debug0');
const works = seen([model('a', 4_096)], { own: [session(), idle] });
const cpuLoad = judgeLog(ollama, [
  ...fixtureText('0.32.9_gpu-mode_debug0').split('\n'),
  'load_tensors: loading model tensors',
  'load_tensors:          CPU model buffer size =     5.28 MiB',
]);
says('the host has run kernels, and another library is loaded', {
  ...works,
  processes: main('vgpu', 'nvidia'),
});
says('the host has run kernels, and discovery crashed', { ...works, log: crashed });
says('discovery crashed, and another library is loaded', { log: crashed, processes: main('nvidia') });
says('discovery crashed, and the host turned one away', {
  ...seen(null, { turnedAway: { count: 1, status: 'busy', age: 3 } }),
  log: crashed,
});
says('degraded for no reason that the log gives', { log: { ...crashed, reason: null, hint: null } });
says('degraded, with a hint', { log: { ...crashed, reason: null, hint: 'no-device' } });
says('the last model went to the CPU, and the host turned one away', {
  ...seen(null, { turnedAway: { count: 1, status: 'busy', age: 3 } }),
  log: cpuLoad,
});
says('not all layers of the last model fitted, and what is loaded now computes', {
  ...works,
  log: { ...cpuLoad, reason: 'layers-not-offloaded' },
});
says('the last model went to the CPU, and what is loaded now has computed nothing', {
  ...seen([model('a', 4_096)], { own: [session({ launches: 0 })] }),
  log: cpuLoad,
});
says('CPU in the log, another library, and no host', {
  ...cpuWith({ processes: main('nvidia'), probe: noDevice, host: unreachable() }),
});
says('CPU in the log, a vague word, and the probe meets trouble', {
  ...cpuWith({
    log: { ...cpu, reason: 'driver-init-failed' },
    probe: answered({ library: '/usr/lib/libcuda.so.1' }),
  }),
});
says('CPU in the log, a vague word, and the probe meets the same', {
  ...cpuWith({ log: { ...cpu, reason: 'driver-init-failed' }, probe: noDevice }),
});

// Cases that cannot be proven.
says('no process, and no probe that could be run', { processes: [], probe: notRun });
says('no process, and no probe', { processes: [], probe: null });
says('our kernels were not run, and a child has the shim', {
  ...withoutPreload(observation({ processes: child(['vgpu']), probe: notRun })),
  computeAsked: true,
});
says('its maps do not count, and the probe could not be run', {
  profile: { ...ollama, evidence: { ...ollama.evidence, mapsOf: 'none' } },
  probe: notRun,
});
says('it never answered, though it was given all its time', { log: silent, end: 'timed-out' });
says('it does not answer within the time limit', {
  log: silent,
  readiness: { kind: 'silent', url: 'http://x/', lastError: 'ECONNREFUSED' },
});
says('the journal cannot be read, and its file was', {
  ...{ log: silent, journalError: 'permission denied', logFile: '/var/log/x' },
});
says('it ends without a result', {
  end: 'unit-failed',
  unit: unit({ activeState: 'inactive', subState: 'dead', result: '' }),
});
says('the host was not asked', { host: { kind: 'unasked' } });
says('it is a container, and the probe in it computes', {
  unit: unit({ execStart: ['/usr/bin/podman', 'run', '--name=ollama', 'ollama/ollama'] }),
  computeAsked: true,
  probe: ran({ ok: true, wrong: 0 }),
});

// The name of a simulated GPU.
const simulated = report().devices.map((one) => ({ ...one, name: `${one.name} (simulated)` }));
says('the log names a simulated device beside another', {
  log: {
    ...gpu,
    devices: [...gpu.devices, ...gpu.devices.map((one) => ({ ...one, name: `${one.name} (simulated)` }))],
  },
});
says('the probe finds two devices', { probe: answered({ devices: [...report().devices, ...simulated] }) });
says('the probe names a simulated device', { probe: answered({ devices: simulated }) });
says('a simulated GPU, and the unit is down', {
  end: 'unit-failed',
  probe: answered({ simulated: true }),
});

// The consumer's output.
says('it wrote nothing at all', { log: { ...silent, entries: 0 } });
says('it wrote something else', { log: { ...silent, entries: 3 } });
const words = ['short', 'x'.repeat(400), 'y'.repeat(401)].map((text) => ({ text, source: 'line' }));
says('its last words are long', { log: silent, end: 'unit-restarting', restarts: 1, lastWords: words });
says('its last words count for nothing where it runs', { log: silent, lastWords: words });
says('its last words are in the log already', {
  end: 'unit-failed',
  lastWords: cpu.evidence.map(({ text }) => ({ text, source: 'line' })),
  log: cpu,
});

file.nothingElse();
