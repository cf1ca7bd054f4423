/** Where the consumer works now: its own word against the host's sessions. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { HostSession, RefusedMemory, TurnedAway } from '../../../agent/contracts/sessions.js';
import { decideVerdict } from '../../../agent/verdict/decide.js';
import type { LoadedModel, Observation, PresentSeen } from '../../../agent/verdict/observation.js';
import { inWords, loadedModels, presentOf } from '../../../agent/verdict/present.js';
import {
  answered,
  findingsOf,
  fixtureText,
  hostWord,
  judgeLog,
  llamaServer,
  noDevice,
  observation,
  ollama,
  unit,
  withoutHost,
} from './support.js';

const gpuLog = findingsOf('0.32.9_gpu-mode_debug0');
const gpuLines = fixtureText('0.32.9_gpu-mode_debug0').split('\n');
const cpuLoad = judgeLog(ollama, [
  ...gpuLines,
  'load_tensors: loading model tensors',
  'load_tensors:          CPU model buffer size =     5.28 MiB',
]);

function session(changes: Partial<HostSession> = {}): HostSession {
  return {
    session: 3,
    age: 5_000,
    memory: 1_000,
    launches: 9,
    calls: 99,
    refused: 0,
    lastRefusal: 0,
    carrier: 'rings',
    claimed: { library: 'libcuda', pid: 140, pidNamespace: 0, program: 'llama-server' },
    ...changes,
  };
}
const nvml = session({ claimed: { ...session().claimed, library: 'libnvidia-ml' } });

function model(name: string, gpuBytes: number, bytes = 4_000): LoadedModel {
  return { name, bytes, gpuBytes };
}

function present(
  models: readonly LoadedModel[] | null,
  own: readonly HostSession[] | null,
  turnedAway: TurnedAway | null = null,
  processes = 9,
): PresentSeen {
  return {
    loaded: models === null ? { kind: 'unasked' } : { kind: 'told', url: 'http://x/api/ps', models },
    sessions:
      own === null
        ? { kind: 'unknown', message: 'x' }
        : { kind: 'told', own, processes, others: 0, turnedAway, refusedKernels: null, memory: null },
  };
}

function judged(seen: PresentSeen, changes: Partial<Observation> = {}): readonly [string, string | null] {
  const { mode, reason } = decideVerdict(observation({ log: gpuLog, present: seen, ...changes }));
  return [mode, reason];
}

function kindOf(seen: PresentSeen, changes: Partial<Observation> = {}): string {
  return presentOf(observation({ log: gpuLog, present: seen, ...changes })).kind;
}

test('a model that lies on the CPU by its own word is on the CPU, whatever the start said', () => {
  assert.deepEqual(judged(present([model('a', 0)], null)), ['cpu', 'model-on-cpu']);
  assert.deepEqual(judged(present([model('a', 0), model('b', 0)], null)), ['cpu', 'model-on-cpu']);
});

test('one of two models on the CPU degrades the verdict, and is named', () => {
  const seen = present([model('a', 4_000), model('b', 0)], null);
  assert.deepEqual(judged(seen), ['degraded', 'model-on-cpu']);
  const { summary, evidence } = decideVerdict(observation({ log: gpuLog, present: seen }));
  assert.match(summary, /b: 0 bytes of 3\.9 KiB on the GPU/);
  assert.doesNotMatch(summary, /a: /);
  assert.deepEqual(
    evidence.filter(({ kind }) => kind === 'loaded').map(({ weight }) => weight),
    ['for', 'against'],
  );
});

test('a part on the CPU degrades', () => {
  assert.deepEqual(judged(present([model('a', 3_999)], null)), ['degraded', 'layers-not-offloaded']);
});

test("AMX memory that Ollama counts as a GPU's does not hide a model on the CPU", () => {
  const one = present([model('a', 700)], null);
  assert.deepEqual(judged(one, { log: cpuLoad }), ['cpu', 'model-on-cpu']);
  const two = present([model('a', 700), model('b', 4_000)], null);
  assert.deepEqual(judged(two, { log: cpuLoad }), ['degraded', 'model-on-cpu']);
});

test('a runner that is young may still be loading: that is not known, and never the CPU', () => {
  const aged = (models: readonly LoadedModel[], youngest: number, ...rest: [HostSession[], TurnedAway?]) => {
    const seen = present(models, ...rest);
    const { sessions } = seen;
    return { ...seen, sessions: sessions.kind === 'told' ? { ...sessions, youngest } : sessions };
  };
  const loading = session({ memory: 0, launches: 0 });
  for (const own of [[], [loading], [nvml]])
    assert.deepEqual(judged(aged([model('a', 4_000)], 3, own)), ['undetermined', 'no-work-yet']);
  const second = aged([model('a', 4_000), model('b', 4_000)], 3, [session(), loading]);
  assert.deepEqual(judged(second), ['undetermined', 'no-work-yet']);
  assert.deepEqual(judged(aged([model('a', 4_000)], 3, [session()])), ['gpu', null], 'it has begun');
  assert.deepEqual(judged(aged([model('a', 4_000)], 120, [loading])), ['cpu', 'model-on-cpu'], 'too late');
  assert.deepEqual(judged(aged([model('a', 0)], 3, [])), ['cpu', 'model-on-cpu'], 'its own word is CPU');
  const away: TurnedAway = { count: 1, status: 'busy', age: 1 };
  assert.deepEqual(judged(aged([model('a', 4_000)], 3, [], away)), ['cpu', 'host-refused'], 'it gets none');
});

test('a model is loaded and the host has no session of its processes: on the CPU, though it says GPU', () => {
  const whole = [model('a', 4_000)];
  assert.deepEqual(judged(present(whole, [])), ['cpu', 'model-on-cpu']);
  assert.deepEqual(judged(present(whole, [nvml])), ['cpu', 'model-on-cpu']);
  assert.deepEqual(judged(present(whole, [session({ memory: 0, launches: 0 })])), ['cpu', 'model-on-cpu']);
  assert.deepEqual(judged(present(whole, [session({ launches: 0 })])), ['gpu', null], 'it holds memory');
  assert.deepEqual(judged(present(whole, [session({ memory: 0 })])), ['gpu', null], 'it has computed');
});

test('fewer sessions than models degrade', () => {
  const seen = present([model('a', 4_000), model('b', 4_000)], [session()]);
  assert.deepEqual(judged(seen), ['degraded', 'model-on-cpu']);
  assert.deepEqual(judged(present([model('a', 4_000)], [session(), session()])), ['gpu', null]);
});

test('a model whose process has crashed is listed for some time, and is on no device', () => {
  const two = [model('a', 4_000), model('b', 4_000)];
  assert.deepEqual(judged(present(two, [session()], null, 2)), ['gpu', null]);
  assert.deepEqual(judged(present(two, [session()], null, 3)), ['degraded', 'model-on-cpu']);
  assert.deepEqual(judged(present([model('a', 4_000)], [], null, 1)), ['gpu', null], 'the start counts');
  assert.equal(kindOf(present([model('a', 0)], [], null, 1)), 'nothing');
});

test('a limit of the host that is below what is loaded is named', () => {
  const seen = present([model('a', 3_000)], [session()]);
  assert.ok(seen.sessions.kind === 'told');
  const told = (
    limit: number,
    by: 'guest' | 'session',
    refused: RefusedMemory | null = null,
  ): Observation => {
    const sessions = { ...seen.sessions, memory: { limit, by, line: 3, refused } };
    return observation({ log: gpuLog, present: { ...seen, sessions } });
  };
  const summary = (...limit: Parameters<typeof told>): string => decideVerdict(told(...limit)).summary;
  assert.match(
    summary(3_999, 'guest'),
    /a: 2\.9 KiB of 3\.9 KiB on the GPU; all sessions of this guest may hold 3\.9 KiB of device memory together \(memory= in line 3 of hostd\.conf on the host\), and what is loaded needs 3\.9 KiB/,
  );
  assert.match(summary(3_999, 'session'), /a session of this guest may hold 3\.9 KiB/);
  for (const limit of [0, 4_000]) assert.doesNotMatch(summary(limit, 'guest'), /may hold/);
  const refused = {
    count: 1,
    age: 3,
    program: 'p',
    bytes: 2_048,
    limit: 4_096,
    free: 1_024,
    by: 'guest',
  } as const;
  const said = (one: Observation): readonly string[] =>
    decideVerdict(one).evidence.flatMap(({ text }) => (text.startsWith('the host refused') ? [text] : []));
  assert.deepEqual(said(told(4_096, 'guest')), []);
  assert.deepEqual(said(told(4_096, 'guest', refused)), [
    'the host refused p 2.0 KiB of device memory 3 s ago: all sessions of this guest may hold 4.0 KiB of device memory together (memory= in line 3 of hostd.conf on the host), and 1.0 KiB were free',
  ]);
});

test('when memory is missing the next command is the doctor, which knows the limit; otherwise it is a restart', () => {
  const told = (gpuBytes: readonly number[], limit: number, refused: RefusedMemory | null): PresentSeen => {
    const seen = present(
      gpuBytes.map((bytes, index) => model(`m${index}`, bytes)),
      [session(), session()],
    );
    assert.ok(seen.sessions.kind === 'told');
    return { ...seen, sessions: { ...seen.sessions, memory: { limit, by: 'guest', line: 3, refused } } };
  };
  const next = (seen: PresentSeen, changes: Partial<Observation> = {}): string | null =>
    decideVerdict(observation({ log: gpuLog, present: seen, ...changes })).next;
  const doctor = 'sudo vgpu-agent doctor --profile ollama';
  const refused = { count: 1, age: 3, program: 'p', bytes: 9, limit: 9, free: 1, by: 'guest' } as const;
  const [partly, wholly] = [[3_000], [4_000, 0]];
  assert.match(next(told(partly, 0, null)) ?? '', /^sudo systemctl edit ollama\.service && /);
  assert.match(next(told(wholly, 0, null)) ?? '', /^sudo systemctl restart ollama\.service && /);
  for (const bytes of [partly, wholly]) {
    assert.equal(next(told(bytes, 3_999, null)), doctor, 'the limit is below what is loaded');
    assert.equal(next(told(bytes, 0, refused)), doctor, 'the host refused memory');
    const short = { kind: 'log-line', text: 'cannot meet free memory target', source: '' } as const;
    assert.ok(cpuLoad.load !== null);
    const counted = { ...cpuLoad, load: { ...cpuLoad.load, short } };
    assert.equal(next(told(bytes, 0, null), { log: counted }), doctor, 'the consumer counted too little');
  }
});

test('a session that was refused is the reason', () => {
  const refusals: TurnedAway = { count: 1, status: 'busy', age: 3 };
  const seen = present([model('a', 4_000), model('b', 0)], [session()], refusals);
  assert.deepEqual(judged(seen), ['degraded', 'host-refused']);
  const { summary } = decideVerdict(observation({ log: gpuLog, present: seen }));
  assert.match(
    summary,
    /refused a session of this guest, the last 3 s ago: it has reached its limit of sessions/,
  );
});

test('a host that is full serves those that it has: a probe without a place is no contradiction', () => {
  const refusals: TurnedAway = { count: 2, status: 'busy', age: 0 };
  const full = hostWord('refused', { status: 'busy' });
  const probe = answered({ ok: false, devices: [], roundTrip: null, host: full });
  const seen = present([model('a', 4_000)], [session()], refusals);
  assert.deepEqual(judged(seen, { probe }), ['gpu', null]);
  assert.deepEqual(judged(present([model('a', 4_000)], [session()]), { probe }), [
    'degraded',
    'host-refused',
  ]);
  assert.equal(judged(present([], [], refusals), { probe })[0], 'degraded', 'nobody is served');
});

test('a host that was full once explains no other trouble of the probe', () => {
  const refusals: TurnedAway = { count: 1, status: 'busy', age: 7_200 };
  const seen = present([model('a', 4_000)], [session()], refusals);
  const foreign = answered({ library: '/usr/lib/libcuda.so.1' });
  assert.deepEqual(judged(seen, { probe: foreign }), ['degraded', 'foreign-library-loaded']);
  const spoilt = answered({ ok: false, roundTrip: { bytes: 4096, microseconds: 9, ok: false } });
  assert.deepEqual(judged(seen, { probe: spoilt }), ['degraded', 'memory-round-trip-failed']);
});

test('with nothing loaded the last load counts until there is a newer one', () => {
  assert.deepEqual(judged(present([], []), { log: cpuLoad }), ['degraded', 'model-on-cpu']);
  assert.deepEqual(judged(present(null, null), { log: cpuLoad }), ['degraded', 'model-on-cpu']);
  assert.deepEqual(judged(present(null, [session()]), { log: cpuLoad }), ['degraded', 'model-on-cpu']);
  assert.deepEqual(judged(present([], []), { log: gpuLog }), ['gpu', null]);
});

test('other evidence of the log against the GPU stays, although the loaded model computes at the host', () => {
  const seen = present([model('a', 4_000)], [session()]);
  const failed = { ...cpuLoad, reason: 'context-create-failed' } as const;
  assert.deepEqual(judged(seen, { log: failed }), ['degraded', 'context-create-failed']);
  const { load } = cpuLoad;
  assert.ok(load !== null);
  const contradicted = { ...cpuLoad, load: { ...load, outcome: 'gpu' } } as const;
  assert.deepEqual(judged(seen, { log: contradicted }), ['degraded', 'model-on-cpu']);
  assert.deepEqual(judged(seen, { log: { ...cpuLoad, load: null } }), ['degraded', 'model-on-cpu']);
});

test('the verdict is gpu once the model on the CPU is gone and the loaded one computes at the host', () => {
  const whole = [model('a', 4_000)];
  assert.deepEqual(judged(present(whole, [session()]), { log: cpuLoad }), ['gpu', null]);
  assert.deepEqual(
    judged(present(whole, null), { log: cpuLoad }),
    ['degraded', 'model-on-cpu'],
    'its word alone',
  );
  assert.deepEqual(judged(present(whole, [session({ launches: 0 })]), { log: cpuLoad })[0], 'degraded');
});

test('a consumer whose log says nothing is on the GPU if the host ran its kernels', () => {
  const changes = { profile: llamaServer, log: judgeLog(llamaServer, []) };
  assert.deepEqual(judged(present(null, [session()]), changes), ['gpu', null]);
  const verdict = decideVerdict(observation({ ...changes, present: present(null, [session()]) }));
  assert.deepEqual(verdict.devices, [
    { library: 'cuda', compute: '9.0', name: 'NVIDIA H100 80GB HBM3', pci: '0000:01:00.0' },
  ]);
  assert.match(verdict.summary, /runs on the GPU: NVIDIA H100/);
  const unprobed = decideVerdict(
    observation({ ...changes, present: present(null, [session()]), probe: null }),
  );
  assert.equal(unprobed.summary, 'llama-server runs on the GPU.');
});

test('a session without a kernel leaves it open, and its absence once it is ready means CPU', () => {
  const changes = { profile: llamaServer, log: judgeLog(llamaServer, []) };
  const idle = present(null, [session({ launches: 0 })]);
  assert.deepEqual(judged(idle, changes), ['undetermined', 'no-work-yet']);
  assert.match(
    decideVerdict(observation({ ...changes, present: idle })).summary,
    /llama-server \(process 140\), 1000 bytes of device memory, no kernel so far/,
  );
  const told = idle.sessions;
  assert.ok(told.kind === 'told');
  for (const [program, says] of [
    [
      'llama-server',
      /no kernel so far; the host could not run 2 kernels of this guest, the last for llama-server\)/,
    ],
    ['another', /no kernel so far\)/],
  ] as const) {
    const refusedKernels = { count: 2, age: 1, program, kernel: 'k' };
    const seen = { ...idle, sessions: { ...told, refusedKernels } };
    assert.match(decideVerdict(observation({ ...changes, present: seen })).summary, says);
  }
  assert.deepEqual(judged(present(null, []), changes), ['cpu', 'no-session']);
  const silent = { kind: 'silent', url: 'u', lastError: 'e' } as const;
  assert.equal(judged(present(null, []), { ...changes, readiness: silent })[0], 'undetermined');
  assert.equal(judged(present(null, null), changes)[0], 'undetermined');
});

test('a consumer whose log says nothing, and whose host is gone or frozen, is degraded for that reason', () => {
  const changes = { profile: llamaServer, log: judgeLog(llamaServer, []) };
  const unknown = present(null, null);
  const gone = {
    probe: noDevice,
    host: { kind: 'unreachable', message: 'Connection refused', word: null },
  } as const;
  assert.deepEqual(judged(unknown, { ...changes, ...gone }), ['degraded', 'host-unreachable']);
  const frozen = withoutHost(hostWord('timeout'));
  assert.deepEqual(judged(unknown, { ...changes, probe: frozen }), ['degraded', 'host-slow']);
  const silent = { kind: 'silent', url: 'u', lastError: 'e' } as const;
  assert.equal(judged(unknown, { ...changes, ...gone, readiness: silent })[0], 'undetermined', 'not up yet');
});

test('a start on the CPU stays one', () => {
  const log = findingsOf('0.32.9_count0_debug0');
  for (const own of [null, [], [session()]])
    assert.equal(judged(present([model('a', 0)], own), { log })[0], 'cpu');
});

test('a unit that does not run has no present evidence', () => {
  assert.deepEqual(judged(present([model('a', 0)], []), { end: 'unit-failed' }), [
    'undetermined',
    'unit-failed',
  ]);
});

test('present evidence', () => {
  assert.equal(kindOf(present(null, null)), 'nothing');
  assert.equal(kindOf(present([], null)), 'nothing');
  assert.equal(kindOf(present([], [])), 'nothing', 'Ollama has sessions only while a model is loaded');
  assert.equal(kindOf(present([], [session()])), 'works');
  assert.equal(kindOf(present([], [session({ launches: 0 })])), 'waits');
  assert.equal(kindOf(present([model('a', 4_000)], null)), 'fits');
  assert.equal(kindOf(present([model('a', 4_000)], [session({ launches: 0 })])), 'fits');
  assert.equal(kindOf(present([model('a', 4_000)], [session()])), 'works');
  assert.equal(kindOf(present([model('a', 0, 0)], null)), 'nothing', 'a model without a size is nowhere');
});

test('a model of 0 bytes is not on the GPU: nothing is said of it for 20 s, and then the host decides', () => {
  const aged = (youngest: number): PresentSeen => {
    const seen = present([model('a', 0, 0)], [session({ memory: 0, launches: 0 })]);
    const { sessions } = seen;
    return { ...seen, sessions: sessions.kind === 'told' ? { ...sessions, youngest } : sessions };
  };
  assert.deepEqual(judged(aged(19)), ['undetermined', 'no-work-yet']);
  assert.deepEqual(judged(aged(20)), ['cpu', 'model-on-cpu']);
  const { evidence } = decideVerdict(observation({ log: gpuLog, present: aged(1) }));
  assert.deepEqual(
    evidence.filter(({ kind }) => kind === 'loaded').map(({ weight }) => weight),
    ['neutral'],
  );
});

test('a server that is ready, and for which the host has no byte and no kernel, is not on the GPU', () => {
  const log = { ...gpuLog, load: null };
  const ready = { kind: 'answered', url: 'http://x/health', afterMs: 1 } as const;
  const empty = present(null, [session({ memory: 0, launches: 0 })]);
  const changes = { profile: llamaServer, log, readiness: ready };
  assert.deepEqual(judged(empty, changes), ['undetermined', 'no-work-yet']);
  assert.equal(judged(present(null, [session({ launches: 0 })]), changes)[0], 'gpu', 'it holds its model');
});

test('a consumer with nothing loaded keeps the verdict of its start, and says that it is idle', () => {
  const { mode, idle, summary } = decideVerdict(observation({ log: gpuLog, present: present([], []) }));
  assert.deepEqual([mode, idle], ['gpu', true]);
  assert.match(summary, /It is idle: nothing is loaded/);
});

test('a consumer whose loads fail keeps the verdict of its start, with a hint and the log to read', () => {
  const line = (error: string): string =>
    `time=2026-01-01T00:00:00Z level=ERROR source=sched.go:489 msg="error loading llama server" error="${error}"`;
  const verdict = (error: string, models: Parameters<typeof present>[0]) =>
    decideVerdict(
      observation({ log: judgeLog(ollama, [...gpuLines, line(error)]), present: present(models, []) }),
    );
  const error = 'llama runner process has terminated: exit status 2';
  const failing = verdict(error, []);
  assert.equal(failing.mode, 'gpu');
  assert.match(failing.summary, /so this is the result of its start\. Its last load of a model failed/);
  assert.match(failing.next ?? '', /^sudo journalctl _SYSTEMD_INVOCATION_ID=/);
  assert.ok(failing.evidence.some(({ text }) => text.includes(error)));
  const stopped = verdict('timed out waiting for llama runner to start: context canceled', []);
  assert.equal(stopped.next, null, 'the client of that request went away');
});

test('what is loaded now is loaded, whatever failed before', () => {
  const log = { ...gpuLog, loadError: { kind: 'log-line', text: 'Load failed', source: 'line 1' } } as const;
  const { summary } = decideVerdict(
    observation({ log, present: present([model('a', 4_000)], [session({})]) }),
  );
  assert.doesNotMatch(summary, /load of a model failed/);
  assert.equal(
    decideVerdict(observation({ log: gpuLog, present: present([model('a', 4_000)], null) })).idle,
    undefined,
  );
});

test('the list of what is loaded is read as the profile names its members', () => {
  const rule = ollama.serving;
  assert.ok(rule !== undefined);
  const read = (value: unknown): unknown => loadedModels(rule, JSON.stringify(value));
  assert.deepEqual(read({ models: [{ name: 'a', size: 5, size_vram: 3 }] }), [
    { name: 'a', bytes: 5, gpuBytes: 3 },
  ]);
  assert.deepEqual(read({ models: [{ size: 5 }] }), [{ name: '?', bytes: 5, gpuBytes: 0 }]);
  assert.deepEqual(read({ models: [] }), []);
  assert.deepEqual(read({ models: null }), []);
  for (const bad of [{}, [], 7, { models: 7 }, { models: [7] }, { models: [{ size: '5' }] }])
    assert.equal(read(bad), null, JSON.stringify(bad));
  assert.equal(read({ models: [{ size: -1, size_vram: 0 }] }), null);
  assert.equal(loadedModels(rule, 'no json'), null);
  assert.equal(loadedModels({ path: '/x', list: 'models' }, '{"models":[]}'), null);
});

test('bytes in words', () => {
  assert.deepEqual([0, 1023, 1024, 1_572_864, 85_017_755_648, 2 ** 52].map(inWords), [
    '0 bytes',
    '1023 bytes',
    '1.0 KiB',
    '1.5 MiB',
    '79.2 GiB',
    '4096.0 TiB',
  ]);
});

const begin = 'load_tensors: loading model tensors, this can take a while...';
const layersOf = (gpu: number) => `load_tensors: offloaded ${gpu}/3 layers to GPU`;
const weights = 'load_tensors:   CPU_Mapped model buffer size =     0.60 MiB';
const cudaWeights = 'load_tensors:        CUDA0 model buffer size =     0.68 MiB';
const logOf = (...lines: readonly string[]) =>
  judgeLog(ollama, [...fixtureText('0.32.9_gpu-mode_debug0').split('\n'), begin, ...lines]);

test('mapped weights that Ollama counts twice do not degrade: its layers and the bytes of the host decide', () => {
  const log = logOf(layersOf(3), weights, cudaWeights);
  const twice = [{ name: 'a', bytes: 8_000, gpuBytes: 4_000 }];
  assert.deepEqual(judged(present(twice, [session({ memory: 4_096 })]), { log }), ['gpu', null]);
  const { evidence } = decideVerdict(
    observation({ log, present: present(twice, [session({ memory: 4_096 })]) }),
  );
  const line = evidence.find(({ kind }) => kind === 'loaded');
  assert.deepEqual(line?.weight, 'neutral');
  const part = ['degraded', 'layers-not-offloaded'];
  assert.deepEqual(judged(present(twice, [session({ memory: 1_000 })]), { log }), part, 'the host has less');
  assert.deepEqual(judged(present(twice, [session({ memory: 4_096 })])), part, 'the log names no layers');
  const some = logOf(layersOf(2), weights, cudaWeights);
  assert.deepEqual(
    judged(present(twice, [session({ memory: 4_096 })]), { log: some }),
    part,
    '2 of 3 layers',
  );
});

/** Of a unit with a variable that keeps its models off the GPU; llama-server counts all layers as offloaded then. */
const forced = (environment: Readonly<Record<string, string>>): Partial<Observation> => ({
  log: logOf(layersOf(3), weights),
  unit: unit({ environment }),
});

