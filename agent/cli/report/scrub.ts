/** Names that identify this machine or its users, which a report must not have. Reads, never writes. */
import { isIP, isIPv6 } from 'node:net';
import { hostname } from 'node:os';
import { Root } from '../../guest/files/root.js';

interface Identity {
  readonly hosts: readonly string[];
  readonly users: readonly string[];
  /** machine-id and boot ID: journal cursors contain them. */
  readonly ids: readonly string[];
}

const maxBytes = 1024 * 1024;
/** login.defs: people's accounts lie between these, services' below. */
const firstPerson = 1000;
const nobody = 65534;

/** Sources that cannot be read are left out; `environment` is the agent's own (SUDO_USER, USER). */
export function readIdentity(
  rootDirectory = '/',
  environment: Readonly<Record<string, string | undefined>> = process.env,
  ownName = hostname(),
): Identity {
  const root = new Root(rootDirectory);
  const read = (file: string): string => {
    try {
      return root.readFile(file, maxBytes)?.toString('utf8') ?? '';
    } catch {
      return '';
    }
  };
  const own = [ownName, read('/etc/hostname').trim(), read('/etc/mailname').trim()];
  const named = read('/etc/hosts')
    .split('\n')
    .flatMap((line) => line.replace(/#.*/, '').trim().split(/\s+/).slice(1));
  const domains = read('/etc/resolv.conf')
    .split('\n')
    .flatMap((line) => /^\s*(?:search|domain)\s+(.*)$/.exec(line)?.[1]?.trim().split(/\s+/) ?? []);
  const hosts = [...own, ...named, ...domains].flatMap((name) => [name, name.split('.')[0] ?? '']);
  const people = read('/etc/passwd')
    .split('\n')
    .map((line) => line.split(':'))
    .filter(([, , uid]) => Number(uid) >= firstPerson && Number(uid) !== nobody)
    .map(([name = '']) => name);
  const callers = [environment['SUDO_USER'] ?? '', environment['USER'] ?? '', environment['LOGNAME'] ?? ''];
  return {
    hosts: distinct(hosts.filter((name) => isIP(name) === 0)),
    users: distinct([...people, ...callers.filter((name) => name !== 'root')]),
    ids: distinct([
      read('/etc/machine-id').trim(),
      read('/proc/sys/kernel/random/boot_id').trim().replaceAll('-', ''),
    ]),
  };
}

function distinct(names: readonly string[]): readonly string[] {
  return [...new Set(names.filter((name) => name !== ''))];
}

// Takes out of a text what does not belong into a bug report: secrets, names of hosts and people, addresses. Pure.
// When in doubt it goes: a report that lacks a word is still a report.

export const redacted = '[redacted]';

/** Longer words may be keys, help no reader, and slow the patterns below (quadratic). */
const longWord = /\S{2048,}/g;

const secretName = 'KEY|TOKEN|SECRET|PASSW|PASSPHRASE|PWD|CREDENTIAL|AUTH|COOKIE|SIGNATURE|SESSION_ID';
const isSecretName = new RegExp(secretName, 'i');

/** Words of our own and of every machine: as a host's or a person's name they tell nothing, and replacing them would spoil the report. */
const ordinary = new Set(
  (
    'localhost localdomain local ip6-localhost ip6-loopback ip6-allnodes ip6-allrouters ollama vgpu vgpu-agent ' +
    'vgpu-hostd gpu cpu cuda host guest debian ubuntu fedora linux systemd root nobody user admin home lan server'
  ).split(' '),
);
const shortest = 3;

/** The same name or address always becomes the same placeholder, so that a report can still be followed. */
export function createScrubber(identity: Identity) {
  const hosts = replacer(identity.hosts, 'host');
  const users = replacer(identity.users, 'user');
  const ids = replacer(identity.ids, 'machine-id');
  const addresses = numbered('ip');
  const homes = numbered('user');

  const text = (given: string): string => {
    let out = given.replace(longWord, ({ length }) => `[a word of ${length} characters]`);
    for (const [pattern, replacement] of secretPatterns) out = out.replace(pattern, replacement);
    out = out.replace(address4, (found: string) => (isPublic4(found) ? addresses(found) : found));
    out = out.replace(address6, (found: string) =>
      isIPv6(found) && !isLoopback6(found) ? addresses(found.toLowerCase()) : found,
    );
    for (const replace of [ids, hosts, users]) out = replace(out);
    // Homes of accounts that are in no file here (LDAP, a name that is gone).
    return out.replace(homePath, (whole: string, start: string, name: string) =>
      name.startsWith('[') ? whole : `${start}${homes(name)}`,
    );
  };

  const value = (given: unknown): unknown => {
    if (typeof given === 'string') return text(given);
    if (Array.isArray(given)) return given.map(value);
    if (typeof given !== 'object' || given === null) return given;
    return Object.fromEntries(
      Object.entries(given).map(([name, inner]) => [
        text(name),
        typeof inner === 'string' && isSecretName.test(name) ? redacted : value(inner),
      ]),
    );
  };
  return { text, value };
}

const secretPatterns: readonly (readonly [RegExp, string])[] = [
  [/-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)/g, redacted],
  [/\b(Bearer|Basic|Digest)\s+(?!\[)[\w.~+/=-]{6,}/gi, `$1 ${redacted}`],
  // An assignment inside quotes (Environment="API_KEY=a b"): all of it up to the closing quote.
  [
    new RegExp(`(["'])([\\w.-]*(?:${secretName})[\\w.-]*=)(?:\\\\.|(?!\\1)[^\\\\])*`, 'gi'),
    `$1$2${redacted}`,
  ],
  // NAME=value, NAME: value, "name": "value", also with escaped quotes; values in quotes go whole.
  [
    new RegExp(
      `(?<![\\w.-])([\\w.-]*(?:${secretName})[\\w.-]*\\\\?["']?\\s*(?:=|:)\\s*)(?!\\[redacted\\])(?:\\\\?"(?:\\\\.|[^"\\\\])*\\\\?"|'[^']*'|[^\\s,;"'\\]})]+)`,
      'gi',
    ),
    `$1${redacted}`,
  ],
  [new RegExp(`(--?[\\w-]*(?:${secretName})[\\w-]*[ =]+)(?!\\[redacted\\])\\S+`, 'gi'), `$1${redacted}`],
  [/\b(?:sk|pk|rk)[-_][\w-]{16,}/g, redacted],
  [/\b(?:gh[opsur]_|github_pat_|glpat-|hf_|xox[abpr]-|npm_|nvapi-)[\w-]{10,}/g, redacted],
  [/\b(?:AKIA|ASIA)[A-Z0-9]{12,}/g, redacted],
  [/\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*/g, redacted],
  [/\b(?:ssh-(?:rsa|ed25519|dss)|ecdsa-sha2-\w+) [A-Za-z0-9+/=]{20,}(?: \S+)?/g, redacted],
  [/(\b[a-z][a-z0-9+.-]*:\/\/)[^\s/@"']+@/gi, `$1${redacted}@`],
  [/\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+/g, '[email]'],
  [/\b[0-9a-f]{2}(?::[0-9a-f]{2}){5}\b/gi, '[mac]'],
];

const address4 = /(?<![\d.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\d]|\.\d)/g;
const address6 = /(?<![\w:.])(?:[0-9a-f]{0,4}:){2,7}[0-9a-f]{0,4}(?![\w:])/gi;
const homePath = /(\/home\/|\/Users\/|\/var\/home\/|\/export\/home\/)([^/\s"':;,)\]]+)/g;

function isPublic4(address: string): boolean {
  return !address.startsWith('127.') && address !== '0.0.0.0';
}

function isLoopback6(address: string): boolean {
  return address === '::1' || address === '::' || address.toLowerCase().startsWith('::ffff:');
}

function numbered(kind: string): (name: string) => string {
  const known = new Map<string, string>();
  return (name) => {
    const placeholder = known.get(name) ?? `[${kind}-${known.size + 1}]`;
    known.set(name, placeholder);
    return placeholder;
  };
}

/** Replaces whole words, longer names before those they begin with, whatever their case. */
function replacer(names: readonly string[], kind: string): (text: string) => string {
  const telling = names
    .filter((name) => name.length >= shortest && !ordinary.has(name.toLowerCase()))
    .toSorted((a, b) => b.length - a.length);
  if (telling.length === 0) return (text) => text;
  const sources = telling.map((name) => name.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&'));
  const pattern = new RegExp(`(?<![A-Za-z0-9])(?:${sources.join('|')})(?![A-Za-z0-9])`, 'gi');
  const placeholder = numbered(kind);
  return (text) => text.replace(pattern, (found) => placeholder(found.toLowerCase()));
}
