/** A consumer in a container: it gets the GPU as a CDI device, not by variables of its unit. Pure. */

import path from 'node:path';
import major from 'semver/functions/major.js';
import valid from 'semver/functions/valid.js';
import { type CdiMount, type CdiSpec, cdiKind, cdiNvidiaKind, isOurDevice } from '../../containers/cdi.js';
import { type ContainerUnit, containerOf, isRootless } from '../../containers/container-unit.js';
import type { ContainerFacts, MachineFacts } from '../../contracts/facts.js';
import { type Change, told, type Warning } from '../../contracts/plan.js';
import type { LoadedUnit } from '../../contracts/unit.js';
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

/** The first podman whose quadlet reads drop-ins (`NAME.container.d`). */
const podmanWithDropIns = 5;
const addDevice = `AddDevice=${cdiKind}=all`;

export const quadletDropInText = `# Written by vgpu-agent. Taken away by: vgpu-agent uninstall
# Put settings of your own into another file of this directory: this one is written again when it differs.
[Container]
# the GPU of the host, as /etc/cdi/vgpu.json describes it
${addDevice}
`;

export type Delivery =
  | { readonly kind: 'quadlet'; readonly dropIn: NonNullable<ContainerFacts['dropIn']> }
  | { readonly kind: 'own' }
  /** A person has to add it: we change no command of theirs. */
  | { readonly kind: 'by-hand'; readonly message: string; readonly remedy: string };

export function deliveryOf(facts: MachineFacts, unit: LoadedUnit): Delivery | null {
  const container = containerOf(unit);
  if (container === null) return null;
  // For a container that was made before, only its present devices show what it was given.
  const has = facts.processes.some(({ loaderEnvironment }) => loaderEnvironment[cdiVariable] !== undefined);
  if (container.command !== 'run') return has ? { kind: 'own' } : elsewhere(container, unit);
  return delivery(container, facts.containers, unit);
}

/** Where its device is asked for is in no file that the unit names. */
function elsewhere({ engine, command, name }: ContainerUnit, unit: LoadedUnit): Delivery {
  const device = `${cdiKind}=all`;
  const then = 'then: vgpu-agent install again';
  if (command === 'compose') return composeElsewhere(unit, device);
  return {
    kind: 'by-hand',
    message: `${unit.name} starts the container ${name ?? ''} that was made before, without the GPU`,
    remedy: `make it again with ${engine} create --device ${device}, ${then}`,
  };
}

function composeElsewhere({ name, composed }: LoadedUnit, device: string): Delivery {
  const add = `add ${device} to the service in the compose file, as vgpu-agent cdi list shows`;
  if (composed === undefined || composed.length === 0) {
    return {
      kind: 'by-hand',
      message: `${name} starts containers of a compose file, and which of them uses the GPU is not known`,
      remedy: `if it is not there yet, ${add}`,
    };
  }
  return {
    kind: 'by-hand',
    message: `${name} starts containers of a compose file, and none of those that run was given the GPU (${composed.map((one) => one.name).join(', ')})`,
    remedy: `${add}, then: systemctl restart ${name} and vgpu-agent install again`,
  };
}

function delivery(
  container: ContainerUnit,
  containers: ContainerFacts | undefined,
  { name, fragment }: LoadedUnit,
): Delivery {
  const given = container.devices.filter(isOurDevice);
  const dropIn = containers?.dropIn ?? null;
  const there = dropIn?.content === quadletDropInText;
  if (given.length > (there ? 1 : 0)) return { kind: 'own' };
  const { quadlet, engine } = container;
  if (quadlet === null || dropIn === null) {
    return {
      kind: 'by-hand',
      message: `${name} runs a container by ${engine}, and its command does not ask for the GPU`,
      remedy: `add --device ${cdiKind}=all to ${engine} run in ${fragment}, then: systemctl daemon-reload and vgpu-agent install again`,
    };
  }
  // One that is in force needs no version.
  if (there && given.length > 0) return { kind: 'quadlet', dropIn };
  const version = containers?.podman ?? null;
  if (version === null || valid(version) === null || major(version) < podmanWithDropIns) {
    return {
      kind: 'by-hand',
      message: `podman ${version ?? 'of an unknown version'} reads no drop-ins of quadlets (${podmanWithDropIns}.0 does)`,
      remedy: `add the line ${addDevice} to [Container] in ${quadlet}, then: systemctl daemon-reload and vgpu-agent install again`,
    };
  }
  return { kind: 'quadlet', dropIn };
}

export function quadletChanges(facts: MachineFacts, wanted: Delivery): readonly Change[] {
  if (wanted.kind === 'quadlet') {
    const reason = 'gives the container the GPU; the quadlet itself stays as it is';
    return textChange(facts, wanted.dropIn, quadletDropInText, reason);
  }
  if (wanted.kind === 'by-hand') return [];
  const present = facts.containers?.dropIn?.path;
  return present === undefined
    ? []
    : withdrawal(facts.manifest, present, 'the quadlet asks for the GPU itself');
}

export function quadletInForce(unit: LoadedUnit, wanted: Delivery): boolean {
  return wanted.kind !== 'quadlet' || (containerOf(unit)?.devices ?? []).some(isOurDevice);
}

export function containerWarnings(wanted: Delivery | null, unit: LoadedUnit): readonly Warning[] {
  const container = containerOf(unit);
  if (wanted === null || container === null) return [];
  return [
    ...(wanted.kind === 'by-hand'
      ? [{ code: 'container-without-device', message: wanted.message, remedy: wanted.remedy }]
      : []),
    ...unseen(container, unit),
  ];
}

function unseen({ engine, command, name }: ContainerUnit, unit: LoadedUnit): readonly Warning[] {
  if (isRootless(unit) && unit.dynamicUser) {
    return told(
      'container-of-user',
      `${unit.name} runs podman as a user that exists only for it (DynamicUser=): vgpu-probe cannot enter that container, so the verdict uses the log and the host's sessions`,
      `for a verdict with the probe, give the unit a User= that stays ("Rootless" in docs/howto/containers.md)`,
    );
  }
  if (command === 'compose' || name !== null) return [];
  return told(
    'container-without-name',
    `the container of ${unit.name} has no name, so vgpu-agent cannot find its processes`,
    `add --name NAME to ${engine} run in ${unit.fragment}, then: systemctl daemon-reload`,
  );
}

// The CDI files: what a container engine gives a container that asks for `vgpu.org/gpu=all`. Pure. The store is there
// at its own path, so that maps of a process in a container read like those of any other; the libraries are also in
// the directories where a loader without cache looks, so that no image needs ldconfig or a variable.

/** The first CDI version in which a device's name may begin with a digit; podman 4.3 and Docker 25 read it. */
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
      // CDI wants each device to change something: this variable names the device.
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
