/** The facts of a machine that serves GPUs: files as they are and as this version would put them. Reads only. */
import { readdirSync } from 'node:fs';
import path from 'node:path';
import type { Manifest } from '../../contracts/manifest.js';
import {
  type HostDaemon,
  type HostDevice,
  hostDaemonSchema,
  type ServedFacts,
  type ServingFacts,
  type ServingFile,
  type ServingRequest,
  type ServingUnit,
} from '../../contracts/serving.js';
import { missingFile, packagedText } from '../../lib/build-info.js';
import { VgpuError } from '../../lib/errors.js';
import {
  defaultSocket,
  deviceProfiles,
  hostConf,
  hostDefaults,
  hostDriverUnit,
  hostd,
  hostManPages,
  hostSocketUnit,
  hostState,
  hostUnit,
  manDirectory,
  packageRoot,
  systemdUnits,
} from '../../lib/paths.js';
import type { CommandRunner } from '../../lib/run-command.js';
import { readAs } from '../../lib/schema.js';
import { withAssignment } from '../../lib/text.js';
import { assignments } from '../../lib/unit-file.js';
import type { Manager } from '../../systemd/types.js';
import { readDistribution } from '../distribution.js';
import { type ContentCache, ownedFile, pathState } from '../files/content.js';
import type { Root } from '../files/root.js';
import { packageOwners } from '../libraries/packages.js';
import { defaultShimDirectory } from '../shim/store.js';
import { parseEndpoint } from '../vgpu-host/endpoint.js';
import { obstacles } from './checks.js';

export interface ServingEffects {
  readonly root: Root;
  readonly contents: ContentCache;
  readonly runner: CommandRunner;
  readonly manager: Pick<Manager, 'unit'>;
  readonly architecture: string;
  readonly readManifest: () => Promise<Manifest | null>;
}

export async function readServed(effects: ServingEffects): Promise<ServedFacts> {
  const { root, runner, manager, contents } = effects;
  const [socket, service, manifest] = await Promise.all([
    manager.unit(hostSocketUnit),
    manager.unit(hostUnit),
    effects.readManifest(),
  ]);
  const owned = (manifest?.items ?? []).flatMap((item) => (item.kind === 'file' ? [item.path] : []));
  const files = new Set([...owned, ...[hostSocketUnit, hostUnit].map((name) => `${systemdUnits}/${name}`)]);
  const active = service.kind === 'loaded' && service.activeState === 'active';
  const answer = active ? await askDaemon(runner) : '';
  return {
    files: await Promise.all([...files].map((file) => ownedFile(root, file, contents))),
    socket: unitOf(socket),
    service: unitOf(service),
    outdated: active && isOutdated(root, service.mainPid),
    daemon: typeof answer === 'string' ? null : answer,
    manifest,
    interrupted: root.lstat(hostState.transaction) !== null,
  };
}

/** Throws a VgpuError `usage` if no device is requested or installed. */
export async function readServing(effects: ServingEffects, request: ServingRequest): Promise<ServingFacts> {
  const { root, runner, contents, architecture } = effects;
  const textOf = async (file: string) => (await ownedFile(root, file, contents)).content;
  const defaults = await textOf(hostDefaults);
  const device = request.device ?? deviceIn(defaults ?? '');
  if (device === null) {
    throw new VgpuError('no --device was given, and no device was installed before', {
      kind: 'usage',
      operation: 'plan the install of the host',
      remedy: '--device cuda for the GPU of this machine, --device software for a simulated one',
    });
  }
  const installed = listenIn((await textOf(`${systemdUnits}/${hostSocketUnit}`)) ?? '');
  const listen = request.listen ?? (installed.length > 0 ? installed : [`unix:${defaultSocket}`]);
  const served = await readServed(effects);
  const wanted = await wantedFiles(effects, request, { device, defaults, listen });
  const { family } = readDistribution(root, architecture);
  const owners = await packageOwners(
    root,
    runner,
    family,
    wanted.map((one) => one.path),
  );
  const sources = wanted.flatMap((one) => (one.wanted.kind === 'copy' ? [one.wanted.source] : []));
  return {
    ...served,
    listen,
    files: await Promise.all(
      wanted.map(async (one) => ({
        ...one,
        ...(await ownedFile(root, one.path, contents)),
        ownerPackage: owners.get(one.path) ?? null,
      })),
    ),
    ...(await obstacles({
      root,
      runner,
      program: hostdSource(),
      unit: template('units', hostUnit),
      device,
      listen,
      sources: [...sources, path.join(packageRoot(), 'units')],
      listening: [served.service, served.socket].some(({ activeState }) => activeState === 'active'),
      force: request.force,
    })),
  };
}

const askLimitMs = 6_000;

/** Text: why there is no answer. */
export async function askDaemon(runner: CommandRunner): Promise<HostDaemon | string> {
  try {
    const asked = await runner.run(hostd, ['status', '--json'], { timeoutMs: askLimitMs });
    if (asked.code !== 0) return asked.stderr.toString().trim();
    const checked = readAs(hostDaemonSchema, asked.stdout.toString());
    return checked.kind === 'fits' ? checked.value : `its answer is not understood: ${checked.problem}`;
  } catch (error) {
    if (error instanceof VgpuError) return error.message;
    throw error;
  }
}

