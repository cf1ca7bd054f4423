// The checks of loaded models, and of the memory and the kernels that the host provides for them.
import type { MemoryTold, RefusedKernels, RefusedMemory } from '../../../../agent/contracts/sessions.js';
import type { Status } from '../../../../agent/contracts/shim-codes.js';
import {
  deviceMemory,
  loadedModels,
  refusedKernels,
} from '../../../../agent/verdict/doctor/checks/device.js';
import { expected } from '../../expected.js';
import { findingsOf, fixtureText, judgeLog, ollama, unit } from '../support.js';
import { says } from './findings.js';
import { type Changes, doctorFacts } from './support.js';

const file = expected('doctor-present');
const bare = { machine: { manifest: null } };
const gpuLog = findingsOf('0.32.9_gpu-mode_debug0');

const model = (gpuBytes: number): Changes => ({
  observation: {
    present: {
      loaded: { kind: 'told', url: 'u', models: [{ name: 'a', bytes: 4_096, gpuBytes }] },
      sessions: { kind: 'unasked' },
    },
  },
});
/** By its own account; and the host, which has refused a session. */
const turned = (status: Status | null, gpuBytes: number) =>
  doctorFacts({
    observation: {
      present: {
        loaded: { kind: 'told', url: 'u', models: [{ name: 'a', bytes: 4_096, gpuBytes }] },
        sessions: {
          ...{ kind: 'told', own: [], processes: 2, others: 0, refusedKernels: null, memory: null },
          turnedAway: status === null ? null : { count: 2, status, age: 3 },
        },
      },
    },
  });
const cpuLoad = judgeLog(ollama, [
  ...fixtureText('0.32.9_gpu-mode_debug0').split('\n'),
  'load_tensors:          CPU model buffer size =     5.28 MiB',
]);
says(file, loadedModels, {
  'nothing is installed': doctorFacts({ ...model(0), ...bare }),
  'it does not run': doctorFacts({ observation: { ...model(0).observation, unit: unit({ mainPid: 0 }) } }),
  'there is no unit': doctorFacts({ observation: { unit: { kind: 'absent', name: 'x.service' } } }),
  'it does not tell': doctorFacts(),
  'it is': doctorFacts(model(4_096)),
  'it is not': doctorFacts(model(0)),
  'the last load was on the GPU': doctorFacts({
    observation: { log: findingsOf('0.13.5_gpu_model-load_debug0') },
  }),
  'the last load was on the CPU': doctorFacts({ observation: { log: cpuLoad } }),
  'it is, and the last load was on the CPU before': doctorFacts({
    observation: { ...model(4_096).observation, log: { ...cpuLoad, mode: 'gpu' } },
  }),
  'it is not, and the host turned one away': turned('busy', 0),
  'it is not, and the host did not let one in': turned('not-allowed', 0),
  'it is not, and the host has it without a session': turned(null, 0),
});

const kernels = (refused: RefusedKernels | null) =>
  doctorFacts({
    observation: {
      present: {
        loaded: { kind: 'unasked' },
        sessions: {
          kind: 'told',
          own: [],
          processes: 1,
          others: 0,
          turnedAway: null,
          refusedKernels: refused,
          memory: null,
        },
      },
    },
  });
const gemv = '_ZN8internal5gemvx6kernelIiiffffLb1ELb1ELb1ELb0ELi6ELb0E18cublasGemvParamsExE';
says(file, refusedKernels, {
  'it does not tell': doctorFacts(),
  'none was refused': kernels(null),
  'one was refused': kernels({ count: 1, age: 3, program: 'llama-server', kernel: gemv }),
  'more were refused': kernels({ count: 3, age: 60, program: 'llama-server', kernel: gemv }),
});

const small: MemoryTold = { limit: 64 << 20, by: 'guest', line: 3, refused: null };
const refusedMemory: RefusedMemory = {
  ...{ count: 1, age: 3, program: 'llama-server', by: 'guest' },
  ...{ bytes: 128 << 20, limit: 64 << 20, free: 62 << 20 },
};
const memory = (told: MemoryTold | null, bytes = 0, gpuBytes = bytes, log = gpuLog) =>
  doctorFacts({
    observation: {
      log,
      present: {
        loaded:
          bytes === 0
            ? { kind: 'unasked' }
            : { kind: 'told', url: 'u', models: [{ name: 'a', bytes, gpuBytes }] },
        sessions: {
          ...{ kind: 'told', own: [], processes: 9, others: 0, turnedAway: null, refusedKernels: null },
          memory: told,
        },
      },
    },
  });
const shortLog = (layers: number) =>
  judgeLog(ollama, [
    'time=2026-11-22T12:46:34.573Z level=INFO source=types.go:32 msg="inference compute" id=0 filter_id=0 library=CUDA compute=9.0 name=CUDA0 description="NVIDIA H100 80GB HBM3" libdirs=ollama,cuda_v12 driver=13.0 pci_id=0000:01:00.0 type=discrete total="79.2 GiB" available="79.2 GiB"',
    'common_params_fit_impl: cannot meet free memory target of 1024 MiB, need to reduce device memory by 963 MiB',
    `load_tensors: offloaded ${layers}/3 layers to GPU`,
  ]);
says(file, deviceMemory, {
  'it does not tell': doctorFacts(),
  'it is too old to tell': memory(null),
  'nothing was refused': memory(small),
  'nothing limits it': memory({ limit: 0, by: 'none', line: 0, refused: null }, 2 ** 40),
  'what is loaded fits': memory(small, 1 << 20),
  'the limit of the guest refused it': memory({ ...small, refused: refusedMemory }),
  'more than once, by a line that is gone': memory({
    ...small,
    line: 0,
    refused: { ...refusedMemory, count: 4 },
  }),
  'the limit of a session refused it': memory({
    ...{ limit: 64 << 20, by: 'session', line: 0 },
    refused: { ...refusedMemory, by: 'session' },
  }),
  'the device is full': memory({
    ...small,
    refused: { ...refusedMemory, by: 'device', limit: 2 ** 36, free: 9 },
  }),
  'nothing was refused, and what is loaded is larger and partly on the CPU': memory(
    small,
    128 << 20,
    60 << 20,
  ),
  'what is loaded did not fit beside what it leaves free': memory(small, 8 << 20, 6 << 20, shortLog(2)),
  'the same, and nothing but the device limits it': memory(
    { limit: 0, by: 'none', line: 0, refused: null },
    8 << 20,
    6 << 20,
    shortLog(2),
  ),
  'it fits after all, with a smaller context': memory(small, 8 << 20, 8 << 20, shortLog(3)),
  'it was refused, and what is loaded is on the CPU': memory(
    { ...small, refused: refusedMemory },
    128 << 20,
    0,
  ),
});

file.nothingElse();
