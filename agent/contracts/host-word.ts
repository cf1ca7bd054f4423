/** Our libcuda's account, through vgpu-probe, of its connection to the host (shim-src/guest/transport.h). */
import {
  type Carrier,
  carrierCodes,
  type Status,
  statusCodes,
  type Transport,
  transportCodes,
} from './shim-codes.js';

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
  /** The same in a sentence, only to be shown. */
  readonly message: string;
  /** The transport of the session's calls; absent: there is none, or an older library that does not tell. */
  readonly carrier?: Carrier;
}

/** Null where there is none: another library than ours, an older probe, or codes that only a newer one knows. */
export function readHostWord(value: unknown): HostWord | null {
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
  };
}

/** Null: it has its session, or was not asked to have one. */
export function troubleOf(word: HostWord | null): HostWord | null {
  return word === null || word.code === 'ok' || word.code === 'not-asked' ? null : word;
}

/** The facts when the probe did not return. */
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
