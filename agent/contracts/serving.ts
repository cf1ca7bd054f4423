/** The settings of a host, and the facts about the machine by which `vgpu-agent host` plans. */

import { constant, type Described, list, object, type Schema, text } from '../lib/schema.js';
import type { OwnedFileFacts } from './facts.js';
import type { Manifest } from './manifest.js';

export const hostDevices = ['cuda', 'software'] as const;
export type HostDevice = (typeof hostDevices)[number];

export interface GuestLimits {
  /** Device memory, as hostd.conf writes it: `8G`. */
  readonly memory: string | null;
  readonly sessions: number | null;
}

export interface ServingRequest {
  readonly device: HostDevice | null;
  /** `unix:PATH`, `vsock:PORT` or `tcp:ADDRESS:PORT`. */
  readonly listen: readonly string[] | null;
  readonly limits: GuestLimits;
  readonly endSessions: boolean;
  readonly force: boolean;
}

/** One file or link of a host: its present state, and what this version would place there. */
export interface ServingFile extends OwnedFileFacts {
  readonly ownerPackage: string | null;
  readonly mode: number;
  readonly wanted:
    | { readonly kind: 'text'; readonly content: string }
    | { readonly kind: 'copy'; readonly source: string; readonly sha256: string; readonly size: number }
    | { readonly kind: 'link'; readonly target: string };
  readonly reason: string;
  /** A person may edit it: written only where there is none, or where `asked`. */
  readonly editable: boolean;
  readonly asked: boolean;
}

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
  readonly socket: ServingUnit;
  readonly service: ServingUnit;
  /** The running program is not the installed file: it was replaced without a hand-over. */
  readonly outdated: boolean;
  /** The daemon's own status; null: it does not run, or this user may not ask. */
  readonly daemon: HostDaemon | null;
  readonly problems: readonly ServingProblem[];
  readonly manifest: Manifest | null;
  readonly interrupted: boolean;
}

export interface ServingUnit {
  readonly activeState: string;
  readonly needDaemonReload: boolean;
}

/** The members that are read of `vgpu-hostd status --json`; docs/json/common.schema.json has all of it. */
export const hostDaemonSchema = object({
  schema: constant(1),
  version: text,
  devices: list(object({ name: text })),
  sessions: list({ type: 'object' } as Schema<object>),
});
export type HostDaemon = Described<typeof hostDaemonSchema>;
