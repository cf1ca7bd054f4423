/**
 * Which settings of a unit keep its processes from the host, or from files that the shim needs. The one place with
 * these rules: install warns by them, the verdict and the doctor name them. Pure.
 */
import { BlockList } from 'node:net';
import type { SandboxFacts } from '../contracts/unit.js';
import { own } from '../lib/json.js';
import { guestConf, storeRoot } from '../lib/paths.js';
import type { CommandResult, CommandRunner } from '../lib/run-command.js';
import { sectionLines } from '../lib/unit-file.js';

/** The system calls by which the shim reaches the host: a unit that forbids one of them keeps its processes from it. */
export const transportCalls = ['socket', 'connect'];

interface Obstacle {
  /** As one writes it in a unit file, with what it hides where it does not say so. */
  readonly setting: string;
  /** The action that allows it: an imperative, no full stop. */
  readonly remedy: string;
  readonly keepsFrom: 'host' | 'files';
}

/** Of several hosts: what keeps the unit from any of them, each setting once. */
export function hostsObstacles(addresses: readonly string[], sandbox: SandboxFacts): readonly Obstacle[] {
  const found = addresses.flatMap((address) => sandboxObstacles(address, sandbox));
  return [...new Map(found.map((one) => [one.setting, one])).values()];
}

export function sandboxObstacles(endpoint: string, sandbox: SandboxFacts): readonly Obstacle[] {
  const [, kind = '', address = ''] = /^([^:]*):?(.*)$/s.exec(endpoint) ?? [];
  const path = kind === 'unix' && !address.startsWith('@') ? address : null;
  const found = [
    ...familyObstacles(familyOf(kind, address), sandbox),
    ...callObstacles(sandbox),
    ...dockerObstacles(kind, sandbox),
    ...networkObstacles(kind, address, sandbox),
    ...(path === null ? [] : temporaryObstacles(path, sandbox)),
    ...hidingObstacles(path, sandbox),
    ...(path === null ? [] : homeObstacles(path, sandbox)),
  ];
  return found.toSorted((a, b) => Number(a.keepsFrom === 'files') - Number(b.keepsFrom === 'files'));
}

/** The first setting that keeps the unit's processes from the host; null when nothing is in the way. */
export function blockedTransport(endpoint: string, sandbox: SandboxFacts): Obstacle | null {
  return sandboxObstacles(endpoint, sandbox).find(({ keepsFrom }) => keepsFrom === 'host') ?? null;
}

function fromHost(setting: string, remedy: string): readonly Obstacle[] {
  return [{ setting, remedy, keepsFrom: 'host' }];
}

function familyObstacles(
  family: string | null,
  { restrictAddressFamilies: limits }: SandboxFacts,
): readonly Obstacle[] {
  if (family === null || limits === null || limits.families.includes(family) !== limits.deny) return [];
  const list = `${limits.deny ? '~' : ''}${limits.families.join(' ') || 'none'}`;
  return fromHost(
    `RestrictAddressFamilies=${list} (without ${family})`,
    limits.deny
      ? `take ${family} out of RestrictAddressFamilies=`
      : `set RestrictAddressFamilies=${family} too`,
  );
}

function callObstacles({ systemCallFilter }: SandboxFacts): readonly Obstacle[] {
  const filter = systemCallFilter ?? null;
  const call = transportCalls.find((one) => filter?.calls.includes(one) === filter?.deny);
  if (filter === null || call === undefined) return [];
  return fromHost(
    `SystemCallFilter= without ${call}()`,
    `set SystemCallFilter=${filter.deny ? call : '@system-service'} too`,
  );
}

function dockerObstacles(kind: string, { dockerSeccomp = false }: SandboxFacts): readonly Obstacle[] {
  if (!dockerSeccomp || kind !== 'vsock') return [];
  return fromHost(
    "docker's default seccomp profile (without AF_VSOCK)",
    'add --security-opt seccomp=FILE to docker run with a profile that allows AF_VSOCK, or reach the host by tcp: or unix:',
  );
}

function networkObstacles(kind: string, address: string, sandbox: SandboxFacts): readonly Obstacle[] {
  if (kind === 'tcp' && isDenied(address, sandbox)) {
    return fromHost(`IPAddressDeny= (${address})`, `set IPAddressAllow=${withoutPort(address)} too`);
  }
  // An abstract socket belongs to the network namespace, one with a path does not.
  const abstract = kind === 'unix' && address.startsWith('@');
  if (!sandbox.privateNetwork || !(kind === 'tcp' || abstract)) return [];
  return fromHost(
    'PrivateNetwork=yes',
    `set PrivateNetwork=no, or use ${abstract ? 'a socket with a path' : 'a unix: or vsock: address'}`,
  );
}