test('a variable that keeps models off the GPU is the reason, and no restart is the advice', () => {
  const told = (environment: Readonly<Record<string, string>>, seen: PresentSeen) => {
    const { mode, reason, summary, next } = decideVerdict(
      observation({ ...forced(environment), present: seen }),
    );
    return { verdict: `${mode} ${reason}`, summary, next };
  };
  const noDevice = { LLAMA_ARG_DEVICE: 'none' };
  // Ollama counts nothing then.
  const nothing = present([{ name: 'a', bytes: 0, gpuBytes: 0 }], [], null, 2);
  const { sessions } = nothing;
  const young = { ...nothing, sessions: sessions.kind === 'told' ? { ...sessions, youngest: 3 } : sessions };
  for (const seen of [nothing, young])
    assert.equal(told(noDevice, seen).verdict, 'cpu devices-hidden-by-environment');
  const overridden = { LLAMA_ARG_OVERRIDE_TENSOR: '.*=CPU' };
  const says = told(overridden, present([model('a', 4_000)], [session()]));
  assert.equal(says.verdict, 'degraded library-forced-to-cpu');
  assert.match(says.summary, /LLAMA_ARG_OVERRIDE_TENSOR=\.\*=CPU: llama-server/);
  assert.match(says.next ?? '', /^sudo systemctl edit ollama\.service && /);
  const noLayers = told({ LLAMA_ARG_N_GPU_LAYERS: '0' }, present([model('a', 0)], []));
  assert.equal(noLayers.verdict, 'cpu library-forced-to-cpu');
  assert.equal(told({ LLAMA_ARG_OVERRIDE_TENSOR: 'exps=CPU' }, nothing).verdict, 'cpu model-on-cpu');
});

