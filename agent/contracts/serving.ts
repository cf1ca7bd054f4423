/** The settings of a host, and the facts about the machine by which `vgpu-agent host` plans. */
import type { HostDaemon } from './host-daemon.js';
import type { Manifest } from './manifest.js';
import type { PathState } from './path-state.js';

export const hostDevices = ['cuda', 'software'] as const;
export type HostDevice = (typeof hostDevices)[number];

/** The limit of each guest. Null: no limit besides the daemon's own. */
export interface GuestLimits {
  /** Device memory, as hostd.conf writes it: `8G`. */
  readonly memory: string | null;
  readonly sessions: number | null;
}

/** The requested settings; null and absent: unchanged. */
export interface ServingRequest {
  readonly device: HostDevice | null;
  /** `unix:PATH`, `vsock:PORT` or `tcp:ADDRESS:PORT`. */
  readonly listen: readonly string[] | null;
  readonly limits: GuestLimits;
  /** Sessions may be ended where that is the only way. */
  readonly endSessions: boolean;
  /** Go on although a check of the device failed. */
  readonly force: boolean;
}

/** One file of a host: its present state, and what this version would write there. */
export interface ServingFile {
  readonly path: string;
  readonly state: PathState;
  /** The text, for a readable text file of sensible size. */
  readonly content: string | null;
  readonly ownerPackage: string | null;
  readonly mode: number;
  readonly wanted:
    | { readonly kind: 'text'; readonly content: string }
    | { readonly kind: 'copy'; readonly source: string; readonly sha256: string; readonly size: number };
  /** A person may edit it: written only where there is none, or where `asked`. */
  readonly editable: boolean;
  /** The request sets a value in it. */
  readonly asked: boolean;
}

export interface ServingLink {
  readonly path: string;
  readonly target: string;
  readonly state: PathState;
}

/** Something about this machine that keeps a host from working. */
export interface ServingProblem {
  readonly code: string;
  readonly message: string;
  readonly remedy: string;
  /** `device`: --force goes on; `certain`: nothing does; `warning`: it is only told. */
  readonly weight: 'certain' | 'device' | 'warning';
}

export interface ServingFacts {
  readonly device: HostDevice;
  readonly listen: readonly string[];
  readonly files: readonly ServingFile[];
  readonly links: readonly ServingLink[];
  readonly socket: ServingUnit;
  readonly service: ServingUnit;
  /** The running program is not the installed file: it was replaced without a hand-over. */
  readonly outdated: boolean;
  /** The daemon's own status; null: it does not run, or this user may not ask. */
  readonly daemon: HostDaemon | null;
  readonly problems: readonly ServingProblem[];
  readonly manifest: Manifest | null;
  /** An earlier run was cut short. */
  readonly interrupted: boolean;
}

export interface ServingUnit {
  readonly activeState: string;
  readonly needDaemonReload: boolean;
  readonly unitFileState: string;
}
