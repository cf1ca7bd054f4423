/** The answer of `vgpu-probe`, and how its process ended. */
import { firstProblem, object, oneOfCodes, orNull, schemaCheck } from '../lib/schema.js';
import {
  type Carrier,
  carrierCodes,
  type ProbeFailure,
  probeFailureCodes,
  type Status,
  statusCodes,
  type Transport,
  transportCodes,
} from './shim-codes.js';

export interface ProbeReport {
  readonly schema: 1;
  readonly ok: boolean;
  readonly simulated: boolean;
  readonly library: string | null;
  readonly driver: string | null;
  readonly devices: readonly {
    readonly index: number;
    readonly name: string;
    readonly compute: string;
    readonly memory: number;
    readonly pci: string;
    readonly uuid: string;
  }[];
  readonly roundTrip: { readonly bytes: number; readonly ok: boolean; readonly microseconds: number } | null;
  /** The kernels of `--compute`: how many numbers were compared with the CPU's; absent: they were not run. */
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
    readonly kind: ProbeFailure;
    readonly step: string;
    readonly code: number | null;
    readonly name: string | null;
    readonly message: string;
  } | null;
}

export type ProbeRun =
  | {
      readonly kind: 'ran';
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
      readonly inContainer?: boolean;
    }
  | { readonly kind: 'timed-out'; readonly milliseconds: number }
  | { readonly kind: 'crashed'; readonly message: string }
  | { readonly kind: 'not-run'; readonly message: string };

// Our libcuda's account, through vgpu-probe, of its connection to the host (shim-src/guest/transport.h).

export interface HostWord {
  readonly code: Transport;
  /** `ECONNREFUSED`: the error name of the failed connection. */
  readonly errno: string | null;
  /** The host's answer to the greeting; null: it accepted it, or did not answer. */
  readonly status: Status | null;
  /** Major versions of the protocol; null: not told. */
  readonly guestWire: number | null;
  readonly hostWire: number | null;
  /** The host's name of itself: `vgpu-hostd 0.1.0 software`. */
  readonly host: string | null;
  readonly message: string;
  readonly carrier?: Carrier;
  readonly address?: string;
}

/** Null: it has its session, or was not asked to have one. */
export function troubleOf(word: HostWord | null): HostWord | null {
  return word === null || word.code === 'ok' || word.code === 'not-asked' ? null : word;
}

export function noAnswer(message: string): HostWord {
  return {
    code: 'timeout',
    errno: null,
    status: null,
    guestWire: null,
    hostWire: null,
    host: null,
    message,
  };
}

/** Which side has to be upgraded; null: the two are of one version, or it is not known. */
export function olderSide({ code, guestWire, hostWire }: HostWord): 'guest' | 'host' | null {
  if (code !== 'version' || guestWire === null || hostWire === null) return null;
  return hostWire < guestWire ? 'host' : 'guest';
}

// Reads what `vgpu-probe` prints. The probe loaded a foreign library: its words are checked like any input.

const text = { type: 'string' } as const;
const textOrNull = { type: ['string', 'null'] } as const;
const number = { type: 'number' } as const;
const numberOrNull = { type: ['number', 'null'] } as const;
const boolean = { type: 'boolean' } as const;

export const probeReportSchema = object(
  {
    schema: { const: 1 },
    ok: boolean,
    simulated: boolean,
    library: textOrNull,
    driver: textOrNull,
    devices: {
      type: 'array',
      items: object({ index: number, name: text, compute: text, memory: number, pci: text, uuid: text }),
    },
    roundTrip: orNull(object({ bytes: number, ok: boolean, microseconds: number })),
    nvml: object({ ok: boolean, driver: textOrNull, error: textOrNull }),
    host: orNull(
      object(
        {
          code: oneOfCodes(transportCodes),
          errno: textOrNull,
          status: orNull(oneOfCodes(statusCodes)),
          guestWire: numberOrNull,
          hostWire: numberOrNull,
          host: textOrNull,
          message: textOrNull,
        },
        { carrier: orNull(oneOfCodes(carrierCodes)), address: textOrNull },
      ),
    ),
    error: orNull(
      object({
        kind: oneOfCodes(probeFailureCodes),
        step: text,
        code: numberOrNull,
        name: textOrNull,
        message: text,
      }),
    ),
  },
  { compute: orNull(object({ ok: boolean, values: number, wrong: number, microseconds: number })) },
);

type Optional = 'message' | 'carrier' | 'address';
/** A library of another make may give no message. */
type Printed = Omit<ProbeReport, 'host' | 'compute'> & {
  readonly compute?: ProbeReport['compute'] | null;
  readonly host: (Omit<HostWord, Optional> & { readonly [key in Optional]: HostWord[key] | null }) | null;
};

export function parseProbeReport(printed: string): ProbeReport | { readonly problem: string } {
  let value: unknown;
  try {
    value = JSON.parse(printed);
  } catch {
    return { problem: `vgpu-probe did not print JSON: ${JSON.stringify(printed.slice(0, 200))}` };
  }
  const checked = schemaCheck<Printed>(probeReportSchema)(value);
  if (checked.kind === 'wrong')
    return { problem: `vgpu-probe printed an unknown document: ${firstProblem(checked.errors)}` };
  const { host, compute, ...report } = checked.value;
  return {
    ...report,
    ...(compute == null ? {} : { compute }),
    host: host === null ? null : hostWord(host),
  };
}

function hostWord({ message, carrier, address, ...word }: NonNullable<Printed['host']>): HostWord {
  return {
    ...word,
    message: message ?? transportCodes.find(({ code }) => code === word.code)?.text ?? '',
    ...(carrier == null ? {} : { carrier }),
    ...(address == null ? {} : { address }),
  };
}
