/**
 * The CDI files: what a container engine gives a container that asks for `vgpu.org/gpu=all`. Pure. The store is there
 * at its own path, so that maps of a process in a container read like those of any other; the libraries are also in
 * the directories where a loader without cache looks, so that no image needs ldconfig or a variable.
 */
import path from 'node:path';
import { type CdiMount, type CdiSpec, cdiKind, cdiNvidiaKind } from '../../containers/cdi.js';
import type { MachineFacts } from '../../contracts/facts.js';
import type { Change } from '../../contracts/plan.js';
import { parseEndpoint, splitHosts } from '../../guest/vgpu-host/endpoint.js';
import {
  cdiFile,
  cdiVariable,
  containerLibraryDirectories,
  guestConf,
  storeVersions,
} from '../../lib/paths.js';
import { textChange } from './our-files.js';
import { withdrawal } from './owned.js';

/** The first that lets a device's name begin with a digit; podman 4.3 and Docker 25 know it. */
const cdiVersion = '0.5.0';
const readOnly = ['ro', 'nosuid', 'nodev', 'rbind', 'rprivate'];
/** Sockets are reached through a directory, so that one that is made again is found. */
const socketDirectory = '/run/vgpu';
const libraries = ['libcuda.so.1', 'libnvidia-ml.so.1'];

interface CdiQuestion {
  readonly kind: string;
  readonly storeId: string;
  readonly endpoint: string;
  readonly devices: number;
}

export function cdiSpec({ kind, storeId, endpoint, devices }: CdiQuestion): CdiSpec {
  const store = `${storeVersions}/${storeId}`;
  const same = (file: string): CdiMount => ({ hostPath: file, containerPath: file, options: readOnly });
  return {
    cdiVersion,
    kind,
    devices: [
      // A device must change something: this says which one it was.
      { name: 'all', containerEdits: { env: [`${cdiVariable}=${kind}=all`] } },
      ...Array.from({ length: devices }, (_, index) => ({
        name: String(index),
        containerEdits: { env: [`${cdiVariable}=${kind}=${index}`, `CUDA_VISIBLE_DEVICES=${index}`] },
      })),
    ],
    containerEdits: {
      mounts: [
        same(store),
        ...containerLibraryDirectories.flatMap((directory) =>
          libraries.map((name) => ({
            hostPath: `${store}/${name}`,
            containerPath: `${directory}/${name}`,
            options: readOnly,
          })),
        ),
        same(guestConf),
        ...socketMounts(endpoint).map(same),
      ],
    },
  };
}

/** The mounts that a container needs for a unix socket; vsock and TCP need none. */
function socketMounts(endpoint: string): readonly string[] {
  const mounts = splitHosts(endpoint).flatMap((address) => {
    const parsed = parseEndpoint(address);
    if (parsed.kind !== 'unix' || parsed.path.startsWith('@')) return [];
    return [path.dirname(parsed.path) === socketDirectory ? socketDirectory : parsed.path];
  });
  return [...new Set(mounts)];
}

export function cdiText(question: CdiQuestion): string {
  return `${JSON.stringify(cdiSpec(question), null, 2)}\n`;
}

/** How many devices there are: the host's word, else what was said before, so that a host that is down changes nothing. */
export function deviceCount({ host, containers }: Pick<MachineFacts, 'host' | 'containers'>): number {
  if (host.answer.kind === 'answers' && host.answer.devices !== undefined) return host.answer.devices;
  const text = containers?.spec.content ?? '';
  return Math.max(1, [...text.matchAll(/"name": "\d+"/g)].length);
}

export function cdiChanges(facts: MachineFacts, endpoint: string): readonly Change[] {
  const { containers, shim } = facts;
  if (containers === undefined || !containers.wanted) return [];
  const { spec, nvidia, nvidiaFrom } = containers;
  const question = { storeId: shim.id, endpoint, devices: deviceCount(facts) };
  const ours = cdiText({ ...question, kind: cdiKind });
  const theirs = cdiText({ ...question, kind: cdiNvidiaKind });
  return [
    ...textChange(facts, spec, ours, `containers request the GPU with --device ${cdiKind}=all`),
    ...(nvidiaFrom === null
      ? textChange(
          facts,
          nvidia,
          theirs,
          `no other file defines ${cdiNvidiaKind}, and compose files use that name`,
        )
      : // NVIDIA's own tool offers the name now: two files with one device make it unusable.
        withdrawal(facts.manifest, nvidia.path, `${nvidiaFrom} defines ${cdiNvidiaKind} now`)),
  ];
}

export function isOwnCdi(change: Change): boolean {
  return 'path' in change && change.path === cdiFile;
}
