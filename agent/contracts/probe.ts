/** The answer of `vgpu-probe`, and how its process ended. */
import type { HostWord } from './host-word.js';
import type { ProbeFailure } from './shim-codes.js';

/** The output of `vgpu-probe --json`, checked against its schema. */
export interface ProbeReport {
  readonly schema: 1;
  readonly ok: boolean;
  readonly simulated: boolean;
  /** Real path of the libcuda that was loaded. */
  readonly library: string | null;
  /** CUDA version of the driver: `13.0`. */
  readonly driver: string | null;
  readonly devices: readonly {
    readonly index: number;
    readonly name: string;
    readonly compute: string;
    /** Bytes. */
    readonly memory: number;
    readonly pci: string;
    readonly uuid: string;
  }[];
  readonly roundTrip: { readonly bytes: number; readonly ok: boolean; readonly microseconds: number } | null;
  /** The kernels of `--compute`: how many numbers were held against the CPU's. Absent: it did not come to that. */
  readonly compute?: {
    readonly ok: boolean;
    readonly values: number;
    readonly wrong: number;
    readonly microseconds: number;
  };
  readonly nvml: { readonly ok: boolean; readonly driver: string | null; readonly error: string | null };
  /** The result of the shim's connection; null: another libcuda was loaded, or there was no connection. */
  readonly host: HostWord | null;
  readonly error: {
    /** A call that failed has a `code`, mostly with a `name`. */
    readonly kind: ProbeFailure;
    /** The function that was called, or `dlopen`, `dlsym`, `compare`. */
    readonly step: string;
    readonly code: number | null;
    readonly name: string | null;
    readonly message: string;
  } | null;
}

/** How the probe's process ended, before its output is interpreted. */
export type ProbeRun =
  | {
      readonly kind: 'ran';
      /** Null when a signal ended it. */
      readonly exitCode: number | null;
      readonly signal: string | null;
      readonly timedOut: boolean;
      readonly stdout: string;
      readonly stderr: string;
      readonly milliseconds: number;
      /** It ran in the consumer's container, where the paths are the container's. */
      readonly inContainer?: boolean;
    }
  | { readonly kind: 'not-run'; readonly message: string };

export type ProbeResult =
  | {
      readonly kind: 'answered';
      readonly report: ProbeReport;
      readonly milliseconds: number;
      /** It ran in the consumer's container, where the paths are the container's. */
      readonly inContainer?: boolean;
    }
  | { readonly kind: 'timed-out'; readonly milliseconds: number }
  | { readonly kind: 'crashed'; readonly message: string }
  | { readonly kind: 'not-run'; readonly message: string };
