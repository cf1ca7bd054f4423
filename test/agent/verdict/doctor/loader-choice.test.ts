// The doctor's finding for each choice of the loader: the shim, another library, a file that is none, or nothing.
import type { ProcessFacts } from '../../../../agent/contracts/facts.js';
import type { LoaderChoice, ProcessChoices } from '../../../../agent/guest/look/loader.js';
import { containerLibraryDirectories } from '../../../../agent/lib/paths.js';
import { loaderChoice } from '../../../../agent/verdict/doctor/checks/process.js';
import type { DoctorFacts } from '../../../../agent/verdict/doctor/finding.js';
import { expected } from '../../expected.js';
import { answered, processFacts, store, unit } from '../support.js';
import { says } from './findings.js';
import { doctorFacts } from './support.js';

const file = expected('doctor-loader');
const real = `${store}/libcuda.so.1`;
const theirs = '/usr/lib/x86_64-linux-gnu/libcuda.so.550.163.01';

function found(
  vendor: 'vgpu' | 'nvidia' | 'foreign' | null,
  path: string,
  realPath = path,
): LoaderChoice['outcome'] {
  return { kind: 'found', path, realPath, by: 'LD_PRELOAD', vendor };
}
const shim = found('vgpu', '/opt/vgpu/current/libcuda.so.1', real);
const nvidia = found('nvidia', theirs);
const missing = { kind: 'not-found' } as const;
const short = { kind: 'refused', path: '/x/libcuda.so.1', reason: '0 bytes: file too short' } as const;

function choice(outcome: LoaderChoice['outcome'], changes: Partial<LoaderChoice> = {}): LoaderChoice {
  return { library: 'libcuda.so.1', neededBy: null, outcome, passedOver: [], missing: [], ...changes };
}
const nvml = (outcome: LoaderChoice['outcome']) => choice(outcome, { library: 'libnvidia-ml.so.1' });

function started(pid: number | null, ...choices: readonly LoaderChoice[]): ProcessChoices {
  return { pid, name: 'ollama', executable: '/usr/local/bin/ollama', choices };
}
/** `live`: the processes as they are now. */
function loading(processes: readonly ProcessChoices[], live: readonly ProcessFacts[] = []): DoctorFacts {
  return doctorFacts({ machine: { processes: live }, look: { loader: { problem: null, processes } } });
}
/** One process that would get the shim, and what it has mapped now. */
const mapping = (libraries: ProcessFacts['libraries'], changes: Partial<ProcessFacts> = {}) =>
  loading(
    [started(7, choice(shim))],
    [processFacts({ pid: 8, libraries: [] }), processFacts({ pid: 7, libraries, ...changes })],
  );
const mapped = (path: string, deleted = false) => ({ path, deleted, vendor: 'vgpu' }) as const;

const container = unit({ execStart: ['/usr/bin/podman', 'run', '--name=ollama', 'ollama/ollama'] });
const inContainer = (observation: Parameters<typeof doctorFacts>[0] = {}) =>
  doctorFacts({ machine: { unit: container }, ...observation });
const sees = (library: string) => inContainer({ observation: { probe: answered({ library }) } });

says(file, loaderChoice, {
  'nothing is installed': doctorFacts({ machine: { manifest: null } }),
  'the unit starts no program': loading([]),
  'the loader could not be asked': doctorFacts({
    look: { loader: { processes: [], problem: '/usr/bin/x: a loader that says nothing of itself' } },
  }),
  'it takes the shim for a process and for the next start': loading([
    started(7, choice(shim), nvml(shim)),
    started(null, choice(shim, { neededBy: '/l/libggml-cuda.so' })),
  ]),
  'it takes a file that cannot be read': loading([started(7, choice(found(null, '/a/libcuda.so.1')))]),
  'it does not find what the profile does not put there': doctorFacts({
    look: { loader: { problem: null, processes: [started(7, nvml(missing))] } },
    profile: {
      ...doctorFacts().profile,
      publicLinks: { ...doctorFacts().profile.publicLinks, names: { 'libcuda.so.1': 'libcuda.so.1' } },
    },
  }),
  'it is loaded': mapping([mapped(`${store}/libnvidia-ml.so.1`), mapped(real)]),
  'it is not loaded now': mapping([mapped(`${store}/libnvidia-ml.so.1`)]),
  'what is loaded is gone from the disk': mapping([mapped(real, true)]),
  'another one is loaded': mapping([mapped(theirs)]),
  'it is loaded beside another one': mapping([mapped(real), mapped(theirs, true)]),
  'what is loaded may not be read': mapping([], { unreadable: ['maps'] }),
  'something else of it may not be read': mapping([], { unreadable: ['environ'] }),
  'it finds none': loading(
    [
      started(
        7,
        choice(missing, {
          passedOver: ['tried /usr/lib/libcuda.so.1 (ld.so.cache): 32-bit i386: not for this process'],
        }),
      ),
    ],
    [processFacts({ pid: 7, libraries: [mapped(real)] })],
  ),
  'it finds neither of the two': loading([started(7, choice(missing), nvml(missing))]),
  'two processes pass over the same file': loading(
    [1, 2].map((pid) => started(pid, choice(missing, { passedOver: ['tried /a/libcuda.so.1: too short'] }))),
  ),
  'it gives up at a file that is no library, and another process finds none': loading([
    started(7, choice(short)),
    started(8, choice(missing)),
  ]),
  "it takes NVIDIA's, where another process gets the shim": loading([
    started(6, choice(shim)),
    started(7, choice(nvidia)),
  ]),
  "it takes NVIDIA's, and another process finds none": loading([
    started(7, choice(nvidia)),
    started(8, choice(missing)),
  ]),
  'it takes a foreign library for the next start': loading([
    started(null, choice(found('foreign', '/a/libcuda.so.1'))),
  ]),
  'in a container, nothing was asked': inContainer({ observation: { probe: null } }),
  'in a container, the probe could not be run': inContainer({
    observation: { probe: { kind: 'not-run', message: 'gone' } },
  }),
  'in a container, the probe found no library': inContainer({
    observation: { probe: answered({ library: null }) },
  }),
  'in a container, it takes the shim': sees(real),
  'in a container, it takes the shim where the device puts it': sees(
    `${containerLibraryDirectories[0]}/libcuda.so.1`,
  ),
  "in a container, it takes the image's own": sees('/usr/local/cuda/compat/libcuda.so.1'),
});

file.nothingElse();
