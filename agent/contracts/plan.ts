/** A plan: what would be changed, in order, each with its reason. Pure data; apply/ carries it out. */
import type { MachineFacts, ShimBuild } from './facts.js';
import type { Consumer, PathState } from './manifest.js';

export interface PlanOptions {
  /** `unix:PATH`, `vsock:CID:PORT` or `tcp:ADDR:PORT`; null takes the one that `facts.host` found. */
  readonly endpoint: string | null;
  readonly restart: boolean;
  readonly force: boolean;
  readonly allowUnreachable?: boolean;
  /** Shall the service be there? Absent or null: as it is. */
  readonly service?: boolean | null;
}

export type Change =
  | { readonly kind: 'make-directory'; readonly path: string; readonly mode: number; readonly reason: string }
  | { readonly kind: 'store'; readonly shim: ShimBuild; readonly reason: string }
  | {
      /** It is as we would make it already, and no manifest says so (the manifest was lost): only noted down. */
      readonly kind: 'adopt';
      readonly path: string;
      readonly state: PathState;
      readonly reason: string;
    }
  | {
      readonly kind: 'write-file';
      readonly path: string;
      readonly content: string;
      readonly mode: number;
      readonly before: PathState;
      /** For the diff; null when there was none or it is not text. */
      readonly previousContent: string | null;
      /** Libraries that the file makes the loader load: tried as the service's user just before it is written. */
      readonly preflight?: Preflight;
      readonly reason: string;
    }
  | {
      /** A file that is copied from the package: programs, and what is too big to be shown. */
      readonly kind: 'copy-file';
      readonly path: string;
      readonly source: string;
      readonly sha256: string;
      readonly size: number;
      readonly mode: number;
      readonly before: PathState;
      readonly reason: string;
    }
  | {
      readonly kind: 'write-link';
      readonly path: string;
      readonly target: string;
      readonly before: PathState;
      /** The package whose link is replaced. */
      readonly ownerPackage?: string;
      readonly reason: string;
    }
  | {
      readonly kind: 'alternative';
      readonly group: string;
      readonly path: string;
      readonly priority: number;
      readonly link: string;
      readonly slaves: readonly { readonly link: string; readonly name: string; readonly path: string }[];
      readonly before: { readonly status: 'auto' | 'manual'; readonly value: string };
      readonly reason: string;
    }
  | {
      readonly kind: 'remove-owned';
      readonly path: string;
      readonly restores: PathState;
      readonly reason: string;
    }
  | {
      readonly kind: 'note-consumer';
      readonly unit: string;
      readonly reason: string;
    }
  | { readonly kind: 'remove-store'; readonly id: string; readonly reason: string }
  | {
      readonly kind: 'remove-alternative';
      readonly group: string;
      readonly path: string;
      readonly reason: string;
    }
  | { readonly kind: 'remove-directory'; readonly path: string; readonly reason: string }
  | {
      /** `links`: let ldconfig set the SONAME links too, as a package's trigger does. Else only the cache. */
      readonly kind: 'ldconfig';
      readonly links: boolean;
      readonly reason: string;
    }
  | { readonly kind: 'daemon-reload'; readonly reason: string }
  | { readonly kind: 'restart'; readonly unit: string; readonly reason: string }
  | {
      /** vgpu-agent's service: after everything else, since it works with what the other changes made. */
      readonly kind: 'service';
      readonly unit: string;
      /** `hand-over`, `reload`: arguments of vgpu-hostd, no session ends. `daemon-reload`: after a stop. */
      readonly action: 'start' | 'restart' | 'stop' | 'hand-over' | 'reload' | 'daemon-reload';
      readonly reason: string;
    };

export interface Preflight {
  readonly user: MachineFacts['serviceUser'];
  /** Ours: nothing is written when one of them cannot be loaded. */
  readonly required: readonly string[];
  /** The unit's own value from before: kept, and told when it cannot be loaded. */
  readonly inherited: readonly string[];
}

export interface Warning {
  /** Stable, kebab-case: `output-bypasses-journal`, `sandbox-blocks-transport`. */
  readonly code: string;
  readonly message: string;
  readonly remedy: string | null;
}

export type Refusal = Warning & { readonly remedy: string };

export function told<R extends string | null>(code: string, message: string, remedy: R) {
  return [{ code, message, remedy }] as const;
}

export type ReadyPlan = Extract<Plan, { kind: 'ready' }>;

export type Plan =
  | { readonly kind: 'refused'; readonly refusals: readonly Refusal[]; readonly warnings: readonly Warning[] }
  | {
      readonly kind: 'ready';
      readonly side?: 'host';
      readonly intent: 'install' | 'uninstall';
      readonly profile: string;
      readonly unit: string;
      readonly storeId: string;
      readonly endpoint: string;
      /** All that have the GPU when the plan is carried out; empty: nothing is installed any more then. */
      readonly consumers: readonly Consumer[];
      readonly changes: readonly Change[];
      readonly warnings: readonly Warning[];
    };
