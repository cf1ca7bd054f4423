/** Facts of a bare machine, to be varied. */
import type { LibraryCandidate, MachineFacts } from '../../../../agent/contracts/facts.js';
import type { PathState } from '../../../../agent/contracts/manifest.js';
import type { Change, Plan, PlanOptions } from '../../../../agent/contracts/plan.js';
import type { LoadedUnit } from '../../../../agent/contracts/unit.js';
import { planInstall } from '../../../../agent/install/plan/install.js';
import { profile, quietUnit } from '../apply/world.js';

export const multiarch = '/usr/lib/x86_64-linux-gnu';
export const owner = { uid: 0, gid: 0, mtimeNs: '0' };
export const absent: PathState = { kind: 'absent' };
export const options: PlanOptions = { endpoint: 'vsock:2:14833', restart: true, force: false };

export function linkTo(target: string): PathState {
  return { kind: 'link', target, ...owner };
}

export function regular(content = 'x'): PathState {
  return { kind: 'file', size: content.length, sha256: 'ab'.repeat(32), mode: 0o644, ...owner };
}

export function candidate(path: string, changes: Partial<LibraryCandidate> = {}): LibraryCandidate {
  return {
    path,
    library: path.includes('nvidia-ml') ? 'libnvidia-ml' : 'libcuda',
    state: absent,
    resolution: { kind: 'absent' },
    ownerOfPath: null,
    ownerOfFile: null,
    elf: null,
    vendor: null,
    alternative: null,
    ...changes,
  };
}

const names = ['libcuda.so', 'libcuda.so.1', 'libnvidia-ml.so', 'libnvidia-ml.so.1'];

/** Every public name that the inspection would list, those given in the state given. */
export function candidates(given: readonly LibraryCandidate[] = []): readonly LibraryCandidate[] {
  const listed = [multiarch, '/usr/lib64', '/usr/local/lib'].flatMap((directory) =>
    names.map((name) => candidate(`${directory}/${name}`)),
  );
  return [
    ...listed.map((one) => given.find((other) => other.path === one.path) ?? one),
    ...given.filter((one) => !listed.some((other) => other.path === one.path)),
  ];
}

export function unit(changes: Partial<LoadedUnit> = {}): LoadedUnit {
  return { ...quietUnit, fragmentContent: '[Service]\nExecStart=/usr/local/bin/ollama serve\n', ...changes };
}

export function facts(changes: Partial<MachineFacts> = {}): MachineFacts {
  return {
    distribution: {
      prettyName: 'Debian GNU/Linux 12 (bookworm)',
      family: 'debian',
      architecture: 'x86_64',
      multiarch: 'x86_64-linux-gnu',
    },
    candidates: candidates(),
    loader: { cache: [], directories: [] },
    alternatives: [],
    store: { root: absent, current: absent, versions: [] },
    shim: {
      directory: '/build/shim',
      id: '0123456789abcdef',
      version: '0.1.0',
      files: [{ name: 'libcuda.so.1', source: '/build/shim/libcuda.so.1', sha256: '', size: 1, mode: 0o644 }],
      links: [{ name: 'libcuda.so', target: 'libcuda.so.1' }],
    },
    guestConf: { path: '/etc/vgpu/guest.conf', state: absent, content: null },
    loaderConf: { path: '/etc/ld.so.conf.d/000-vgpu.conf', state: absent, content: null },
    dropIn: {
      path: '/etc/systemd/system/ollama.service.d/50-vgpu.conf',
      state: absent,
      content: null,
    },
    unit: unit(),
    serviceUser: { name: 'ollama', uid: 998, gid: 998, groups: [998] },
    processes: [],
    realGpu: { kind: 'none' },
    host: { endpoint: 'vsock:2:14833', from: 'default', answer: { kind: 'unasked' } },
    manifest: null,
    interrupted: false,
    ...changes,
  };
}

export function plan(changes: Partial<MachineFacts> = {}, wanted: Partial<PlanOptions> = {}): Plan {
  return planInstall(profile, facts(changes), { ...options, ...wanted });
}

export function changesOf(made: Plan): readonly Change[] {
  if (made.kind === 'ready') return made.changes;
  throw new Error(`refused: ${made.refusals.map((refusal) => refusal.message).join('; ')}`);
}

/** Of the changes to that path, the one there is. */
export function changeAt(made: Plan, path: string): Change | undefined {
  return changesOf(made).find((change) => 'path' in change && change.path === path);
}

export function warningCodes(made: Plan): readonly string[] {
  return made.warnings.map((warning) => warning.code);
}

export function refusalCodes(made: Plan): readonly string[] {
  return made.kind === 'refused' ? made.refusals.map((refusal) => refusal.code) : [];
}

/** An installation whose version has the tracer. */
export const tracerManifest: NonNullable<MachineFacts['manifest']> = {
  schema: 2,
  agent: '0.1.0',
  consumers: [{ profile: 'ollama', unit: 'ollama.service', links: [] }],
  storeId: '0123456789abcdef',
  endpoint: 'vsock:2:14833',
  items: [
    {
      kind: 'file',
      path: '/opt/vgpu/versions/0123456789abcdef/libvgpu-trace.so',
      sha256: 'ab'.repeat(32),
      mode: 0o644,
      before: { kind: 'absent' },
      backup: null,
    },
  ],
};
