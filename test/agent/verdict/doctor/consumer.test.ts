// The checks of the consumer's own code, of its use of the GPU, and of vgpu-agent.service.
import type { MachineFacts, ProcessFacts } from '../../../../agent/contracts/facts.js';
import type { Reason } from '../../../../agent/contracts/verdict.js';
import type { DriverLibrary, LoaderChoice } from '../../../../agent/guest/look/loader.js';
import { driverVersion } from '../../../../agent/verdict/doctor/checks/host.js';
import {
  backendLibrary,
  directLinking,
  nvml,
  symbols,
} from '../../../../agent/verdict/doctor/checks/libraries.js';
import { agentService } from '../../../../agent/verdict/doctor/checks/machine.js';
import { discoveryTime } from '../../../../agent/verdict/doctor/checks/output.js';
import { loadedLibrary } from '../../../../agent/verdict/doctor/checks/process.js';
import { startOrder } from '../../../../agent/verdict/doctor/checks/unit.js';
import { checks } from '../../../../agent/verdict/doctor/diagnose.js';
import { expected } from '../../expected.js';
import { absent, linkTo, regular } from '../../install/plan/support.js';
import {
  answered,
  findingsOf,
  libraries,
  llamaServer,
  noDevice,
  ollama,
  processFacts,
  report,
  unit,
} from '../support.js';
import { says } from './findings.js';
import { type Changes, doctorFacts, elf, manifest, ready } from './support.js';

const file = expected('doctor-consumer');
const bare = { machine: { manifest: null } };
const onCpu = { verdict: { mode: 'cpu' } } as const;
const none = findingsOf('0.32.9_cuda_v13_no-libcuda_debug0');

const directory = '/usr/local/lib/ollama';
const backend = (directories: readonly string[], ...paths: readonly (readonly [string, boolean])[]) => ({
  look: {
    consumer: {
      directories,
      libraries: paths.map(([path, whole]) => ({
        path,
        elf: whole ? elf() : null,
        problem: whole || path.includes('v12') ? null : 'cut short',
      })),
    },
  },
});
const cuda13 = `${directory}/cuda_v13/libggml-cuda.so`;
const cuda12 = `${directory}/cuda_v12/libggml-cuda.so`;
says(file, backendLibrary, {
  'it has': doctorFacts(
    backend([directory], [cuda13, true], [cuda12, false], [`${directory}/libother.so`, true]),
  ),
  'the profile names none': doctorFacts({ profile: llamaServer, ...backend([]) }),
  'a version that keeps it elsewhere': doctorFacts({ verdict: { consumerVersion: '0.3.0' }, ...backend([]) }),
  'an unknown version': doctorFacts({ verdict: { consumerVersion: null }, ...backend([]) }),
  'it has none, and is on the GPU': doctorFacts(backend([directory])),
  'none of its directories is there': doctorFacts({ ...backend([]), ...onCpu }),
  'it is in none of two directories': doctorFacts({ ...backend([directory, '/usr/lib/ollama']), ...onCpu }),
  'it has none for this device': doctorFacts({
    ...backend([directory], [cuda13, true]),
    observation: { log: findingsOf('0.32.9_cc95-not-in-archs_debug1') },
    ...onCpu,
  }),
  'it lacks one of two that would do': doctorFacts({
    ...backend([directory, '/usr/lib/ollama']),
    ...onCpu,
    profile: {
      ...ollama,
      doctor: {
        ...ollama.doctor,
        backend: {
          versions: '',
          files: ['a.so', 'b.so'],
          why: 'it is built without CUDA',
          reinstall: 'sudo make install',
        },
      },
    },
  }),
  'it has none for this device, and no driver answers': doctorFacts({
    ...backend([directory], [cuda13, true]),
    observation: { log: findingsOf('0.32.9_cc95-not-in-archs_debug1'), probe: null },
    ...onCpu,
  }),
  'a hint beside a GPU counts for nothing': doctorFacts({
    ...backend([directory], [cuda13, true]),
    observation: { log: { ...findingsOf('0.32.9_gpu-mode_debug0'), hint: 'architecture-not-compiled' } },
  }),
  'it has none for this device, by a hint': doctorFacts({
    ...backend([directory], [cuda13, true]),
    observation: { log: { ...none, reason: null, hint: 'architecture-not-compiled' } },
  }),
  'all that it has are spoilt': doctorFacts({
    ...backend([directory], [cuda13, false], [cuda12, false]),
    ...onCpu,
  }),
});

