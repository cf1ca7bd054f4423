/** Names that identify this machine or its users, which a report must not have. Reads, never writes. */

import { isIP } from 'node:net';
import { hostname } from 'node:os';
import { Root } from '../../guest/files/root.js';

export interface Identity {
  /** Host names and domains of this machine and of those it names in /etc/hosts. */
  readonly hosts: readonly string[];
  /** Names of people's accounts. */
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
