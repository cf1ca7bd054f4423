/** The settings of a host, and the facts about the machine by which `vgpu-agent host` plans. */

import { constant, type Described, describing, list, object, text } from '../lib/schema.js';
import type { OwnedFileFacts } from './facts.js';
import type { Manifest } from './manifest.js';
import type { Change, Refusal, Warning } from './plan.js';

export const hostDevices = ['cuda', 'software'] as const;
export type HostDevice = (typeof hostDevices)[number];

export interface ServingRequest {
  readonly device: HostDevice | null;
  /** `unix:PATH`, `vsock:PORT` or `tcp:ADDRESS:PORT`. */
  readonly listen: readonly string[] | null;
  /** The settings of hostd.conf; `memory` as written there, such as `8G`. */
  readonly limits: { readonly memory: string | null; readonly sessions: number | null };
  readonly endSessions: boolean;
  readonly force: boolean;
}

/** One file or link of a host: its present state, and what this version would place there. */
export interface ServingFile extends OwnedFileFacts {
  readonly ownerPackage: string | null;
  readonly wanted:
    | { readonly kind: 'text'; readonly content: string }
    | (Pick<Extract<Change, { kind: 'copy-file' }>, 'source' | 'sha256' | 'size' | 'mode'> & {
        readonly kind: 'copy';
      })
    | { readonly kind: 'link'; readonly target: string };
  readonly reason: string;
  /** A file that is there stays as it is, because a person may have edited it. */
  readonly keep: boolean;
}

/** Of a machine as it is, for an uninstall. */
export interface ServedFacts {
  /** At least the files of the manifest and the daemon's unit. */
  readonly files: readonly OwnedFileFacts[];
  readonly socket: ServingUnit;
  readonly service: ServingUnit;
  /** The running program is not the installed file: it was replaced without a hand-over. */
  readonly outdated: boolean;
  /** The daemon's own status; null: it does not run, or this user may not ask. */
  readonly daemon: HostDaemon | null;
  readonly manifest: Manifest | null;
  readonly interrupted: boolean;
}

/** For an install: also the files that this version would place, and the obstacles. */
export interface ServingFacts extends ServedFacts {
  readonly listen: readonly string[];
  readonly files: readonly ServingFile[];
  readonly refusals: readonly Refusal[];
  readonly warnings: readonly Warning[];
}

export interface ServingUnit {
  readonly activeState: string;
  /** Its file; empty if it has none. */
  readonly fragment: string;
  readonly needDaemonReload: boolean;
}

/** The members that are read of `vgpu-hostd status --json`; docs/json/common.schema.json has all of it. */
export const hostDaemonSchema = object({
  schema: constant(1),
  version: text,
  devices: list(object({ name: text })),
  sessions: list(describing<object>({ type: 'object' })),
});
export type HostDaemon = Described<typeof hostDaemonSchema>;