const program = (path: string, needed: readonly string[] | null) => ({
  path,
  setId: false,
  capabilities: null,
  elf: needed === null ? null : elf({ needed }),
});
const linked = (...executables: readonly ReturnType<typeof program>[]): Changes => ({
  look: { executables },
  ...onCpu,
});
const server = '/usr/bin/server';
says(file, directLinking, {
  'nothing could be read': doctorFacts(linked(program(server, null))),
  'it does, and so do its libraries': doctorFacts({
    ...onCpu,
    look: {
      executables: [program(server, ['libc.so.6', 'libcuda.so.1'])],
      consumer: {
        directories: [],
        libraries: [
          { path: cuda13, elf: elf({ needed: ['libnvidia-ml.so.1'] }), problem: null },
          { path: cuda12, elf: null, problem: 'cut short' },
        ],
      },
    },
  }),
  'by a path, and by a version': doctorFacts(
    linked(program(server, ['/opt/x/libcuda.so.1', 'libcuda.so.550.1', 'libcuda.so', 'libcudart.so.12'])),
  ),
  'by a path, and it is on the GPU': doctorFacts({
    look: { executables: [program(server, ['/opt/x/libcuda.so.1'])] },
  }),
  'its only program is static': doctorFacts(linked(program(server, []), program('/usr/bin/script', null))),
  'one of its programs is static': doctorFacts(
    linked(program('/usr/bin/wrapper', []), program(server, ['libc.so.6'])),
  ),
});

const slow = findingsOf('0.32.9_slow-init-35s_debug0');
const hostAnswers = (milliseconds: number): Pick<MachineFacts, 'host'> => ({
  host: {
    endpoint: 'vsock:2:14833',
    from: 'default',
    answer: { kind: 'answers', device: 'd', simulated: false, milliseconds },
  },
});
says(file, discoveryTime, {
  'it had': doctorFacts(),
  'it gave up for another reason': doctorFacts({ observation: { log: none } }),
  'it had not, and the host does not answer now': doctorFacts({
    observation: { log: slow, probe: noDevice },
  }),
  'it had not, and the host answers now': doctorFacts({
    observation: { log: slow },
    machine: hostAnswers(40),
  }),
  'it only hints at that': doctorFacts({
    observation: { log: { ...none, reason: null, hint: 'discovery-timeout' }, probe: null },
  }),
  'it is on the GPU all the same': doctorFacts({ observation: { log: { ...slow, mode: 'gpu' } } }),
});

const tooOld = findingsOf('0.32.9_v12dir-driver535_debug0');
const gpuLog = findingsOf('0.32.9_gpu-mode_debug0');
const silentNvml = { nvml: { ok: false, driver: null, error: null } };
says(file, driverVersion, {
  'it is': doctorFacts(),
  'no driver version is known, and it is on the GPU': doctorFacts({ observation: { probe: null } }),
  'no driver answered': doctorFacts({ observation: { probe: null, log: none } }),
  'only CUDA tells its version': doctorFacts({ observation: { probe: answered(silentNvml) } }),
  'only NVML tells its version': doctorFacts({ observation: { probe: answered({ driver: null }) } }),
  'too old': doctorFacts({ observation: { log: tooOld } }),
  'too old by a hint alone': doctorFacts({
    observation: { log: { ...none, reason: null, hint: 'driver-too-old' }, probe: null },
  }),
  'a hint beside a GPU counts for nothing': doctorFacts({
    observation: { log: { ...gpuLog, hint: 'driver-too-old' } },
  }),
  'driver and library of the host differ': doctorFacts({
    observation: { log: { ...none, reason: 'driver-library-mismatch' }, probe: null },
  }),
});

