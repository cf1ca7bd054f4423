import type { Carrier } from './shim-codes.js';

export type Mode = 'gpu' | 'cpu' | 'degraded' | 'undetermined';

/** A closed list: docs/reference/reasons.md. The first group can be read off a log alone. */
export const reasons = [
  'driver-too-old',
  'no-device',
  'driver-init-failed',
  'driver-library-mismatch',
  'library-symbol-missing',
  'compute-capability-unreadable',
  'architecture-not-compiled',
  'discovery-timeout',
  'probe-crashed',
  'devices-hidden-by-environment',
  'library-forced-to-cpu',
  'no-discovery-line',
  'unsupported-log-version',
  'shim-not-loaded',
  'foreign-library-loaded',
  'library-not-found',
  'preload-ignored',
  'host-unreachable',
  'host-refused',
  'host-foreign',
  'host-version',
  'host-slow',
  'transport-blocked-by-sandbox',
  'output-bypasses-journal',
  'unit-failed',
  'unit-restarting',
  'readiness-timeout',
  'journal-unavailable',
  'journal-cut',
  'memory-round-trip-failed',
  'consumer-not-restarted',
  'environment-removed',
  'probe-disagrees',
  'not-cuda',
  'layers-not-offloaded',
  'model-on-cpu',
  'no-session',
  'no-work-yet',
  'context-create-failed',
  'compute-failed',
  'evidence-stale',
] as const;
export type Reason = (typeof reasons)[number];

export interface Device {
  readonly library: string;
  readonly compute: string;
  readonly name: string;
  readonly pci: string | null;
}

export interface Evidence {
  readonly kind:
    | 'log-line'
    | 'readiness'
    | 'loaded'
    | 'sessions'
    | 'maps'
    | 'environment'
    | 'probe'
    | 'compute'
    | 'unit'
    | 'host';
  /** Says it in a sentence, or quotes the line. */
  readonly text: string;
  readonly weight: 'for' | 'against' | 'neutral';
  /** Where it is from: `journal cursor ...`, `/proc/123/maps`, `line 17`. */
  readonly source: string | null;
}

export interface LogVerdict {
  readonly mode: Mode;
  readonly simulated: boolean;
  readonly devices: readonly Device[];
  readonly reason: Reason | null;
  readonly evidence: readonly Evidence[];
}

/** One look at the consumer and the host. Outputs with the same `id` are of the same look. */
export interface Look {
  /** Increases with every look; milliseconds since 1970 unless two looks fell into one. */
  readonly id: number;
  readonly at: string;
}

export interface Verdict extends LogVerdict {
  readonly profile: string;
  readonly unit: string;
  readonly invocationId: string | null;
  readonly consumerVersion: string | null;
  /** The carrier of the calls of its processes, else of a program in the unit's environment; absent: not reported. */
  readonly carrier?: Carrier;
  /** The newest look that it rests on; absent: it was made from a record. */
  readonly look?: Look;
  /** Nothing is loaded now, so the verdict is that of the start. */
  readonly idle?: true;
  /** One sentence for a person: why, and the exact next command if it is not GPU. */
  readonly summary: string;
  readonly next: string | null;
}
