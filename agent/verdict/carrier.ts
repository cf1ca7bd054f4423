/** The transport that carries the consumer's calls. Pure. */
import { type Carrier, carrierCodes } from '../contracts/shim-codes.js';
import { parseEndpoint } from '../guest/vgpu-host/endpoint.js';
import { hostOfUnit } from '../systemd/unit-environment.js';
import type { Observation } from './observation.js';
import { computing } from './present.js';

/**
 * The host's word on the sessions of its processes comes before that of the probe, which is a process more and may find
 * less room: of several sessions that which takes the most time. NVML's carry no work and never have rings.
 */
export function carrierOf(
  observation: Pick<Observation, 'present' | 'probe' | 'unit' | 'endpoint'>,
): Carrier | undefined {
  const { present, probe } = observation;
  const own = present.sessions.kind === 'told' ? computing(present.sessions.own) : [];
  const carriers = own.map(({ carrier }) => carrier);
  const slowest = carrierCodes.findLast(({ code }) => carriers.includes(code))?.code ?? 'none';
  if (slowest !== 'none') return asSeenHere(slowest, observation);
  return probe?.kind === 'answered' ? probe.report.host?.carrier : undefined;
}

/** A monitor may turn vsock into a unix socket on the way. */
function asSeenHere(carrier: Carrier, { unit, endpoint }: Pick<Observation, 'unit' | 'endpoint'>): Carrier {
  if (carrier !== 'unix') return carrier;
  const { kind } = parseEndpoint(unit.kind === 'loaded' ? hostOfUnit(unit, endpoint) : endpoint);
  return kind === 'bad' ? carrier : kind;
}
