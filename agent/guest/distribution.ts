/** Which distribution this is, and where it keeps libraries. */

import type { Distribution, DistributionFamily } from '../contracts/facts.js';
import { own } from '../lib/json.js';
import type { Root } from './files/root.js';

const maxOsRelease = 64 * 1024;

/** ID or ID_LIKE of the distributions of a family. */
const families: Readonly<Record<string, DistributionFamily>> = {
  debian: 'debian',
  rhel: 'redhat',
  fedora: 'redhat',
  suse: 'suse',
  sles: 'suse',
  arch: 'arch',
};

/** Debian's triplets (dpkg-architecture -L) of the machines that the shim is built for. */
const triplets: Readonly<Record<string, string>> = {
  x86_64: 'x86_64-linux-gnu',
  aarch64: 'aarch64-linux-gnu',
};

/** os-release(5). The family comes from ID, else from the first known word of ID_LIKE. */
export function readDistribution(root: Root, architecture: string): Distribution {
  const bytes =
    root.readFile('/etc/os-release', maxOsRelease) ?? root.readFile('/usr/lib/os-release', maxOsRelease);
  const fields = parseOsRelease(bytes?.toString('utf8') ?? '');
  const alike = [fields.get('ID') ?? '', ...(fields.get('ID_LIKE') ?? '').split(/\s+/)];
  const family = alike.map((one) => own(families, one)).find((one) => one !== undefined) ?? 'unknown';
  return {
    prettyName: fields.get('PRETTY_NAME') ?? fields.get('NAME') ?? 'Linux',
    family,
    architecture,
    multiarch: family === 'debian' ? (own(triplets, architecture) ?? null) : null,
  };
}

export function parseOsRelease(text: string): ReadonlyMap<string, string> {
  const fields = new Map<string, string>();
  for (const line of text.split('\n')) {
    const match = /^\s*([A-Za-z_][A-Za-z0-9_]*)=(.*?)\s*$/.exec(line);
    if (match?.[1] === undefined || match[2] === undefined) continue;
    fields.set(match[1], unquote(match[2]));
  }
  return fields;
}

function unquote(value: string): string {
  const quote = value.charAt(0);
  if (value.length < 2 || !value.endsWith(quote)) return value;
  if (quote === "'") return value.slice(1, -1);
  return quote === '"' ? value.slice(1, -1).replaceAll(/\\(["$`\\])/g, '$1') : value;
}
