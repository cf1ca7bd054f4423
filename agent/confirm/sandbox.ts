/** Which settings of a unit keep its processes from the host. */
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
  if (kind === 'tcp' && sandbox.privateNetwork) {
    return {
      setting: 'PrivateNetwork=yes',
      remedy: 'set PrivateNetwork=no, or use a unix: or vsock: address',
    };
  }
  if (kind !== 'unix') return null;
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
