/** The small files of vgpu-agent besides the drop-in: their text, and the changes that write it. Pure. */
import type { MachineFacts, OwnedFileFacts } from '../../contracts/facts.js';
import type { Change, Preflight } from '../../contracts/plan.js';
import { parseGuestConf, splitHosts } from '../../guest/vgpu-host/endpoint.js';
import { guestConf, loaderConf, storeCurrent, storeRoot, storeVersions } from '../../lib/paths.js';
import { octal, withAssignment } from '../../lib/text.js';
import { itemsOfVersion, ownedAt } from './owned.js';

export const loaderConfText = `# The loader finds the vgpu shim here before any other libcuda.so.1. Taken away by: vgpu-agent uninstall
${storeCurrent}
`;

/** Nothing when guest.conf names the endpoint already, however it is written. */
export function guestConfChange(facts: MachineFacts, endpoint: string): readonly Change[] {
  const { guestConf: present } = facts;
  if (present.content !== null && parseGuestConf(present.content) === endpoint) {
    const ours = present.content === guestConfText(endpoint);
    return [...(ours ? adopt(facts, present) : []), ...readableChange(present)];
  }
  const content =
    present.content === null ? guestConfText(endpoint) : withAssignment(present.content, 'host', endpoint);
  const reason =
    present.content === null
      ? 'gives the shim the address of the host'
      : `the host is at ${endpoint} now, was at ${parseGuestConf(present.content) ?? 'no address'}`;
  return [writeChange({ ...present, path: guestConf }, content, reason)];
}

export function guestConfText(endpoint: string): string {
  // One address has the text of former versions, so that an upgrade changes nothing.
  const several = splitHosts(endpoint).length > 1;
  return `# Where the CUDA calls of this guest are carried out: unix:PATH, vsock:CID:PORT or tcp:ADDRESS:PORT.
# VGPU_HOST in a program's environment overrides it.${several ? '\n# The first host that answers is used.' : ''}
host=${endpoint}
`;
}

export function loaderConfChange(facts: MachineFacts): readonly Change[] {
  const reason = 'the loader looks into the store before every other directory (000- sorts first)';
  return textChange(facts, { ...facts.loaderConf, path: loaderConf }, loaderConfText, reason);
}

/** A file with a text that only vgpu-agent decides. */
export function textChange(
  facts: MachineFacts,
  present: OwnedFileFacts,
  content: string,
  reason: string,
  preflight?: Preflight,
): readonly Change[] {
  return present.content === content
    ? [...adopt(facts, present), ...readableChange(present)]
    : [writeChange(present, content, reason, preflight)];
}

/**
 * Where the manifest was lost (a store is in use, and there is no manifest), what is exactly as install makes it is
 * noted down. Without a store nothing was installed, and such a file belongs to a person.
 */
export function adopt(
  { manifest, store }: MachineFacts,
  { path, state }: Pick<OwnedFileFacts, 'path' | 'state'>,
): readonly Change[] {
  if (manifest !== null || store.current.kind !== 'link' || store.versions.length === 0) return [];
  const reason = 'it is already correct, but missing from the manifest; it is added there';
  return [{ kind: 'adopt', path, state, reason }];
}

/** Right in its text, but not readable by all: written again with mode 0644. */
function readableChange(present: OwnedFileFacts): readonly Change[] {
  const { state, content } = present;
  if (state.kind !== 'file' || content === null || (state.mode & 0o444) === 0o444) return [];
  return [
    writeChange(present, content, `its mode is ${octal(state.mode)}, and every user must be able to read it`),
  ];
}

export function writeChange(
  present: OwnedFileFacts,
  content: string,
  reason: string,
  preflight?: Preflight,
): Change {
  return {
    kind: 'write-file',
    path: present.path,
    content,
    mode: 0o644,
    before: present.state,
    previousContent: present.content,
    ...(preflight === undefined ? {} : { preflight }),
    reason,
  };
}

export function storeChanges(facts: MachineFacts): readonly Change[] {
  const { store, shim } = facts;
  const changes: Change[] = [];
  if (store.root.kind === 'absent') {
    const reason = 'everything that vgpu-agent installs is under this one directory';
    changes.push({ kind: 'make-directory', path: storeRoot, mode: 0o755, reason });
    changes.push({ kind: 'make-directory', path: storeVersions, mode: 0o755, reason });
  } else {
    const directories = [storeRoot, storeVersions].map((path) => ({ path, state: store.root }));
    changes.push(...directories.flatMap((directory) => adopt(facts, directory)));
  }
  const version = store.versions.find((one) => one.id === shim.id);
  if (version === undefined) {
    changes.push({
      kind: 'store',
      shim,
      reason: `version ${shim.version} of the shim is not in the store yet`,
    });
  } else if (!version.intact) {
    const reason = 'files of this version are missing or are not what was installed; they are written again';
    changes.push({ kind: 'store', shim, reason });
  } else if (ownedAt(facts.manifest, `${storeVersions}/${shim.id}`) === undefined) {
    const reason = 'it is in the store, but missing from the manifest; it is added there';
    changes.push({ kind: 'store', shim, reason });
  }
  const target = `versions/${shim.id}`;
  if (store.current.kind !== 'link' || store.current.target !== target) {
    const from = store.current.kind === 'link' ? ` (now ${store.current.target})` : '';
    changes.push({
      kind: 'write-link',
      path: storeCurrent,
      target,
      before: store.current,
      reason: `the version in use${from}; everything installed goes through this link`,
    });
  } else if (ownedAt(facts.manifest, storeCurrent) === undefined) {
    const reason = 'it leads to the store, but is missing from the manifest; it is added there';
    changes.push({ kind: 'adopt', path: storeCurrent, state: store.current, reason });
  }
  return changes;
}

/** Versions that nothing refers to any more. One that a process still uses is kept by the sweep. */
export function retireChanges({ store, shim, manifest }: MachineFacts): readonly Change[] {
  return store.versions.flatMap(({ id }): readonly Change[] => {
    if (id === shim.id || itemsOfVersion(manifest?.items ?? [], id).length === 0) return [];
    return [
      {
        kind: 'remove-store',
        id,
        reason: 'an old version; it is removed when no process uses it any more',
      },
    ];
  });
}