function temporaryObstacles(socket: string, { privateTmp }: SandboxFacts): readonly Obstacle[] {
  if (privateTmp !== true || !/^\/(?:var\/)?tmp\//.test(socket)) return [];
  return fromHost('PrivateTmp=yes', `use a socket outside of /tmp, or set BindPaths=${socket}`);
}

/** Directories that the unit does not see, or sees empty. */
function hidingObstacles(socket: string | null, sandbox: SandboxFacts): readonly Obstacle[] {
  const hiding = [
    ...sandbox.inaccessiblePaths.map((entry) => ({ name: 'InaccessiblePaths', entry, covers: false })),
    ...sandbox.temporaryFileSystem.map((entry) => ({ name: 'TemporaryFileSystem', entry, covers: true })),
    ...(sandbox.rootDirectory === '' || sandbox.rootDirectory === '/'
      ? []
      : [{ name: 'RootDirectory', entry: sandbox.rootDirectory, covers: true }]),
  ];
  return hiding.flatMap(({ name, entry, covers }) => {
    const directory = (entry.replace(/^[-+]+/, '').split(':')[0] ?? '').trim();
    const hides = (path: string): boolean => name === 'RootDirectory' || isUnder(path, directory);
    const files = [storeRoot, guestConf].filter(hides);
    const setting = `${name}=${directory}`;
    const open = covers ? null : `take ${directory} out of ${name}=`;
    return [
      ...(socket !== null && hides(socket) ? fromHost(setting, open ?? `set BindPaths=${socket}`) : []),
      ...(files.length === 0
        ? []
        : [
            {
              setting: `${setting}, which hides ${files.join(' and ')}`,
              remedy: open ?? `set BindReadOnlyPaths=${files.join(' ')}`,
              keepsFrom: 'files' as const,
            },
          ]),
    ];
  });
}

function homeObstacles(socket: string, { protectHome }: SandboxFacts): readonly Obstacle[] {
  if (protectHome === 'no' || protectHome === '' || !/^\/(?:home|root|run\/user)\//.test(socket)) return [];
  return fromHost(`ProtectHome=${protectHome}`, 'use a socket outside of /home, /root and /run/user');
}

function withoutPort(address: string): string {
  return address.replace(/:\d+$/, '').replaceAll(/[[\]]/g, '');
}

/** By systemd's lists: an allowed address is let through, whatever is denied. */
function isDenied(address: string, { ipAddressDeny = [], ipAddressAllow = [] }: SandboxFacts): boolean {
  const host = withoutPort(address);
  const within = (ranges: readonly string[]): boolean => {
    const list = new BlockList();
    for (const range of ranges) {
      const [base = '', prefix = ''] = range.split('/');
      list.addSubnet(base, Number(prefix), base.includes(':') ? 'ipv6' : 'ipv4');
    }
    return list.check(host, host.includes(':') ? 'ipv6' : 'ipv4');
  };
  return within(ipAddressDeny) && !within(ipAddressAllow);
}

function familyOf(kind: string, address: string): string | null {
  const inet = address.startsWith('[') ? 'AF_INET6' : 'AF_INET';
  return own({ unix: 'AF_UNIX', vsock: 'AF_VSOCK', tcp: inet }, kind) ?? null;
}

function isUnder(path: string, directory: string): boolean {
  const base = directory.replace(/\/+$/, '');
  return directory !== '' && (path === base || path.startsWith(`${base}/`));
}

// Runs a program in the sandbox of a unit file that systemd need not have loaded, as a transient service.

interface SandboxedCommand {
  readonly unit: string;
  readonly program: string;
  readonly args: readonly string[];
  readonly limitMs: number;
}

/** Settings that start, restart and place the unit's own program; everything else of [Service] applies. */
const ofItsProgram =
  /^(?:Type|Environment|EnvironmentFile|Exec\w+|Restart\w*|Timeout\w+|\w+Directory(?:Mode)?|OOMPolicy)=/;
const overheadMs = 5_000;

export function sandboxArguments({ unit, program, args, limitMs }: SandboxedCommand): readonly string[] {
  const lines = sectionLines(unit, 'Service').filter((line) => !ofItsProgram.test(line));
  const properties = [...lines, `RuntimeMaxSec=${Math.ceil(limitMs / 1000)}`];
  return [
    ...['--quiet', '--pipe', '--wait', '--collect', '--service-type=exec'],
    ...properties.map((property) => `--property=${property}`),
    ...['--', program, ...args],
  ];
}

export function runInSandbox(runner: CommandRunner, command: SandboxedCommand): Promise<CommandResult> {
  return runner.run('systemd-run', sandboxArguments(command), { timeoutMs: command.limitMs + overheadMs });
}
