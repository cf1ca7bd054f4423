/** The store: the version to be used, `current`, and former versions that go. Pure. */
import type { MachineFacts } from '../../contracts/facts.js';
import type { Change } from '../../contracts/plan.js';
import { storeCurrent, storeRoot, storeVersions } from '../../lib/paths.js';
import { itemsOfVersion } from './owned.js';

export function storeChanges(facts: MachineFacts): readonly Change[] {
  const { store, shim } = facts;
  const changes: Change[] = [];
  if (store.root.kind === 'absent') {
    const reason = 'everything that vgpu-agent installs is under this one directory';
    changes.push({ kind: 'make-directory', path: storeRoot, mode: 0o755, reason });
    changes.push({ kind: 'make-directory', path: storeVersions, mode: 0o755, reason });
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
  } else if (!isOwned(facts, `${storeVersions}/${shim.id}`)) {
    const reason = 'it is in the store, but no manifest lists it; the manifest lists it now';
    changes.push({ kind: 'store', shim, reason });
  }
  const target = `versions/${shim.id}`;
  if (store.current.kind !== 'link' || store.current.target !== target) {
    const from = store.current.kind === 'link' ? `, is ${store.current.target} now` : '';
    changes.push({
      kind: 'write-link',
      path: storeCurrent,
      target,
      before: store.current,
      ownerPackage: null,
      reason: `the version in use${from}; everything installed goes through this link`,
    });
  } else if (!isOwned(facts, storeCurrent)) {
    const reason = 'it leads to the store, but no manifest lists it; the manifest lists it now';
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
        reason: 'a former version; it is removed when no process uses it any more',
      },
    ];
  });
}

function isOwned({ manifest }: MachineFacts, path: string): boolean {
  return manifest?.items.some((item) => item.kind !== 'alternative' && item.path === path) ?? false;
}