test('a variable keeps models off the GPU and the log does not say where they are, as llama-server since 2026', () => {
  const llama = (own: readonly HostSession[], changes: Parameters<typeof unit>[0]): string => {
    const seen = { present: present(null, own), log: judgeLog(llamaServer, []), unit: unit(changes) };
    const { mode, reason } = decideVerdict(observation({ ...seen, profile: llamaServer }));
    return `${mode} ${reason}`;
  };
  const waits = [session({ launches: 0 })];
  const noLayers = { LLAMA_ARG_N_GPU_LAYERS: '0' };
  assert.equal(llama(waits, { environment: {} }), 'undetermined no-work-yet');
  assert.equal(llama(waits, { environment: noLayers }), 'cpu library-forced-to-cpu');
  assert.equal(
    llama(waits, { environment: { LLAMA_ARG_DEVICE: 'none' } }),
    'cpu devices-hidden-by-environment',
  );
  // Its cache, and long prompts, are computed on the GPU all the same.
  assert.equal(llama([session()], { environment: noLayers }), 'degraded library-forced-to-cpu');
  for (const option of ['-ngl', '--n-gpu-layers=99'])
    assert.equal(llama([session()], { environment: noLayers, execStart: ['/x', option, '99'] }), 'gpu null');
});

test('a consumer that works, and whose silenced log does not name its address, is not asked for at a guess', () => {
  const works = (
    lastError: string,
    changes: Parameters<typeof unit>[0],
    more: Partial<Observation> = {},
  ): string => {
    const { mode, reason } = decideVerdict(
      observation({
        profile: llamaServer,
        log: judgeLog(llamaServer, []),
        present: present(null, [session()]),
        readiness: { kind: 'silent', url: 'http://127.0.0.1:8080/health', lastError },
        unit: unit(changes),
        ...more,
      }),
    );
    return `${mode} ${reason}`;
  };
  const silenced = { standardOutput: 'null', standardError: 'null' };
  assert.equal(works('ECONNREFUSED', silenced), 'gpu null');
  assert.equal(works('no answer within 1000 ms', silenced), 'degraded readiness-timeout');
  assert.equal(works('ECONNREFUSED', {}), 'degraded readiness-timeout');
  const named = judgeLog(llamaServer, ['server is listening on http://127.0.0.1:9931']);
  assert.equal(works('ECONNREFUSED', silenced, { log: named }), 'degraded readiness-timeout');
  const configured = { ...silenced, environment: { OLLAMA_HOST: ':1' } };
  assert.equal(works('ECONNREFUSED', configured, { profile: ollama }), 'degraded readiness-timeout');
});

test('a model that was asked to have no layer on the GPU needs no restart', () => {
  const seen = present([model('a', 0)], []);
  const { reason, next } = decideVerdict(observation({ log: logOf(layersOf(0), weights), present: seen }));
  assert.deepEqual([reason, next], ['model-on-cpu', 'sudo vgpu-agent doctor --profile ollama']);
});

test('a size of 0 is no evidence for the GPU', () => {
  const none = present([{ name: 'a', bytes: 0, gpuBytes: 0 }], null);
  assert.equal(kindOf(none), 'nothing');
  const { evidence } = decideVerdict(observation({ log: gpuLog, present: none }));
  assert.deepEqual(
    evidence.filter(({ kind }) => kind === 'loaded').map(({ text, weight }) => [text, weight]),
    [['a: it reports no size', 'neutral']],
  );
});

test('the advice does not speak of unloading when nothing is loaded any more', () => {
  const { reason, summary } = decideVerdict(observation({ log: cpuLoad, present: present([], []) }));
  assert.equal(reason, 'model-on-cpu');
  assert.match(summary, /no model is loaded now; the next one may be put there too/);
});
