/** Values that several renderer tests show. */

import type { ShimBuild } from '../../../../agent/contracts/facts.js';
import type { PathState } from '../../../../agent/contracts/manifest.js';
import type { Change, Plan } from '../../../../agent/contracts/plan.js';
import type { Verdict } from '../../../../agent/contracts/verdict.js';

const owner = { uid: 0, gid: 0, mtimeNs: '0' };
export const absent: PathState = { kind: 'absent' };
export const wrongLink: PathState = { kind: 'link', target: 'libcuda.so.535.54', ...owner };

export const shim: ShimBuild = {
  directory: '/srv/vgpu/build/shim',
  id: '0123456789abcdef',
  version: '0.1.0',
  files: [
    {
      name: 'libcuda.so.1',
      source: '/srv/vgpu/build/shim/libcuda.so.1',
      sha256: 'ab'.repeat(32),
      size: 1_000_000,
      mode: 0o644,
    },
    {
      name: 'vgpu-probe',
      source: '/srv/vgpu/build/shim/vgpu-probe',
      sha256: 'cd'.repeat(32),
      size: 50_000,
      mode: 0o755,
    },
  ],
  links: [{ name: 'libcuda.so', target: 'libcuda.so.1' }],
};

export const changes: readonly Change[] = [
  { kind: 'make-directory', path: '/etc/vgpu', mode: 0o755, reason: 'guest.conf lives here' },
  { kind: 'store', shim, reason: 'the libraries that every link leads to' },
  {
    kind: 'write-file',
    path: '/etc/vgpu/guest.conf',
    content: '# where the host is\nhost=unix:/run/vgpu/hostd.sock\n',
    mode: 0o644,
    before: { kind: 'file', size: 40, sha256: 'ef'.repeat(32), mode: 0o644, ...owner },
    previousContent: '# where the host is\nhost=vsock:2:14833\n',
    reason: 'gives the shim the address of the host',
  },
  {
    kind: 'write-link',
    path: '/usr/lib/x86_64-linux-gnu/libcuda.so.1',
    target: '/opt/vgpu/current/libcuda.so.1',
    before: wrongLink,
    ownerPackage: 'libcuda1',
    reason: 'programs open this name; it leads to a driver without a GPU',
  },
  { kind: 'ldconfig', links: false, reason: 'the loader cache must name the shim' },
  { kind: 'daemon-reload', reason: 'the drop-in is new' },
  { kind: 'restart', unit: 'ollama.service', reason: 'Ollama looks for a GPU only when it starts' },
];

type ReadyPlan = Extract<Plan, { kind: 'ready' }>;

export const plan: ReadyPlan = {
  kind: 'ready',
  intent: 'install',
  profile: 'ollama',
  unit: 'ollama.service',
  storeId: shim.id,
  endpoint: 'unix:/run/vgpu/hostd.sock',
  consumers: [],
  changes,
  warnings: [
    {
      code: 'sandbox-blocks-transport',
      message: 'RestrictAddressFamilies lacks AF_UNIX',
      remedy: 'allow it',
    },
  ],
};

export const emptyPlan: ReadyPlan = { ...plan, changes: [], warnings: [] };

export const verdict: Verdict = {
  mode: 'gpu',
  simulated: true,
  devices: [
    { library: 'cuda', compute: '9.0', name: 'NVIDIA H100 80GB HBM3 (simulated)', pci: '0000:01:00.0' },
  ],
  reason: null,
  evidence: [
    { kind: 'log-line', text: 'msg="inference compute" library=CUDA', weight: 'for', source: 'journal' },
    { kind: 'probe', text: 'the probe saw one device', weight: 'for', source: null },
  ],
  profile: 'ollama',
  unit: 'ollama.service',
  invocationId: '0123456789abcdef0123456789abcdef',
  consumerVersion: '0.32.9',
  summary: 'This start found a GPU, and the probe agrees.',
  next: null,
};

export const cpuVerdict: Verdict = {
  ...verdict,
  mode: 'cpu',
  simulated: false,
  devices: [],
  reason: 'host-unreachable',
  evidence: [
    { kind: 'host', text: 'nobody listens', weight: 'against', source: 'unix:/run/vgpu/hostd.sock' },
  ],
  summary: 'This start found no GPU because the host does not answer.',
  next: 'systemctl restart ollama.service && vgpu-agent verify',
};
