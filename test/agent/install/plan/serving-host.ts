import type { PathState } from '../../../../agent/contracts/manifest.js';
import type {
  HostDaemon,
  ServingFacts,
  ServingFile,
  ServingRequest,
} from '../../../../agent/contracts/serving.js';
import { hostd } from '../../../../agent/lib/paths.js';

/** A host machine for plans: files that are as they should be, units that run, sessions. */

export const absent: PathState = { kind: 'absent' };
const owner = { uid: 0, gid: 0, mtimeNs: '1' };
export const stood = (sha256: string, mode = 0o644): PathState => ({
  kind: 'file',
  size: 1,
  sha256,
  mode,
  ...owner,
});
export const request: ServingRequest = {
  device: null,
  listen: null,
  limits: { memory: null, sessions: null },
  endSessions: false,
  force: false,
};

export function text(path: string, content: string, more: Partial<ServingFile> = {}): ServingFile {
  const same = { path, state: stood('same'), content, ownerPackage: null };
  return {
    ...same,
    wanted: { kind: 'text', content },
    reason: 'it is new',
    keep: false,
    ...more,
  };
}

export function program(sha256: string): ServingFile {
  const wanted = {
    kind: 'copy',
    source: '/p/vgpu-hostd',
    sha256: 'b'.repeat(64),
    size: 9,
    mode: 0o755,
  } as const;
  return { ...text(hostd, ''), state: stood(sha256, 0o755), content: null, wanted };
}

export const socket = '/etc/systemd/system/vgpu-hostd.socket';
export const service = '/etc/systemd/system/vgpu-hostd.service';
export const unit = { activeState: 'active', fragment: service, needDaemonReload: false };

/** A host as installed, which serves `sessions` guests. */
export function serving(sessions: number, files: readonly ServingFile[]): ServingFacts {
  const daemon: HostDaemon = {
    schema: 1,
    version: '0.1.0',
    devices: [],
    sessions: Array.from({ length: sessions }, () => ({})),
  };
  return {
    listen: ['unix:/run/vgpu/hostd.sock'],
    files,
    socket: { ...unit, fragment: socket },
    service: unit,
    outdated: false,
    daemon,
    refusals: [],
    warnings: [],
    manifest: null,
    interrupted: false,
  };
}
