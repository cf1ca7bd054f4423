/** Facts of the machine after a plan was carried out: what apply/ leaves behind, without a disk. */
import { createHash } from 'node:crypto';
import type { LibraryCandidate, MachineFacts, OwnedFileFacts } from '../../../../agent/contracts/facts.js';
import type { OwnedItem } from '../../../../agent/contracts/manifest.js';
import type { PlanOptions } from '../../../../agent/contracts/plan.js';
import { facts, linkTo, owner, plan, unit } from './support.js';

const none = { backup: null };
const sha256Of = (content: string) => createHash('sha256').update(content).digest('hex');

/** That file, with this content. */
export function fileWith(file: OwnedFileFacts, content: string, mode = 0o644): OwnedFileFacts {
  const state = { kind: 'file', size: content.length, sha256: sha256Of(content), mode, ...owner } as const;
  return { ...file, state, content };
}

/** The bare machine of support.ts, or one changed so, once install has run on it. */
export function settled(
  changes: Partial<MachineFacts> = {},
  options: Partial<PlanOptions> = {},
): MachineFacts {
  const made = plan(changes, options);
  if (made.kind !== 'ready') throw new Error('refused');
  let now = facts(changes);
  const items: OwnedItem[] = [];
  for (const change of made.changes) {
    switch (change.kind) {
      case 'make-directory':
        items.push({ kind: 'directory', path: change.path, mode: change.mode });
        break;
      case 'store':
        items.push({ kind: 'directory', path: `/opt/vgpu/versions/${change.shim.id}`, mode: 0o755 });
        now = { ...now, store: { ...now.store, versions: [{ id: change.shim.id, intact: true }] } };
        break;
      case 'write-file': {
        const { path, content, mode, before } = change;
        const put = (file: OwnedFileFacts) => (file.path === path ? fileWith(file, content, mode) : file);
        now = {
          ...now,
          guestConf: put(now.guestConf),
          loaderConf: put(now.loaderConf),
          dropIn: put(now.dropIn),
          ...(now.service === undefined
            ? {}
            : {
                service: {
                  ...now.service,
                  files: now.service.files.map((file) => ({ ...file, present: put(file.present) })),
                },
              }),
        };
        items.push({ kind: 'file', path, sha256: sha256Of(content), mode, before, ...none });
        break;
      }
      case 'write-link': {
        const { path, target, before } = change;
        const state = linkTo(target);
        const put = (one: LibraryCandidate): LibraryCandidate =>
          one.path === path
            ? { ...one, state, vendor: 'vgpu', resolution: { kind: 'file', realPath: target, steps: [] } }
            : one;
        now = { ...now, candidates: now.candidates.map(put) };
        if (path === '/opt/vgpu/current') {
          const root = { kind: 'directory', empty: false, mode: 0o755, ...owner } as const;
          now = { ...now, store: { ...now.store, root, current: state } };
        }
        if (path === now.service?.link.path) {
          now = { ...now, service: { ...now.service, link: { ...now.service.link, state } } };
        }
        items.push({ kind: 'link', path, target, before, ...none });
        break;
      }
      default:
        break;
    }
  }
  const { storeId, endpoint, consumers } = made;
  const environment = {
    LD_LIBRARY_PATH: '/opt/vgpu/current',
    LD_PRELOAD: '/opt/vgpu/current/libcuda.so.1:/opt/vgpu/current/libnvidia-ml.so.1',
  };
  const loadedUnit = now.unit.kind === 'loaded' ? now.unit : unit();
  const names = ['libcuda.so.1', 'libnvidia-ml.so.1'];
  return {
    ...now,
    manifest: { schema: 2, agent: '0.1.0', storeId, endpoint, consumers, items },
    unit: { ...loadedUnit, environment: { ...loadedUnit.environment, ...environment } },
    loader: {
      ...now.loader,
      cache: names.map((soname) => ({ soname, path: `/opt/vgpu/current/${soname}`, flags: 'libc6,x86-64' })),
    },
    ...(now.service === undefined ? {} : { service: { ...now.service, activeState: 'active' } }),
  };
}