const seen = (...processes: readonly Partial<ProcessFacts>[]) => ({
  observation: { processes: processes.map((one) => ({ role: 'main' as const, facts: processFacts(one) })) },
});
says(file, loadedLibrary, {
  'nothing is installed': doctorFacts({ ...bare, ...seen({}) }),
  'no process was seen': doctorFacts(seen()),
  'they have, and one has none': doctorFacts(seen({}, { pid: 101, name: 'runner', libraries: [] })),
  'none of them has one': doctorFacts(seen({ libraries: [] })),
  "NVIDIA's beside ours": doctorFacts(seen({ libraries: libraries('vgpu', 'nvidia') }, { pid: 101 })),
  'a foreign library': doctorFacts(seen({ libraries: libraries('foreign') })),
  'one that cannot be read': doctorFacts(
    seen({ libraries: [{ path: '/usr/lib/libcuda.so.1', deleted: false, vendor: null }] }),
  ),
  'one that was replaced': doctorFacts(seen({ libraries: libraries('stale') }, { pid: 101 })),
  'a file of the store that was changed': doctorFacts(
    seen({ libraries: [{ path: '/opt/vgpu/versions/x/libcuda.so.1', deleted: false, vendor: 'foreign' }] }),
  ),
  'another NVML is no other driver': doctorFacts(
    seen({
      libraries: [
        { path: '/usr/lib/libnvidia-ml.so.1', deleted: false, vendor: 'nvidia' },
        ...libraries('vgpu'),
      ],
    }),
  ),
  'their maps cannot be read': doctorFacts(seen({ libraries: [], unreadable: ['maps'] })),
});

const takesNone = (library: DriverLibrary): LoaderChoice => ({
  ...{ library, neededBy: null, outcome: { kind: 'not-found' }, passedOver: [], missing: [] },
});
const takes = (library: DriverLibrary): LoaderChoice => ({
  ...takesNone(library),
  outcome: {
    kind: 'found',
    path: `/l/${library}`,
    realPath: `/real/${library}`,
    by: 'LD_PRELOAD',
    vendor: null,
  },
});
const mute = (error: string | null) => ({ probe: answered({ nvml: { ok: false, driver: null, error } }) });
says(file, nvml, {
  'nothing is installed': doctorFacts(bare),
  'no probe': doctorFacts({ observation: { probe: null } }),
  'CUDA does not': doctorFacts({ observation: { probe: noDevice } }),
  'it does': doctorFacts(),
  'it does, and hides its version': doctorFacts({
    observation: { probe: answered({ nvml: { ok: true, driver: null, error: null } }) },
  }),
  'it says why not': doctorFacts({ observation: mute('nvmlInit_v2: NVML_ERROR_UNKNOWN') }),
  'it does not say why not': doctorFacts({ observation: mute(null) }),
  'it does not, and the loader takes another for two processes': doctorFacts({
    observation: mute(null),
    look: {
      loader: {
        problem: null,
        processes: [7, 8].map((pid) => ({
          pid,
          name: 'ollama',
          executable: '/usr/local/bin/ollama',
          choices: [takes('libcuda.so.1'), takes('libnvidia-ml.so.1'), takesNone('libnvidia-ml.so.1')],
        })),
      },
    },
  }),
});

const late = { log: none };
const serviceState = (activeState: string): Partial<MachineFacts> => ({
  service: {
    unit: 'vgpu-agent.service',
    files: [],
    link: { path: '/x', target: '/y', state: absent },
    activeState,
    program: { node: '/usr/bin/node', watch: '/w/vgpu-watch', package: '/usr/lib/vgpu-agent' },
    consumers: [],
    changeable: null,
    confProblem: null,
  },
});
const reasoned = (reason: Reason): Changes => ({ observation: { log: { ...none, reason } } });
says(file, startOrder, {
  'nothing is installed': doctorFacts({ ...bare, observation: late }),
  'it does not run': doctorFacts({ observation: { ...late, unit: unit({ mainPid: 0 }) } }),
  'there is no unit': doctorFacts({ observation: { ...late, unit: { kind: 'absent', name: 'x.service' } } }),
  'it was': doctorFacts(),
  'the service names another reason': doctorFacts(reasoned('driver-too-old')),
  'no GPU answers now either': doctorFacts({ observation: { ...late, probe: noDevice } }),
  'no probe now': doctorFacts({ observation: { ...late, probe: null } }),
  'one answers now': doctorFacts({ observation: late }),
  'one answers now, and our service runs': doctorFacts({
    observation: late,
    machine: serviceState('active'),
  }),
  'one answers now, and our service is stopped': doctorFacts({
    ...reasoned('no-device'),
    machine: serviceState('inactive'),
  }),
  'one without a name answers now': doctorFacts({
    observation: {
      log: { ...none, reason: 'driver-init-failed' },
      probe: { kind: 'answered', report: report({ devices: [] }), milliseconds: 1 },
    },
  }),
});

