/** The answer of `vgpu-probe`, and how its process ended. */
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

/** The output of `vgpu-probe --json`, checked against its schema. */
export interface ProbeReport {
  readonly schema: 1;
  readonly ok: boolean;
  readonly simulated: boolean;
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
    readonly kind: ProbeFailure;
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
  /** The transport of the session's calls; absent: there is none, or an older library that does not tell. */
  readonly carrier?: Carrier;
  /** The address of the host with the session; absent: as the carrier. */
  readonly address?: string;
}

/** Null where there is none: another library than ours, an older probe, or codes that only a newer one knows. */
function readHostWord(value: unknown): HostWord | null {
  if (typeof value !== 'object' || value === null) return null;
  const {
    code,
    errno,
    status,
    guestWire,
    hostWire,
    host,
    message,
    carrier,
    address,
  }: Partial<Record<string, unknown>> = {
    ...value,
  };
  const known = transportCodes.find((one) => one.code === code);
  if (known === undefined) return null;
  const carried = carrierCodes.find((one) => one.code === carrier)?.code;
  return {
    code: known.code,
    errno: textOrNull(errno),
    status: statusCodes.find((one) => one.code === status)?.code ?? null,
    guestWire: numberOrNull(guestWire),
    hostWire: numberOrNull(hostWire),
    host: textOrNull(host),
    message: textOrNull(message) ?? known.text,
    ...(carried === undefined ? {} : { carrier: carried }),
    ...(textOrNull(address) === null ? {} : { address: String(address) }),
  };
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

function textOrNull(value: unknown): string | null {
  return typeof value === 'string' && value !== '' ? value : null;
}

function numberOrNull(value: unknown): number | null {
  return typeof value === 'number' && Number.isSafeInteger(value) ? value : null;
}

// Reads what `vgpu-probe` prints. The probe loaded a foreign library: its words are checked like any input.

type Json = Readonly<Record<string, unknown>>;

export function parseProbeReport(text: string): ProbeReport | { readonly problem: string } {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return { problem: `vgpu-probe did not print JSON: ${JSON.stringify(text.slice(0, 200))}` };
  }
  const report = isObject(value) ? reportOf(value) : null;
  return report ?? { problem: `vgpu-probe printed an unknown document: ${text.slice(0, 200)}` };
}

function reportOf(value: Json): ProbeReport | null {
  const { schema, ok, simulated, library, driver, devices, roundTrip, compute, nvml, error } = value;
  if (schema !== 1 || typeof ok !== 'boolean' || typeof simulated !== 'boolean') return null;
  if (!isTextOrNull(library) || !isTextOrNull(driver)) return null;
  if (!Array.isArray(devices) || !devices.every(isDevice)) return null;
  if (!(roundTrip === null || isRoundTrip(roundTrip)) || !isNvml(nvml)) return null;
  const failure = error === null ? null : failureOf(error);
  if (error !== null && failure === null) return null;
  const host = readHostWord(value['host']);
  const found = { schema, ok, simulated, library, driver, devices, roundTrip, nvml, host } as const;
  const report = { ...found, error: failure };
  // An older probe does not name it.
  if (compute === undefined || compute === null) return report;
  return isCompute(compute) ? { ...report, compute } : null;
}

function isDevice(value: unknown): value is ProbeReport['devices'][number] {
  return (
    isObject(value) &&
    typeof value['index'] === 'number' &&
    typeof value['memory'] === 'number' &&
    ['name', 'compute', 'pci', 'uuid'].every((name) => typeof value[name] === 'string')
  );
}

function isRoundTrip(value: unknown): value is NonNullable<ProbeReport['roundTrip']> {
  return (
    isObject(value) &&
    typeof value['ok'] === 'boolean' &&
    typeof value['bytes'] === 'number' &&
    typeof value['microseconds'] === 'number'
  );
}

function isCompute(value: unknown): value is NonNullable<ProbeReport['compute']> {
  return (
    isObject(value) &&
    typeof value['ok'] === 'boolean' &&
    ['values', 'wrong', 'microseconds'].every((name) => typeof value[name] === 'number')
  );
}

function isNvml(value: unknown): value is ProbeReport['nvml'] {
  return (
    isObject(value) &&
    typeof value['ok'] === 'boolean' &&
    isTextOrNull(value['driver']) &&
    isTextOrNull(value['error'])
  );
}

function failureOf(value: unknown): ProbeReport['error'] {
  if (!isObject(value)) return null;
  const { kind, step, code, name, message } = value;
  if (typeof step !== 'string' || typeof message !== 'string' || !isTextOrNull(name)) return null;
  if (code !== null && typeof code !== 'number') return null;
  // An older probe does not say.
  const known = probeFailureCodes.find((one) => one.code === kind)?.code;
  return { kind: known ?? (code === null ? 'other' : 'call'), step, code, name, message };
}

function isObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isTextOrNull(value: unknown): value is string | null {
  return value === null || typeof value === 'string';
}
