// The doctor on a consumer in a container: it gets the GPU as a device, and not by variables and links.
import type { ContainerFacts } from '../../../../agent/contracts/facts.js';
import type { LoadedUnit } from '../../../../agent/contracts/unit.js';
import { quadletDropInText } from '../../../../agent/install/plan/container.js';
import { backendLibrary, foreignLibrary } from '../../../../agent/verdict/doctor/checks/libraries.js';
import { loadedLibrary } from '../../../../agent/verdict/doctor/checks/process.js';
import { dropIn, environment, overrides, sandbox } from '../../../../agent/verdict/doctor/checks/unit.js';
import { expected } from '../../expected.js';
import { absent, candidate, regular } from '../../install/plan/support.js';
import { libraries, openSandbox, processFacts, unit } from '../support.js';
import { says } from './findings.js';
import { type Changes, doctorFacts, look, ready } from './support.js';

const file = expected('doctor-container');
const quadlet = '/etc/containers/systemd/ollama.container';
const dropInPath = `${quadlet}.d/50-vgpu.conf`;
const run = ['/usr/bin/podman', 'run', '--name', 'systemd-ollama', '-d'];
const onCpu = { verdict: { mode: 'cpu' } } as const;

const started = (...execStart: readonly string[]): LoadedUnit => unit({ execStart });
const ofQuadlet = (...options: readonly string[]): LoadedUnit => ({
  ...started(...run, ...options, 'docker.io/ollama/ollama'),
  fragmentContent: `[Unit]\nSourcePath=${quadlet}\n`,
});
const byCommand = started(...run, 'docker.io/ollama/ollama');
const device = ['--device', 'vgpu.org/gpu=all'];
const containers = (changes: Partial<ContainerFacts> = {}): ContainerFacts => ({
  wanted: true,
  spec: { path: '/etc/cdi/vgpu.json', state: absent, content: null },
  nvidia: { path: '/etc/cdi/vgpu-nvidia.json', state: absent, content: null },
  nvidiaFrom: null,
  dropIn: { path: dropInPath, state: absent, content: null },
  podman: '5.4.2',
  ...changes,
});
const runs = (one: LoadedUnit, of: ContainerFacts = containers(), changes: Changes = {}) =>
  doctorFacts({ ...changes, machine: { unit: one, containers: of, ...changes.machine } });
const written = containers({ dropIn: { path: dropInPath, state: regular(), content: quadletDropInText } });

says(file, dropIn, {
  "the quadlet's drop-in is missing": runs(ofQuadlet()),
  "the quadlet's drop-in is in force": runs(ofQuadlet(...device), written, { plan: ready() }),
  'its command asks for the device itself': runs(started(...run, ...device, 'ollama'), containers(), {
    plan: ready(),
  }),
  'its command does not ask for the device': runs(byCommand, containers({ dropIn: null }), { plan: ready() }),
  'podman is too old to read the drop-in': runs(ofQuadlet(), containers({ podman: '4.9.3' }), {
    plan: ready(),
  }),
  'it is of a compose file': runs(started('/usr/bin/docker', 'compose', 'up'), containers(), {
    plan: ready(),
  }),
  'it was made before': runs(started('/usr/bin/docker', 'start', '-a', 'ollama'), containers(), {
    plan: ready(),
  }),
});

says(file, environment, { 'it gets no variables': runs(byCommand) });

// The variables of its command are the unit's environment (systemd/unit-facts.ts).
const hidden = { environment: { CUDA_VISIBLE_DEVICES: '-1' } };
says(file, overrides, {
  'its quadlet hides the GPU': runs({ ...ofQuadlet(), ...hidden }),
  'its command hides the GPU': runs({ ...byCommand, ...hidden }),
});

const shut = { ...openSandbox, restrictAddressFamilies: { deny: true, families: ['AF_VSOCK', 'AF_UNIX'] } };
says(file, sandbox, { 'its unit shuts it in': runs({ ...ofQuadlet(), sandbox: shut }) });

const own = '/usr/lib/ollama';
says(file, foreignLibrary, {
  "a driver in the service's directory of this machine does not concern it": runs(byCommand, containers(), {
    machine: { candidates: [candidate(`${own}/libcuda.so.1`, { state: regular(), vendor: 'nvidia' })] },
    look: { consumer: { ...look.consumer, directories: [own] } },
  }),
});

says(file, loadedLibrary, {
  "it has loaded the image's own": runs(byCommand, containers(), {
    observation: { processes: [{ role: 'main', facts: processFacts({ libraries: libraries('nvidia') }) }] },
  }),
});

says(file, backendLibrary, {
  'no process of it is known': runs(byCommand, containers(), onCpu),
  'its image has none': runs(byCommand, containers(), {
    ...onCpu,
    machine: { processes: [processFacts()] },
    look: { consumer: { directories: [own], libraries: [] } },
  }),
});

file.nothingElse();
