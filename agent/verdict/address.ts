/** Where to ask a consumer whether it is ready, from the many ways to write an address. */

interface Address {
  readonly scheme: 'http' | 'https';
  readonly host: string;
  readonly port: number;
}

const schemePorts: Readonly<Record<Address['scheme'], number>> = { http: 80, https: 443 };

/**
 * Reads an address as Ollama reads OLLAMA_HOST: `host`, `host:port`, `:port`,
 * `http://host[:port][/path]`, `[::1]:port`, a bare IPv6 address, in quotes or not.
 * Parts that are missing or make no sense come from `fallback`; with a scheme, the port
 * that is missing is that scheme's.
 */
function parseAddress(text: string, fallback: Address): Address {
  const trimmed = text
    .trim()
    .replace(/^["']+|["']+$/g, '')
    .trim();
  const [, schemeText, rest = ''] = /^(?:([A-Za-z]+):\/\/)?([^/]*)/.exec(trimmed) ?? [];
  const scheme = schemeText?.toLowerCase() === 'https' ? 'https' : 'http';
  const defaultPort = schemeText === undefined ? fallback.port : schemePorts[scheme];
  const split = /^(?:\[([^\]]*)\]|([^:]*))(?::([^:]*))?$/.exec(rest);
  // More than one colon and no brackets: an IPv6 address by itself.
  const host = split === null ? rest : (split[1] ?? split[2] ?? '');
  const port = split?.[3] === undefined || split[3] === '' ? defaultPort : Number(split[3]);
  return {
    scheme,
    // `:port` names no host: Go listens on all of them.
    host: host === '' ? (rest === '' ? fallback.host : '0.0.0.0') : host,
    port: Number.isInteger(port) && port > 0 && port <= 65_535 ? port : defaultPort,
  };
}

const noFallback: Address = { scheme: 'http', host: '127.0.0.1', port: 80 };

/**
 * URLs to try, the likeliest first. An address that means "all of them" is asked
 * on loopback; `[::]` on both, since it may or may not take IPv4.
 */
export function readinessUrls(address: string, defaultAddress: string, path: string): readonly string[] {
  const { scheme, host, port } = parseAddress(address, parseAddress(defaultAddress, noFallback));
  const hosts = host === '::' ? ['127.0.0.1', '::1'] : [host === '0.0.0.0' ? '127.0.0.1' : host];
  return hosts.map((one) => `${scheme}://${one.includes(':') ? `[${one}]` : one}:${port}${path}`);
}