function unitOf(unit: Awaited<ReturnType<Manager['unit']>>): ServingUnit {
  return unit.kind === 'loaded' ? unit : { activeState: 'inactive', fragment: '', needDaemonReload: false };
}

/** The kernel marks the program of a process whose file was replaced. */
function isOutdated(root: Root, pid: number): boolean {
  return pid > 0 && root.readlink(`/proc/${pid}/exe`)?.endsWith(' (deleted)') === true;
}

type Wanted = Pick<ServingFile, 'path' | 'wanted' | 'reason' | 'keep'>;

async function wantedFiles(
  { root, contents }: ServingEffects,
  request: ServingRequest,
  found: {
    readonly device: HostDevice;
    readonly defaults: string | null;
    readonly listen: readonly string[];
  },
): Promise<readonly Wanted[]> {
  const copy = async (file: string, source: string, reason: string, mode = 0o644): Promise<Wanted> => {
    const state = await pathState(root, source, contents);
    if (state.kind !== 'file') throw missingFile('the host', source);
    const { sha256, size } = state;
    return { path: file, wanted: { kind: 'copy', source, sha256, size, mode }, reason, keep: false };
  };
  const unit = (name: string, reason: string, lines: string): Wanted =>
    text(`${systemdUnits}/${name}`, `# ${header}\n${lines}`, reason);
  const link = (name: string, target: string): Wanted => ({
    path: `${systemdUnits}/${target}.wants/${name}`,
    wanted: { kind: 'link', target: `${systemdUnits}/${name}` },
    reason: 'starts vgpu-hostd at boot',
    keep: false,
  });
  const devices = path.join(packageRoot(), 'profiles', 'devices');
  const profiles = readdirSync(devices).filter(
    (name) => name.endsWith('.json') && name !== 'device.schema.json',
  );
  const pages = hostManPages
    .map((page) => ({ page, directory: `${manDirectory}/man${page.slice(-1)}` }))
    .filter(({ directory }) => root.realDirectory(directory) !== null);
  const defaults = found.defaults ?? `# ${header}\n${template('units', 'vgpu-hostd.default')}`;
  const limits = Object.entries(request.limits).flatMap(([name, value]) =>
    value === null ? [] : [`${name}=${value}`],
  );
  const streams = found.listen.map((address) => `ListenStream=${streamOf(address)}`).join('\n');
  const dropIn = '# Settings of your own go into a drop-in: systemctl edit vgpu-hostd.\n';
  return [
    await copy(hostd, hostdSource(), 'the daemon and its command', 0o755),
    ...(await Promise.all([
      ...profiles
        .sort()
        .map((name) =>
          copy(`${deviceProfiles}/${name}`, path.join(devices, name), 'a GPU that --profile can simulate'),
        ),
      ...pages.map(({ page, directory }) =>
        copy(`${directory}/${page}`, path.join(packageRoot(), 'docs', 'man', page), 'man page'),
      ),
    ])),
    text(
      hostDefaults,
      withAssignment(defaults, 'VGPU_DEVICE', found.device),
      'the device that vgpu-hostd serves; you may edit this file',
      request.device === null || deviceIn(found.defaults ?? '') === request.device,
    ),
    ...(limits.length === 0
      ? []
      : [text(hostConf, confText(limits), 'the limits of each guest; you may edit this file')]),
    unit(hostUnit, 'the unit of vgpu-hostd', dropIn + template('units', hostUnit)),
    unit(
      hostDriverUnit,
      'loads the driver before vgpu-hostd starts',
      dropIn + template('units', hostDriverUnit),
    ),
    unit(
      hostSocketUnit,
      'the addresses of vgpu-hostd',
      template('units', hostSocketUnit).replace(/^ListenStream=.*$/m, () => streams),
    ),
    link(hostSocketUnit, 'sockets.target'),
    link(hostUnit, 'multi-user.target'),
  ];
}

function text(file: string, content: string, reason: string, keep = false): Wanted {
  return { path: file, wanted: { kind: 'text', content }, reason, keep };
}

function hostdSource(): string {
  return path.join(defaultShimDirectory(), 'vgpu-hostd');
}

function template(...place: readonly string[]): string {
  return packagedText('the host', ...place);
}

const header = 'Written by vgpu-agent host install. Taken away by: vgpu-agent host uninstall';

function deviceIn(text: string): HostDevice | null {
  const last = [...text.matchAll(/^\s*VGPU_DEVICE\s*=\s*"?([a-z]*)"?\s*$/gm)].at(-1)?.[1];
  return last === 'cuda' || last === 'software' ? last : null;
}

function confText(limits: readonly string[]): string {
  return `# ${header}
# You may edit this file: who may connect, and the limits of each guest (vgpu-hostd.conf(5)).
# vgpu-hostd --check-config reads it; systemctl reload vgpu-hostd applies it.
limits ${limits.join(' ')}
allow any
`;
}

function listenIn(text: string): readonly string[] {
  return assignments([text], 'Socket', 'ListenStream').flatMap((stream) => {
    if (stream.startsWith('vsock::')) return [stream.replace('::', ':')];
    if (stream.startsWith('/') || stream.startsWith('@')) return [`unix:${stream}`];
    return parseEndpoint(`tcp:${stream}`).kind === 'tcp' ? [`tcp:${stream}`] : [];
  });
}

function streamOf(address: string): string {
  return address.replace(/^(?:unix|tcp):/, '').replace(/^vsock:/, 'vsock::');
}
