/** Where the hosts are: how addresses are written, and which ones count. */
import { readFileSync } from 'node:fs';
import { isIPv4, isIPv6 } from 'node:net';
import type { HostFacts } from '../../contracts/facts.js';
import { VgpuError } from '../../lib/errors.js';
import { defaultPort, defaultSocket, guestConf, hostInUseFile } from '../../lib/paths.js';

type Endpoint =
  | { readonly kind: 'unix'; readonly path: string }
  | { readonly kind: 'vsock'; readonly cid: number; readonly port: number }
  | { readonly kind: 'tcp'; readonly address: string; readonly port: number };

/** sizeof(sockaddr_un.sun_path) without the NUL. */
const maxSocketPath = 107;
/** VMADDR_CID_ANY and VMADDR_PORT_ANY (2^32 - 1) are not addresses of a machine. */
const maxVsock = 0xffff_fffe;
const howToWrite =
  'write unix:/PATH, vsock:CID:PORT (the host is CID 2) or tcp:ADDRESS:PORT; several with commas between them';

export function parseEndpoint(text: string): Endpoint | { readonly kind: 'bad'; readonly reason: string } {
  const colon = text.indexOf(':');
  const rest = text.slice(colon + 1);
  switch (colon === -1 ? '' : text.slice(0, colon)) {
    case 'unix':
      return parseUnix(rest);
    case 'vsock':
      return parseVsock(rest);
    case 'tcp':
      return parseTcp(rest);
    default:
      return bad('it begins with none of unix:, vsock: and tcp:');
  }
}

function bad(reason: string): { kind: 'bad'; reason: string } {
  return { kind: 'bad', reason };
}

/** `@` stands for the NUL of an abstract name (unix(7)). */
function parseUnix(path: string): ReturnType<typeof parseEndpoint> {
  if (!path.startsWith('/') && !path.startsWith('@')) return bad('the path of the socket must be absolute');
  if (path.length < 2) return bad('the path of the socket is empty');
  // A line break would end the line in guest.conf, blanks at its end are not part of it.
  if ([...path].some((one) => one < ' ' || one === '\x7f') || path.endsWith(' ')) {
    return bad('the path of the socket holds a control character or ends in a blank');
  }
  if (Buffer.byteLength(path) > maxSocketPath) {
    return bad(`the path of the socket is longer than ${maxSocketPath} bytes`);
  }
  return { kind: 'unix', path };
}

function parseVsock(rest: string): ReturnType<typeof parseEndpoint> {
  const match = /^(\d{1,10}):(\d{1,10})$/.exec(rest);
  if (match === null) return bad('after vsock: it needs two decimal numbers, CID:PORT');
  const [cid, port] = [Number(match[1]), Number(match[2])];
  if (cid > maxVsock) return bad(`the CID must be at most ${maxVsock}`);
  if (port < 1 || port > maxVsock) return bad(`the port must be from 1 to ${maxVsock}`);
  return { kind: 'vsock', cid, port };
}

function parseTcp(rest: string): ReturnType<typeof parseEndpoint> {
  const match = /^(?:\[([^\]]*)\]|([^:]*)):(\d{1,5})$/.exec(rest);
  if (match === null) return bad('after tcp: it needs ADDRESS:PORT, with an IPv6 address in brackets');
  const [, six, four] = match;
  const port = Number(match[3]);
  if (port < 1 || port > 65535) return bad('the port must be from 1 to 65535');
  const address = six ?? four ?? '';
  if (six === undefined ? !isIPv4(address) : !isIPv6(address)) {
    return bad(`${JSON.stringify(address)} is not an ${six === undefined ? 'IPv4' : 'IPv6'} address`);
  }
  return { kind: 'tcp', address, port };
}

// A list of hosts: `hosts=` of a facts' endpoint is the list as text, with a comma between the addresses.

/** VGPU_HOSTS_MAX of shim-src/wire/address.h. */
const maxHosts = 8;

/**
 * The addresses of a list, as vgpu_hosts_split() reads them: a comma or blank separates only before unix:, vsock: or
 * tcp:, because the path of a socket may have both.
 */
export function splitHosts(text: string): readonly string[] {
  return text.replace(/^[ \t\r\n]+|[ \t\r\n]+$/g, '').split(/[ \t\r\n,]+(?=unix:|vsock:|tcp:)/);
}

