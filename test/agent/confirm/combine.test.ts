import assert from 'node:assert/strict';
import { test } from 'node:test';
import { combine } from '../../../agent/confirm/combine.js';
import type { Observation } from '../../../agent/confirm/observation.js';
import type { ProcessFacts } from '../../../agent/contracts/facts.js';
import type { ProbeResult } from '../../../agent/contracts/probe.js';
import {
  answered,
  findingsOf,
  fixtureText,
  hostWord,
  judgeLog,
  libraries,
  llamaServer,
  type MappedVendor,
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

function judged(changes: Partial<Observation>): readonly [string, string | null] {
  const { mode, reason } = combine(observation(changes));
  return [mode, reason];
}

const gpu = findingsOf('0.32.9_gpu-mode_debug0');
const cpu = findingsOf('0.32.9_count0_debug0');
const silent = judgeLog(ollama, []);
const unreachable = { kind: 'unreachable', message: 'connect ENOENT', word: null } as const;
const hostAnswers = {
  kind: 'answers',
  device: 'NVIDIA H100 80GB HBM3',
  simulated: false,
  milliseconds: 40,
} as const;
const notRun: ProbeResult = { kind: 'not-run', message: 'systemd-run is missing' };

function main(...vendors: readonly MappedVendor[]): Observation['processes'] {
  return [{ role: 'main', facts: processFacts({ libraries: libraries(...vendors) }) }];
}
function child(
  vendors: readonly MappedVendor[],
  changes: Partial<ProcessFacts> = {},
): Observation['processes'] {
  return [
    {
      role: 'child',
      facts: processFacts({
        pid: 120,
        parent: 100,
        name: 'llama-server',
        libraries: libraries(...vendors),
        ...changes,
      }),
    },
  ];
}

test('this start says cuda, the shim is in the right process, the probe answers: gpu', () => {
  const verdict = combine(observation());
  assert.equal(verdict.mode, 'gpu');
  assert.equal(verdict.reason, null);
  assert.equal(verdict.next, null);
  assert.equal(verdict.simulated, false);
  assert.equal(verdict.consumerVersion, '0.32.9');
  assert.equal(verdict.invocationId, 'a'.repeat(32));
  assert.deepEqual(verdict.devices, [
    { library: 'cuda', compute: '9.0', name: 'NVIDIA H100 80GB HBM3', pci: '0000:01:00.0' },
  ]);
  assert.deepEqual(
    verdict.evidence.filter(({ weight }) => weight === 'for').map(({ kind }) => kind),
    ['log-line', 'probe'],
    'LD_PRELOAD puts our libcuda into every process: its maps say nothing',
  );
  assert.deepEqual(
    verdict.evidence.filter(({ weight }) => weight === 'against'),
    [],
  );
});

test('the shim in a child alone, or the probe alone, is proof enough beside the log', () => {
  const loadedItself = withoutPreload(
    observation({ processes: [...main(), ...child(['vgpu'])], probe: notRun }),
  );
  const verdict = combine(loadedItself);
  assert.deepEqual([verdict.mode, verdict.reason], ['gpu', null]);
  assert.ok(verdict.evidence.some(({ kind, weight }) => kind === 'maps' && weight === 'for'));
  assert.deepEqual(judged({ processes: main() }), ['gpu', null]);
  assert.deepEqual(judged({ processes: [] }), ['gpu', null]);
});

test('a libcuda that LD_PRELOAD put there is no proof', () => {
  const processes = [...main('vgpu'), ...child(['vgpu'])];
  const verdict = combine(observation({ processes, probe: notRun }));
  assert.deepEqual([verdict.mode, verdict.reason], ['undetermined', 'shim-not-loaded']);
  const maps = verdict.evidence.filter(({ kind }) => kind === 'maps');
  assert.equal(maps.length, 2);
  for (const { weight, text } of maps) {
    assert.equal(weight, 'neutral');
    assert.match(text, /has our libcuda loaded, as LD_PRELOAD gives it to every process/);
  }
});

test('the log alone is never enough', () => {
  assert.deepEqual(judged({ processes: main(), probe: notRun }), ['undetermined', 'shim-not-loaded']);
  assert.deepEqual(judged({ processes: [], probe: notRun }), ['undetermined', 'shim-not-loaded']);
  assert.deepEqual(judged({ processes: [], probe: null }), ['undetermined', 'shim-not-loaded']);
});

test('no evidence but the log makes gpu: all else at its best, the log not saying so', () => {
  for (const log of [
    cpu,
    silent,
    findingsOf('0.32.9_native-probe-crash_debug0'),
    judgeLog(llamaServer, []),
  ]) {
    assert.notEqual(combine(observation({ log })).mode, 'gpu');
  }
});

test('a context that cannot be created is named for what it is', () => {
  for (const step of ['cuDevicePrimaryCtxRetain', 'cuCtxSetCurrent']) {
    const message = `${step} failed with 801`;
    const error = { kind: 'call', step, code: 801, name: 'CUDA_ERROR_NOT_SUPPORTED', message } as const;
    const probe = answered({ ok: false, roundTrip: null, error });
    assert.deepEqual(judged({ probe }), ['degraded', 'context-create-failed']);
    assert.deepEqual(judged({ log: cpu, probe }), ['cpu', 'context-create-failed']);
  }
});

test('a variable from an environment file is named with its file, which the next command opens', () => {
  const hidden = unit({
    environmentFileContents: [{ path: '/etc/default/ollama', content: 'CUDA_VISIBLE_DEVICES=-1\n' }],
  });
  const verdict = combine(observation({ log: cpu, unit: hidden }));
  assert.equal(verdict.reason, 'devices-hidden-by-environment');
  assert.match(verdict.summary, /CUDA_VISIBLE_DEVICES=-1 in \/etc\/default\/ollama/);
  assert.match(
    verdict.next ?? '',
    /^sudoedit \/etc\/default\/ollama && sudo systemctl restart ollama\.service/,
  );
  const inUnit = combine(
    observation({ log: cpu, unit: unit({ environment: { CUDA_VISIBLE_DEVICES: '-1' } }) }),
  );
  assert.match(inUnit.next ?? '', /^sudo systemctl edit ollama\.service/);
});

test('a preload that is not there is no word on file capabilities where the store cannot be used at all', () => {
  const bare = findingsOf('0.32.9_cuda_v13_no-libcuda_debug0');
  const lost = combine(observation({ log: bare, processes: main(), probe: notRun }));
  assert.equal(lost.reason, 'preload-ignored');
  assert.match(lost.summary, /see whether \/opt\/vgpu\/current is there and readable/);
  assert.doesNotMatch(lost.summary, /getcap/);
});

test('libnvidia-ml alone is no proof', () => {
  const nvml = [
    {
      path: '/opt/vgpu/versions/0123456789abcdef/libnvidia-ml.so.1',
      deleted: false,
      vendor: 'vgpu' as const,
    },
  ];
  assert.deepEqual(judged({ processes: child([], { libraries: nvml }), probe: notRun }), [
    'undetermined',
    'shim-not-loaded',
  ]);
});

test('a foreign libcuda in a process that counts: degraded, whatever else is fine', () => {
  const expected = ['degraded', 'foreign-library-loaded'];
  assert.deepEqual(judged({ processes: main('nvidia') }), expected);
  assert.deepEqual(judged({ processes: main('foreign') }), expected);
  assert.deepEqual(judged({ processes: [...main('vgpu'), ...child(['nvidia'])] }), expected);
  assert.deepEqual(judged({ processes: main('vgpu', 'nvidia') }), expected);
  const verdict = combine(observation({ processes: main('nvidia') }));
  assert.match(verdict.summary, /libcuda\.so\.550\.163\.01/);
  assert.equal(verdict.next, 'sudo vgpu-agent plan --profile ollama');
});

test('a device that our probe does not find is not ours, or is gone', () => {
  const devices = report().devices.map((device) => ({ ...device, name: 'Tesla T4', compute: '7.5' }));
  for (const processes of [main('vgpu'), main(), []]) {
    const verdict = combine(observation({ processes, probe: answered({ devices }) }));
    assert.deepEqual([verdict.mode, verdict.reason], ['degraded', 'probe-disagrees']);
    assert.match(verdict.summary, /it names NVIDIA H100 80GB HBM3, vgpu-probe finds Tesla T4/);
  }
  const both = [...devices, ...report().devices];
  assert.equal(combine(observation({ probe: answered({ devices: both }) })).mode, 'gpu');
});

test('a preload that the loader ignored is told, whatever the verdict', () => {
  const verdict = combine(observation({ processes: main() }));
  assert.equal(verdict.mode, 'gpu');
  assert.ok(verdict.evidence.some(({ text, weight }) => weight === 'against' && /getcap/.test(text)));
  const loaded = combine(observation());
  assert.ok(!loaded.evidence.some(({ text }) => /getcap/.test(text)));
});

test('the rules of the profile say which processes count', () => {
  const profile = { ...ollama, evidence: { ...ollama.evidence, mapsOf: 'children' as const } };
  assert.deepEqual(judged({ profile, processes: main('nvidia') }), ['gpu', null]);
  assert.deepEqual(judged({ profile, processes: main('vgpu'), probe: notRun }), [
    'undetermined',
    'shim-not-loaded',
  ]);
  const only = { ...ollama, evidence: { ...ollama.evidence, mapsOf: 'main' as const } };
  assert.deepEqual(judged({ profile: only, processes: [...main('vgpu'), ...child(['nvidia'])] }), [
    'gpu',
    null,
  ]);
  const logAlone = { ...ollama, evidence: { mapsOf: 'none' as const, childrenMayExit: true, probe: false } };
  assert.deepEqual(judged({ profile: logAlone, processes: [], probe: null }), ['gpu', null]);
});

test('an older shim whose file is gone: the consumer was not restarted', () => {
  assert.deepEqual(judged({ processes: main('stale') }), ['degraded', 'consumer-not-restarted']);
  assert.deepEqual(judged({ processes: [...main('stale'), ...child(['vgpu'])] }), ['gpu', null]);
  const gone = [{ path: '/opt/vgpu/versions/ffff/libcuda.so.1', deleted: true, vendor: null }];
  assert.deepEqual(judged({ processes: child([], { libraries: gone }) }), [
    'degraded',
    'consumer-not-restarted',
  ]);
});

test('a process started before the drop-in, without the shim loaded: not restarted', () => {
  const processes = [
    { role: 'main' as const, facts: processFacts({ libraries: [], loaderEnvironment: {} }) },
  ];
  assert.deepEqual(judged({ processes }), ['degraded', 'consumer-not-restarted']);
  assert.deepEqual(judged({ processes, log: cpu }), ['cpu', 'consumer-not-restarted']);
  const unreadable = [
    {
      role: 'main' as const,
      facts: processFacts({ libraries: [], loaderEnvironment: {}, unreadable: ['maps', 'environ'] }),
    },
  ];
  assert.deepEqual(judged({ processes: unreadable }), ['gpu', null]);
});

test('the log says GPU but the probe meets trouble: degraded, with the trouble', () => {
  assert.deepEqual(judged({ probe: noDevice, host: unreachable }), ['degraded', 'host-unreachable']);
  assert.deepEqual(judged({ probe: noDevice, host: hostAnswers }), ['degraded', 'probe-disagrees']);
  const trip = report({
    ok: false,
    roundTrip: { bytes: 1048576, ok: false, microseconds: 1 },
    error: { kind: 'memory', step: 'compare', code: null, name: null, message: 'other bytes' },
  });
  assert.deepEqual(judged({ probe: answered(trip) }), ['degraded', 'memory-round-trip-failed']);
  assert.deepEqual(judged({ probe: { kind: 'crashed', message: 'SEGV' }, host: hostAnswers }), [
    'degraded',
    'probe-crashed',
  ]);
  assert.deepEqual(judged({ probe: { kind: 'timed-out', milliseconds: 10_000 }, host: hostAnswers }), [
    'degraded',
    'host-slow',
  ]);
  assert.deepEqual(
    judged({ probe: answered({ library: '/usr/lib/x86_64-linux-gnu/libcuda.so.550.163.01' }) }),
    ['degraded', 'foreign-library-loaded'],
  );
});

test('a GPU that never answers requests is degraded', () => {
  assert.deepEqual(
    judged({
      readiness: { kind: 'silent', url: 'http://127.0.0.1:11434/api/version', lastError: 'ECONNREFUSED' },
      end: 'timed-out',
    }),
    ['degraded', 'readiness-timeout'],
  );
  assert.deepEqual(judged({ readiness: { kind: 'unasked', why: 'x' } }), ['gpu', null]);
});

test('a simulated GPU is never called a real one, whichever evidence tells', () => {
  const text = fixtureText('0.32.9_gpu-mode_debug0').replaceAll('HBM3', 'HBM3 (simulated)');
  const devices = report().devices.map((device) => ({ ...device, name: `${device.name} (simulated)` }));
  const byLog = combine(
    observation({ log: judgeLog(ollama, text.split('\n')), probe: answered({ devices }) }),
  );
  assert.equal(byLog.mode, 'gpu');
  assert.equal(byLog.simulated, true);
  assert.match(byLog.summary, /simulated/);
  const byProbe = combine(observation({ probe: answered({ simulated: true }) }));
  assert.equal(byProbe.simulated, true);
  assert.match(byProbe.summary, /simulated/);
  const degraded = combine(observation({ probe: answered({ simulated: true }), processes: main('nvidia') }));
  assert.deepEqual([degraded.mode, degraded.simulated], ['degraded', true]);
  for (const log of [cpu, silent])
    assert.equal(combine(observation({ log, probe: answered({ simulated: true }) })).simulated, false);
});

test('a crashed discovery is degraded and says probe-crashed', () => {
  assert.deepEqual(judged({ log: findingsOf('0.32.9_native-probe-crash_debug0') }), [
    'degraded',
    'probe-crashed',
  ]);
});

const cpuCases: readonly (readonly [name: string, changes: Partial<Observation>, reason: string | null])[] = [
  [
    'the log names a certain reason',
    { log: findingsOf('0.32.9_v12dir-driver535_debug0'), probe: noDevice, host: unreachable },
    'driver-too-old',
  ],
  [
    'the log is vague, the host is away',
    { log: findingsOf('0.11.11_libcuda550-nogpu_debug0'), probe: noDevice, host: unreachable },
    'host-unreachable',
  ],
  [
    'the log is vague, the host is there',
    { log: findingsOf('0.11.11_libcuda550-nogpu_debug0'), probe: noDevice, host: hostAnswers },
    'no-device',
  ],
  [
    'the log says nothing, the host is away',
    { log: cpu, probe: noDevice, host: unreachable },
    'host-unreachable',
  ],
  [
    'discovery timed out, the host is slow',
    {
      log: findingsOf('0.32.9_slow-init-35s_debug0'),
      probe: { kind: 'timed-out', milliseconds: 10_000 },
      host: { ...hostAnswers, milliseconds: 11_000 },
    },
    'host-slow',
  ],
  [
    'discovery timed out, all is well now',
    { log: findingsOf('0.32.9_slow-init-35s_debug0') },
    'discovery-timeout',
  ],
  [
    'the shim says that the host refused',
    {
      log: cpu,
      probe: withoutHost(hostWord('refused', { status: 'not-allowed' })),
      host: hostAnswers,
    },
    'host-refused',
  ],
  [
    'the shim says that the host talks another version',
    {
      log: cpu,
      probe: withoutHost(hostWord('version', { status: 'version', hostWire: 9 })),
      host: hostAnswers,
    },
    'host-version',
  ],
  [
    'the shim says that something else listens there',
    { log: cpu, probe: withoutHost(hostWord('foreign')), host: unreachable },
    'host-foreign',
  ],
  [
    'the host answers root alone, and what it answers is nothing of vgpu-hostd',
    { log: cpu, probe: noDevice, host: { ...unreachable, word: hostWord('foreign') } },
    'host-foreign',
  ],
  [
    'the shim says that no answer came',
    { log: cpu, probe: withoutHost(hostWord('timeout')), host: unreachable },
    'host-slow',
  ],
  [
    'the shim says that nobody listens',
    {
      log: cpu,
      probe: withoutHost(hostWord('unreachable', { errno: 'ENOENT' })),
      host: unreachable,
    },
    'host-unreachable',
  ],
  [
    "the service's user may not read guest.conf, which is no refusal of the host",
    {
      log: cpu,
      probe: withoutHost(hostWord('not-configured', { errno: 'EACCES' })),
      host: hostAnswers,
    },
    'host-unreachable',
  ],
  [
    "the service's user may not open the socket",
    {
      log: cpu,
      probe: withoutHost(hostWord('unreachable', { errno: 'EACCES' })),
      host: hostAnswers,
    },
    'host-refused',
  ],
  [
    'the sandbox forbids the family',
    {
      log: cpu,
      probe: noDevice,
      host: hostAnswers,
      unit: unit({
        sandbox: { ...openSandbox, restrictAddressFamilies: { deny: false, families: ['AF_INET'] } },
      }),
    },
    'transport-blocked-by-sandbox',
  ],
  [
    'the sandbox forbids the family, by the shim alone',
    {
      log: cpu,
      probe: withoutHost(hostWord('unreachable', { errno: 'EAFNOSUPPORT' })),
      host: hostAnswers,
    },
    'transport-blocked-by-sandbox',
  ],
  [
    'libcuda cannot be loaded there',
    {
      log: cpu,
      probe: answered({
        ok: false,
        library: null,
        devices: [],
        roundTrip: null,
        error: {
          kind: 'library',
          step: 'dlopen',
          code: null,
          name: null,
          message: 'libcuda.so.1: cannot open shared object file',
        },
      }),
      host: hostAnswers,
    },
    'library-not-found',
  ],
  [
    'a function is missing',
    {
      log: cpu,
      probe: answered({
        ok: false,
        devices: [],
        roundTrip: null,
        error: { kind: 'symbol', step: 'dlsym', code: null, name: null, message: 'no cuInit' },
      }),
      host: hostAnswers,
    },
    'library-symbol-missing',
  ],
  [
    'the library kills its process',
    {
      log: cpu,
      probe: answered({
        ok: false,
        devices: [],
        roundTrip: null,
        error: {
          kind: 'signal',
          step: 'cuInit',
          code: null,
          name: null,
          message: 'the library killed the process with signal 11 (Segmentation fault)',
        },
      }),
      host: hostAnswers,
    },
    'probe-crashed',
  ],
  [
    'the driver does not fit',
    {
      log: cpu,
      probe: answered({
        ok: false,
        devices: [],
        roundTrip: null,
        error: {
          kind: 'call',
          step: 'cuInit',
          code: 803,
          name: 'CUDA_ERROR_SYSTEM_DRIVER_MISMATCH',
          message: 'x',
        },
      }),
      host: hostAnswers,
    },
    'driver-library-mismatch',
  ],
  [
    'the unit hides the GPUs',
    { log: cpu, unit: unit({ environment: { CUDA_VISIBLE_DEVICES: '-1' } }) },
    'devices-hidden-by-environment',
  ],
  [
    'the unit hides the GPUs with an empty list',
    { log: cpu, unit: unit({ environment: { CUDA_VISIBLE_DEVICES: '' } }) },
    'devices-hidden-by-environment',
  ],
  [
    'the unit forces the CPU',
    { log: cpu, unit: unit({ environment: { OLLAMA_LLM_LIBRARY: 'cpu_avx2' } }) },
    'library-forced-to-cpu',
  ],
  [
    'the log shows that the CPU is forced',
    { log: findingsOf('0.32.9_llmlib-cpu_debug0'), probe: noDevice, host: unreachable },
    'library-forced-to-cpu',
  ],
  ['a foreign libcuda is in the process', { log: cpu, processes: main('nvidia') }, 'foreign-library-loaded'],
  [
    'the probe works, the process has no libcuda although it is told to preload it',
    { log: cpu, processes: main() },
    'preload-ignored',
  ],
  [
    'the probe works, the process has no libcuda and nothing tells it to',
    {
      log: cpu,
      unit: unit({ environment: {} }),
      processes: [{ role: 'main', facts: processFacts({ libraries: [], loaderEnvironment: {} }) }],
    },
    'shim-not-loaded',
  ],
  ['the probe works, the process has the shim', { log: cpu }, 'probe-disagrees'],
  [
    'the probe works, the log hints at the reason',
    { log: findingsOf('0.32.9_cuda_v13_no-libcuda_debug1') },
    'library-not-found',
  ],
  [
    'Vulkan is used',
    {
      log: judgeLog(ollama, [
        'msg="inference compute" id=0 library=Vulkan compute=0.0 name=Vulkan0 description=AMD',
      ]),
    },
    'not-cuda',
  ],
  ['nothing is known', { log: cpu, probe: notRun, processes: [] }, null],
];

for (const [name, changes, reason] of cpuCases) {
  test(`on the CPU: ${name}: ${reason}`, () => {
    const verdict = combine(observation(changes));
    assert.equal(verdict.mode, 'cpu');
    assert.equal(verdict.reason, reason);
    assert.equal(verdict.simulated, false);
    assert.ok(verdict.next !== null && verdict.next.length > 0);
    assert.match(verdict.summary, /^ollama runs on the CPU.*\.$/);
    assert.ok(verdict.evidence.length > 0);
  });
}

const undetermined: readonly (readonly [name: string, changes: Partial<Observation>, reason: string])[] = [
  [
    'nothing in the journal, output to a file',
    { log: silent, unit: unit({ standardOutput: 'append:/var/log/ollama.log' }) },
    'output-bypasses-journal',
  ],
  [
    'nothing in the journal, standard error to nowhere',
    { log: silent, unit: unit({ standardError: 'null' }) },
    'output-bypasses-journal',
  ],
  [
    'standard output to nowhere, standard error to the journal',
    { log: silent, unit: unit({ standardOutput: 'null', standardError: 'journal' }) },
    'no-discovery-line',
  ],
  [
    'the file was read and says nothing',
    {
      log: silent,
      unit: unit({ standardOutput: 'append:/var/log/ollama.log' }),
      logFile: '/var/log/ollama.log',
    },
    'no-discovery-line',
  ],
  ['the journal cannot be read', { log: silent, journalError: 'permission denied' }, 'journal-unavailable'],
  [
    'it never answers',
    {
      log: silent,
      end: 'timed-out',
      readiness: { kind: 'silent', url: 'http://127.0.0.1:11434/', lastError: 'ECONNREFUSED' },
    },
    'readiness-timeout',
  ],
  ['it answers but announces nothing', { log: silent }, 'no-discovery-line'],
  [
    'an old version',
    { log: judgeLog(ollama, ['msg="Listening on 127.0.0.1:11434 (version 0.1.30)"']) },
    'unsupported-log-version',
  ],
  [
    'the unit failed',
    {
      log: gpu,
      end: 'unit-failed',
      unit: unit({ activeState: 'failed', subState: 'failed', result: 'exit-code' }),
    },
    'unit-failed',
  ],
  [
    'the unit is gone',
    { log: silent, end: 'unit-failed', unit: { kind: 'absent', name: 'ollama.service' } },
    'unit-failed',
  ],
  ['the unit crashes again and again', { log: gpu, end: 'unit-restarting', restarts: 3 }, 'unit-restarting'],
];

for (const [name, changes, reason] of undetermined) {
  test(`undetermined: ${name}: ${reason}`, () => {
    const verdict = combine(observation(changes));
    assert.equal(verdict.mode, 'undetermined');
    assert.equal(verdict.reason, reason);
    assert.deepEqual(verdict.devices, []);
    assert.ok(verdict.next !== null);
  });
}

/** Every combination of these parts, to hold the rule itself and not only examples. */
test('gpu is said exactly when the rule allows it (all combinations)', () => {
  const logs = { gpu, cpu, silent, degraded: findingsOf('0.32.9_native-probe-crash_debug0') };
  const mapped = {
    shim: main('vgpu'),
    child: [...main(), ...child(['vgpu'])],
    none: main(),
    stale: main('stale'),
    foreign: main('nvidia'),
    mixed: main('vgpu', 'foreign'),
    unseen: [],
  };
  const probes: Readonly<Record<string, ProbeResult>> = {
    good: answered(),
    bad: noDevice,
    crashed: { kind: 'crashed', message: 'x' },
    slow: { kind: 'timed-out', milliseconds: 1 },
    notRun,
    foreign: answered({ library: '/usr/lib/libcuda.so.1' }),
  };
  const readies = {
    answered: observation().readiness,
    silent: { kind: 'silent', url: 'u', lastError: 'e' } as const,
    unasked: { kind: 'unasked', why: 'w' } as const,
  };
  const ends = ['settled', 'timed-out', 'unit-failed', 'unit-restarting'] as const;
  let seen = 0;
  for (const [log, findings] of Object.entries(logs))
    for (const [maps, processes] of Object.entries(mapped))
      for (const [probeName, probe] of Object.entries(probes))
        for (const [ready, readiness] of Object.entries(readies))
          for (const end of ends)
            for (const preloaded of [true, false]) {
              const host = [null, unreachable, hostAnswers][seen % 3] ?? null;
              const given = observation({ log: findings, processes, probe, readiness, end, host });
              const verdict = combine(preloaded ? given : withoutPreload(given));
              const shim = maps === 'shim' || maps === 'child';
              const allowed =
                log === 'gpu' &&
                (end === 'settled' || end === 'timed-out') &&
                ready !== 'silent' &&
                (shim
                  ? probeName === 'good' || (probeName === 'notRun' && !preloaded)
                  : (maps === 'none' || maps === 'unseen') && probeName === 'good');
              const what = `${log} ${maps} ${probeName} ${ready} ${end} ${preloaded}`;
              assert.equal(verdict.mode === 'gpu', allowed, what);
              // Whatever is not GPU has a next command, and a reason unless the CPU gives none.
              if (!allowed) {
                assert.ok(verdict.next !== null, what);
                if (verdict.mode !== 'cpu') assert.ok(verdict.reason !== null, what);
              }
              seen += 1;
            }
  assert.equal(seen, 4 * 7 * 6 * 3 * 4 * 2);
});
