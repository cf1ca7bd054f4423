/** The answer of `vgpu-probe`, and how its process ended. */
import {
  boolean,
  constant,
  type Described,
  list,
  number,
  object,
  oneOfCodes,
  orNull,
  readAs,
  text,
} from '../lib/schema.js';
import { type Carrier, carrierCodes, probeFailureCodes, statusCodes, transportCodes } from './shim-codes.js';

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

const textOrNull = orNull(text);
const numberOrNull = orNull(number);

const hostSchema = object(
  {
    code: oneOfCodes(transportCodes),
    /** `ECONNREFUSED`: the error name of the failed connection. */
    errno: textOrNull,
    /** The host's answer to the greeting; null: it accepted it, or did not answer. */
    status: orNull(oneOfCodes(statusCodes)),
    /** Major versions of the protocol; null: not told. */
    guestWire: numberOrNull,
    hostWire: numberOrNull,
    /** The host's name of itself: `vgpu-hostd 0.1.0 software`. */
    host: textOrNull,
    message: textOrNull,
  },
  { carrier: orNull(oneOfCodes(carrierCodes)), address: textOrNull },
);

/** The kernels of `--compute`: how many numbers were compared with the CPU's. */
const computeSchema = object({ ok: boolean, values: number, wrong: number, microseconds: number });

export const probeReportSchema = object(
  {
    schema: constant(1),
    ok: boolean,
    simulated: boolean,
    library: textOrNull,
    driver: textOrNull,
    devices: list(
      object({ index: number, name: text, compute: text, memory: number, pci: text, uuid: text }),
    ),
    roundTrip: orNull(object({ bytes: number, ok: boolean, microseconds: number })),
    nvml: object({ ok: boolean, driver: textOrNull, error: textOrNull }),
    host: orNull(hostSchema),
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
  { compute: orNull(computeSchema) },
);

type Printed = Described<typeof probeReportSchema>;
type PrintedHost = Described<typeof hostSchema>;

/** A library of another make may give no message. */
export type HostWord = Omit<PrintedHost, 'message' | 'carrier' | 'address'> & {
  readonly message: string;
  readonly carrier?: Carrier;
  readonly address?: string;
};

export type ProbeReport = Omit<Printed, 'host' | 'compute'> & {
  /** Absent: the kernels were not run. */
  readonly compute?: Described<typeof computeSchema>;
  /** The result of the shim's connection; null: another libcuda was loaded, or there was no connection. */
  readonly host: HostWord | null;
};

export function parseProbeReport(printed: string): ProbeReport | { readonly problem: string } {
  const checked = readAs(probeReportSchema, printed);
  if (checked.kind === 'wrong')
    return { problem: `vgpu-probe printed an unknown document: ${checked.problem}` };
  const { host, compute, ...report } = checked.value;
  return {
    ...report,
    ...(compute == null ? {} : { compute }),
    host: host === null ? null : hostWord(host),
  };
}

function hostWord({ message, carrier, address, ...word }: PrintedHost): HostWord {
  return {
    ...word,
    message: message ?? transportCodes.find(({ code }) => code === word.code)?.text ?? '',
    ...(carrier == null ? {} : { carrier }),
    ...(address == null ? {} : { address }),
  };
}