export function hostsText(addresses: readonly string[]): string {
  return addresses.join(',');
}

export function parseHosts(
  text: string,
):
  | { readonly kind: 'hosts'; readonly addresses: readonly string[] }
  | { readonly kind: 'bad'; readonly reason: string } {
  const addresses = splitHosts(text);
  const several = addresses.length > 1;
  for (const address of addresses) {
    const one = parseEndpoint(address);
    if (one.kind === 'bad') return several ? bad(`${JSON.stringify(address)}: ${one.reason}`) : one;
  }
  if (addresses.length > maxHosts)
    return bad(`it names ${addresses.length} hosts, at most ${maxHosts} are possible`);
  const twice = addresses.find((one, index) => addresses.indexOf(one) !== index);
  return twice === undefined ? { kind: 'hosts', addresses } : bad(`it names ${twice} twice`);
}

/** The host of the list that `used` names; else the first. */
export function hostInUse(hosts: string, used: string | null): string {
  const addresses = splitHosts(hosts);
  return addresses.find((one) => one === used) ?? addresses[0] ?? hosts;
}

/** In the order in which the library tries them (shim-src/guest/config.c). */
export function inOrderOfUse(hosts: string, used: string | null): string {
  const first = hostInUse(hosts, used);
  return hostsText([first, ...splitHosts(hosts).filter((one) => one !== first)]);
}

/** The host of a list that the service uses; null: it has chosen none. */
export function readHostInUse(file = hostInUseFile): string | null {
  try {
    return readFileSync(file, 'utf8').trim();
  } catch {
    return null;
  }
}

/** Throws a VgpuError (`usage`) that quotes the value and says how addresses are written. Returns them in one way. */
export function requireHosts(text: string, source: string): string {
  const endpoint = parseHosts(text);
  if (endpoint.kind !== 'bad') return hostsText(endpoint.addresses);
  throw new VgpuError(`${source} ${JSON.stringify(text)} is not an address of a host: ${endpoint.reason}`, {
    kind: 'usage',
    operation: 'read the address of the host',
    remedy: howToWrite,
  });
}

/** As the shim reads it: blanks and unknown names ignored, the last `host` counts. Null: none. Several: `hostsText`. */
export function parseGuestConf(text: string): string | null {
  let host: string | null = null;
  for (const line of text.split('\n')) {
    const match = /^[ \t]*host[ \t]*=([^\n]*)$/.exec(line);
    const value = match?.[1]?.trim() ?? '';
    if (value !== '') host = hostsText(splitHosts(value));
  }
  return host;
}

export interface EndpointSources {
  readonly flag: string | null;
  /** Where `flag` is from, if not from `--host`. */
  readonly flagFrom?: 'agent.json';
  /** `VGPU_HOST`; empty counts as unset. */
  readonly environment: string | undefined;
  readonly guestConf: string | null;
  readonly defaultSocketExists: boolean;
}

/**
 * The address in force: flag, VGPU_HOST, guest.conf, default (the unix socket if it exists, else vsock). A bad flag or
 * variable throws a VgpuError (`usage`). A bad guest.conf is returned in `problem` instead, so that `status` can show
 * it and `install --host` can repair it.
 */
export function resolveEndpoint(
  sources: EndpointSources,
): Pick<HostFacts, 'endpoint' | 'from'> & { readonly problem: string | null } {
  if (sources.flag !== null) {
    const endpoint = requireHosts(sources.flag, '--host');
    return { endpoint, from: sources.flagFrom ?? 'flag', problem: null };
  }
  if (sources.environment !== undefined && sources.environment !== '') {
    const endpoint = requireHosts(sources.environment, 'VGPU_HOST');
    return { endpoint, from: 'environment', problem: null };
  }
  const host = parseGuestConf(sources.guestConf ?? '');
  if (host !== null) {
    const endpoint = parseHosts(host);
    const problem =
      endpoint.kind === 'bad'
        ? `${guestConf}: ${JSON.stringify(host)} is not an address of a host: ${endpoint.reason}; ${howToWrite}`
        : null;
    return { endpoint: host, from: 'guest.conf', problem };
  }
  return { endpoint: defaultEndpoint(sources.defaultSocketExists), from: 'default', problem: null };
}

function defaultEndpoint(socketExists: boolean): string {
  return socketExists ? `unix:${defaultSocket}` : `vsock:2:${defaultPort}`;
}