const needs = (neededBy: string, missing: readonly string[], vendor: 'vgpu' | 'nvidia' = 'vgpu') => ({
  library: 'libcuda.so.1' as const,
  neededBy,
  outcome: {
    kind: 'found' as const,
    path: '/s/libcuda.so.1',
    realPath: '/s/libcuda.so.1',
    by: 'LD_PRELOAD',
    vendor,
  },
  passedOver: [],
  missing,
});
const asks = (...choices: readonly ReturnType<typeof needs>[]) => ({
  look: {
    loader: { processes: [{ pid: null, name: 'x', executable: '/x', choices }], problem: null },
  },
});
const many = (count: number) => Array.from({ length: count }, (_, index) => `cuNew${index}`);
says(file, symbols, {
  'nothing is installed': doctorFacts({ ...bare, ...asks(needs('/a.so', ['cuNew'])) }),
  'nothing needs one': doctorFacts(asks()),
  'another driver comes first': doctorFacts(asks(needs('/a.so', ['cuNew'], 'nvidia'))),
  'it has': doctorFacts(asks(needs('/a.so', []), needs('/b.so', []))),
  'it lacks ten': doctorFacts(asks(needs('/a.so', many(10)))),
  'it lacks eleven, and two libraries need them': doctorFacts(
    asks(needs('/a.so', many(11)), needs('/b.so', ['nvmlNew'])),
  ),
  'one of two libraries can be loaded': doctorFacts(asks(needs('/a.so', ['cuNew']), needs('/b.so', []))),
});

const unitFile = '/etc/systemd/system/vgpu-agent.service';
const wants = '/etc/systemd/system/multi-user.target.wants/vgpu-agent.service';
const guarded = (activeState: string): Pick<Changes, 'machine' | 'plan'> => ({
  plan: ready(),
  machine: {
    service: {
      unit: 'vgpu-agent.service',
      files: [
        { present: { path: unitFile, state: regular(), content: 'x' }, packaged: 'x', editable: false },
      ],
      link: { path: wants, target: unitFile, state: linkTo(unitFile) },
      activeState,
      program: { node: '/usr/bin/node', watch: '/w/vgpu-watch', package: '/usr/lib/vgpu-agent' },
      consumers: [],
      changeable: null,
      confProblem: null,
    },
    manifest: {
      ...manifest,
      items: [
        { kind: 'directory', path: '/etc/vgpu-agent', mode: 0o755 },
        { kind: 'directory', path: unitFile, mode: 0o755 },
      ],
    },
  },
});
const status = (state: string, problem: string | null, configProblem: string | null = null) => ({
  look: { service: { status: { state, problem, configProblem } } },
});
const rewritten = (path: string) =>
  ({
    kind: 'write-link',
    path,
    target: '/x',
    before: absent,
    reason: 'it is gone',
  }) as const;
says(file, agentService, {
  'it was never installed': doctorFacts(),
  'nothing of it is ours': doctorFacts({
    plan: ready(),
    machine: { ...guarded('active').machine, manifest },
  }),
  'its unit is gone': doctorFacts({
    ...guarded('active'),
    plan: ready(rewritten(unitFile), { kind: 'daemon-reload', reason: 'x' }),
  }),
  'it is not enabled': doctorFacts({
    ...guarded('active'),
    plan: ready(rewritten(wants), rewritten('/etc/other')),
  }),
  'it failed': doctorFacts(guarded('failed')),
  'it is being reloaded and says nothing': doctorFacts(guarded('reloading')),
  'it runs and says nothing': doctorFacts(guarded('active')),
  'it has paused its repairs': doctorFacts({
    ...guarded('active'),
    ...status('degraded', 'replaced 20 times'),
  }),
  'it has paused its repairs and does not say why': doctorFacts({
    ...guarded('active'),
    ...status('degraded', null),
  }),
  'its configuration is wrong': doctorFacts({
    ...guarded('active'),
    ...status('settled', null, 'agent.json: line 3'),
  }),
  'all is well': doctorFacts({ ...guarded('active'), ...status('settled', null) }),
});

file.text('all checks, in the order of causes', () => checks.map(({ id }) => id).join('\n'));
file.nothingElse();
