/** Which settings of a unit keep its processes from the host. */
import { BlockList } from 'node:net';
import type { SandboxFacts } from '../machine/types.js';

/**
 * The setting, as one writes it in a unit file, with what a person does to allow it (an imperative, no full
 * stop); null when nothing is in the way.
 */
export function blockedTransport(
  endpoint: string,
  sandbox: SandboxFacts,
): { readonly setting: string; readonly remedy: string } | null {
  const [kind = '', address = ''] = splitOnce(endpoint);
  const family = familyOf(kind, address);
  const limits = sandbox.restrictAddressFamilies;
  if (family !== null && limits !== null && limits.families.includes(family) === limits.deny) {
    const list = `${limits.deny ? '~' : ''}${limits.families.join(' ') || 'none'}`;
    return {
      setting: `RestrictAddressFamilies=${list} (without ${family})`,
      remedy: limits.deny
        ? `take ${family} out of RestrictAddressFamilies=`
        : `set RestrictAddressFamilies=${family} too`,
    };
  }
  const filter = sandbox.systemCallFilter ?? null;
  const call = transportCalls.find((one) => filter?.calls.includes(one) === filter?.deny);
  if (filter !== null && call !== undefined) {
    return {
      setting: `SystemCallFilter= without ${call}()`,
      remedy: `set SystemCallFilter=${filter.deny ? call : '@system-service'} too`,
    };
  }
  if (kind === 'tcp' && isDenied(address, sandbox)) {
    return {
      setting: `IPAddressDeny= (${address})`,
      remedy: `set IPAddressAllow=${withoutPort(address)} too`,
    };
  }
  if (kind === 'tcp' && sandbox.privateNetwork) {
    return {
      setting: 'PrivateNetwork=yes',
      remedy: 'set PrivateNetwork=no, or use a unix: or vsock: address',
    };
  }
  if (kind !== 'unix') return null;
  if (sandbox.privateTmp === true && /^\/(?:var\/)?tmp\//.test(address)) {
    return { setting: 'PrivateTmp=yes', remedy: `use a socket outside of /tmp, or set BindPaths=${address}` };
  }
  const hidden = sandbox.inaccessiblePaths
    .map((path) => path.replace(/^[-+]+/, ''))
    .find((path) => isUnder(address, path));
  if (hidden !== undefined) {
    return { setting: `InaccessiblePaths=${hidden}`, remedy: `take ${hidden} out of InaccessiblePaths=` };
  }
  const covered = sandbox.temporaryFileSystem
    .map((entry) => entry.split(':')[0] ?? '')
    .find((path) => isUnder(address, path));
  if (covered !== undefined) {
    return { setting: `TemporaryFileSystem=${covered}`, remedy: `set BindPaths=${address}` };
  }
  if (sandbox.rootDirectory !== '' && sandbox.rootDirectory !== '/') {
    return { setting: `RootDirectory=${sandbox.rootDirectory}`, remedy: `set BindPaths=${address}` };
  }
  if (
    sandbox.protectHome !== 'no' &&
    sandbox.protectHome !== '' &&
    /^\/(?:home|root|run\/user)\//.test(address)
  ) {
    return {
      setting: `ProtectHome=${sandbox.protectHome}`,
      remedy: 'use a socket outside of /home, /root and /run/user',
    };
  }
  return null;
}

/** What the shim calls to reach the host. */
export const transportCalls = ['socket', 'connect'];

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

function splitOnce(endpoint: string): readonly string[] {
  const at = endpoint.indexOf(':');
  return at === -1 ? [endpoint] : [endpoint.slice(0, at), endpoint.slice(at + 1)];
}

function familyOf(kind: string, address: string): string | null {
  switch (kind) {
    case 'unix':
      return 'AF_UNIX';
    case 'vsock':
      return 'AF_VSOCK';
    case 'tcp':
      return address.startsWith('[') ? 'AF_INET6' : 'AF_INET';
    default:
      return null;
  }
}

function isUnder(path: string, directory: string): boolean {
  const base = directory.replace(/\/+$/, '');
  return directory !== '' && (path === base || path.startsWith(`${base}/`));
}
