// The reason that each kind of evidence leads to, for a consumer on the CPU or of unknown place.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { decideVerdict } from '../../../agent/verdict/decide.js';
import type { Observation } from '../../../agent/verdict/observation.js';
import { answers, cpu, gpu, main, notRun, silent, unreachable } from './evidence.js';
import {
  answered,
  findingsOf,
  hostWord,
  judgeLog,
  noDevice,
  observation,
  ollama,
  openSandbox,
  processFacts,
  unit,
  withoutHost,
} from './support.js';

const cpuCases: readonly (readonly [name: string, changes: Partial<Observation>, reason: string | null])[] = [
  [
    'the log names a certain reason',
    { log: findingsOf('0.32.9_v12dir-driver535_debug0'), probe: noDevice, host: unreachable() },
    'driver-too-old',
  ],
  [
    'the log is vague, the host is away',
    { log: findingsOf('0.11.11_libcuda550-nogpu_debug0'), probe: noDevice, host: unreachable() },
    'host-unreachable',
  ],
  [
    'the log is vague, the host is there',
    { log: findingsOf('0.11.11_libcuda550-nogpu_debug0'), probe: noDevice, host: answers() },
    'no-device',
  ],
  [
    'the log says nothing, the host is away',
    { log: cpu, probe: noDevice, host: unreachable() },
    'host-unreachable',
  ],
  [
    'discovery timed out, the host is slow',
    {
      log: findingsOf('0.32.9_slow-init-35s_debug0'),
      probe: { kind: 'timed-out', milliseconds: 10_000 },
      host: answers(11_000),
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
      host: answers(),
    },
    'host-refused',
  ],
  [
    'the shim says that the host talks another version',
    {
      log: cpu,
      probe: withoutHost(hostWord('version', { status: 'version', hostWire: 9 })),
      host: answers(),
    },
    'host-version',
  ],
  [
    'the shim says that something else listens there',
    { log: cpu, probe: withoutHost(hostWord('foreign')), host: unreachable() },
    'host-foreign',
  ],
  [
    'the host answers root alone, and what it answers is nothing of vgpu-hostd',
    { log: cpu, probe: noDevice, host: unreachable(hostWord('foreign')) },
    'host-foreign',
  ],
  [
    'the shim says that no answer came',
    { log: cpu, probe: withoutHost(hostWord('timeout')), host: unreachable() },
    'host-slow',
  ],
  [
    'the shim says that nothing listens',
    {
      log: cpu,
      probe: withoutHost(hostWord('unreachable', { errno: 'ENOENT' })),
      host: unreachable(),
    },
    'host-unreachable',
  ],
  [
    "the service's user may not read guest.conf, which is no refusal of the host",
    {
      log: cpu,
      probe: withoutHost(hostWord('not-configured', { errno: 'EACCES' })),
      host: answers(),
    },
    'host-unreachable',
  ],
  [
    "the service's user may not open the socket",
    {
      log: cpu,
      probe: withoutHost(hostWord('unreachable', { errno: 'EACCES' })),
      host: answers(),
    },
    'host-refused',
  ],
  [
    'the sandbox forbids the family',
    {
      log: cpu,
      probe: noDevice,
      host: answers(),
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
      host: answers(),
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
      host: answers(),
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
      host: answers(),
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
      host: answers(),
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
      host: answers(),
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
    { log: findingsOf('0.32.9_llmlib-cpu_debug0'), probe: noDevice, host: unreachable() },
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
  [
    'the device that is chosen is hidden from the probe too',
    { log: cpu, probe: noDevice, unit: unit({ environment: { CUDA_VISIBLE_DEVICES: 'GPU-deadbeef' } }) },
    'devices-hidden-by-environment',
  ],
  [
    'a library that no version has',
    { log: cpu, unit: unit({ environment: { OLLAMA_LLM_LIBRARY: 'cuda' } }) },
    'library-forced-to-cpu',
  ],
  [
    'a library that may not be there, and the probe finds a GPU',
    { log: cpu, unit: unit({ environment: { OLLAMA_LLM_LIBRARY: 'cuda_v13' } }) },
    'library-forced-to-cpu',
  ],
  [
    'a library that may not be there, and no host',
    {
      log: cpu,
      probe: withoutHost(hostWord('unreachable')),
      unit: unit({ environment: { OLLAMA_LLM_LIBRARY: 'cuda_v12' } }),
    },
    'host-unreachable',
  ],
  ['nothing is known', { log: cpu, probe: notRun, processes: [] }, null],
];

for (const [name, changes, reason] of cpuCases) {
  test(`on the CPU: ${name}: ${reason}`, () => {
    const verdict = decideVerdict(observation(changes));
    assert.equal(verdict.mode, 'cpu');
    assert.equal(verdict.reason, reason);
    assert.equal(verdict.simulated, false);
    assert.ok(verdict.next !== null && verdict.next.length > 0);
    assert.match(verdict.summary, /^ollama runs on the CPU.*\.$/);
    assert.ok(verdict.evidence.length > 0);
  });
}

const noLogging = { namespace: '', levelMax: null, burst: null, intervalMs: null };
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
    'nothing in the journal, lines above a level dropped',
    { log: silent, unit: unit({ logging: { ...noLogging, levelMax: 'warning' } }) },
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
    const verdict = decideVerdict(observation(changes));
    assert.equal(verdict.mode, 'undetermined');
    assert.equal(verdict.reason, reason);
    assert.deepEqual(verdict.devices, []);
    assert.ok(verdict.next !== null);
  });
}
