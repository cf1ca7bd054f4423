/** The facts of a machine that is to serve GPUs: files as they are and as this version would put them. Reads only. */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import type { Manifest } from '../../contracts/manifest.js';
import {
  type GuestLimits,
  type HostDaemon,
  type HostDevice,
  hostDaemonSchema,
  type ServingFacts,
  type ServingFile,
  type ServingRequest,
  type ServingUnit,
} from '../../contracts/serving.js';
import { readBuildInfo } from '../../lib/build-info.js';
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
import { firstProblem, schemaCheck } from '../../lib/schema.js';
import { withAssignment } from '../../lib/text.js';
import { assignments } from '../../lib/unit-file.js';
import type { Manager } from '../../systemd/types.js';
import { readDistribution } from '../distribution.js';
import { type ContentCache, ownedFile, pathState } from '../files/content.js';
import type { Root } from '../files/root.js';
import { packageOwners } from '../libraries/packages.js';
import { defaultShimDirectory } from '../shim/store.js';
import { parseEndpoint } from '../vgpu-host/endpoint.js';
import { servingProblems } from './checks.js';

export interface ServingEffects {
  readonly root: Root;
  readonly contents: ContentCache;
  readonly runner: CommandRunner;
  readonly manager: Pick<Manager, 'unit'>;
  readonly architecture: string;
  readonly readManifest: () => Promise<Manifest | null>;
}

const askLimitMs = 6_000;

/** `device` null: none was requested and none is installed, so the checks for a device are not possible. */
export async function readServing(
  effects: ServingEffects,
  request: ServingRequest,
  device: HostDevice,
): Promise<ServingFacts> {
  const { root, runner, manager } = effects;
  const listen = request.listen ?? (await presentListen(effects)) ?? [`unix:${defaultSocket}`];
  const [files, socket, service, manifest] = await Promise.all([
    readFiles(effects, request, device, listen),
    manager.unit(hostSocketUnit),
    manager.unit(hostUnit),
    effects.readManifest(),
  ]);
  const active = service.kind === 'loaded' && service.activeState === 'active';
  const sources = files.flatMap(({ wanted }) => (wanted.kind === 'copy' ? [wanted.source] : []));
  const [daemon, problems] = await Promise.all([
    active ? askDaemon(runner) : null,
    servingProblems({
      root,
      runner,
      program: path.join(defaultShimDirectory(), 'vgpu-hostd'),
      unit: template('units', hostUnit),
      device,
      listen,
      sources: [...sources, path.join(packageRoot(), 'units')],
      listening: active || (socket.kind === 'loaded' && socket.activeState === 'active'),
    }),
  ]);
  return {
    device,
    listen,
    files,
    socket: unitOf(socket),
    service: unitOf(service),
    outdated: active && service.kind === 'loaded' && isOutdated(root, service.mainPid),
    daemon: daemon?.kind === 'answers' ? daemon.daemon : null,
    problems,
    manifest,
    interrupted: root.lstat(hostState.transaction) !== null,
  };
}

export async function presentDevice({ root, contents }: ServingEffects): Promise<HostDevice | null> {
  return deviceIn((await ownedFile(root, hostDefaults, contents)).content ?? '');
}

async function presentListen({ root, contents }: ServingEffects): Promise<readonly string[] | null> {
  const listen = listenIn(
    (await ownedFile(root, `${systemdUnits}/${hostSocketUnit}`, contents)).content ?? '',
  );
  return listen.length === 0 ? null : listen;
}

export type DaemonAnswer =
  | { readonly kind: 'answers'; readonly daemon: HostDaemon }
  | { readonly kind: 'silent'; readonly message: string };

export async function askDaemon(runner: CommandRunner): Promise<DaemonAnswer> {
  try {
    const asked = await runner.run(hostd, ['status', '--json'], { timeoutMs: askLimitMs });
    if (asked.code !== 0) return { kind: 'silent', message: asked.stderr.toString().trim() };
    const checked = schemaCheck(hostDaemonSchema)(JSON.parse(asked.stdout.toString()));
    if (checked.kind === 'fits') return { kind: 'answers', daemon: checked.value };
    return { kind: 'silent', message: `its answer is not understood: ${firstProblem(checked.errors)}` };
  } catch (error) {
    if (error instanceof VgpuError) return { kind: 'silent', message: error.message };
    if (error instanceof SyntaxError) return { kind: 'silent', message: 'its answer is not JSON' };
    throw error;
  }
}

function unitOf(unit: Awaited<ReturnType<Manager['unit']>>): ServingUnit {
  if (unit.kind !== 'loaded') return { activeState: 'inactive', needDaemonReload: false };
  const { activeState, needDaemonReload } = unit;
  return { activeState, needDaemonReload };
}

/** The kernel marks the program of a process whose file was replaced. */
function isOutdated(root: Root, pid: number): boolean {
  return pid > 0 && root.readlink(`/proc/${pid}/exe`)?.endsWith(' (deleted)') === true;
}

type Wanted = Pick<ServingFile, 'path' | 'mode' | 'wanted' | 'reason' | 'editable' | 'asked'>;

async function readFiles(
  effects: ServingEffects,
  request: ServingRequest,
  device: HostDevice,
  listen: readonly string[],
): Promise<readonly ServingFile[]> {
  const { root, runner, contents, architecture } = effects;
  const defaults = (await ownedFile(root, hostDefaults, contents)).content;
  const limited = request.limits.memory !== null || request.limits.sessions !== null;
  const link = (unit: string, target: string): Wanted => ({
    ...text(`${systemdUnits}/${target}.wants/${unit}`, '', 'starts it at boot'),
    wanted: { kind: 'link', target: `${systemdUnits}/${unit}` },
  });
  const unit = (name: string, content: string, reason: string): Wanted =>
    text(`${systemdUnits}/${name}`, content, reason);
  const wanted: readonly Wanted[] = [
    {
      ...(await copied(effects, path.join(defaultShimDirectory(), 'vgpu-hostd'), hostd)),
      mode: 0o755,
      reason: 'the daemon, and the command that asks it',
    },
    ...(await Promise.all(
      deviceFiles().map((name) =>
        copied(effects, packaged('profiles', 'devices', name), `${deviceProfiles}/${name}`),
      ),
    )),
    ...hostManPages
      .map((page): readonly [string, string] => [page, `${manDirectory}/man${page.slice(-1)}`])
      .filter(([, directory]) => root.realDirectory(directory) !== null)
      .map(([page, directory]) => text(`${directory}/${page}`, template('docs', 'man', page), 'man page')),
    {
      ...text(
        hostDefaults,
        defaults === null || request.device === null
          ? defaultsText(device)
          : withAssignment(defaults, 'VGPU_DEVICE', device),
        'the device that it serves; you may edit it',
      ),
      editable: true,
      asked: request.device !== null && deviceIn(defaults ?? '') !== request.device,
    },
    ...(limited
      ? [
          {
            ...text(hostConf, confText(request.limits), 'the limits of each guest; you may edit it'),
            editable: true,
            asked: true,
          },
        ]
      : []),
    unit(hostUnit, serviceText(template('units', hostUnit)), 'how systemd starts it'),
    unit(hostDriverUnit, serviceText(template('units', hostDriverUnit)), 'loads the driver before it'),
    unit(
      hostSocketUnit,
      socketText(template('units', hostSocketUnit), listen),
      'the addresses at which it serves',
    ),
    link(hostSocketUnit, 'sockets.target'),
    link(hostUnit, 'multi-user.target'),
  ];
  const paths = wanted.map((one) => one.path);
  const owners = await packageOwners(root, runner, readDistribution(root, architecture).family, paths);
  return Promise.all(
    wanted.map(async (one) => ({
      ...one,
      ...(await ownedFile(root, one.path, contents)),
      ownerPackage: owners.get(one.path) ?? null,
    })),
  );
}

function text(file: string, content: string, reason: string): Wanted {
  const wanted = { kind: 'text', content } as const;
  return { path: file, mode: 0o644, wanted, reason, editable: false, asked: false };
}

async function copied({ root, contents }: ServingEffects, source: string, file: string): Promise<Wanted> {
  const state = await pathState(root, source, contents);
  if (state.kind !== 'file') throw missing(source);
  const { sha256, size } = state;
  return {
    ...text(file, '', 'a GPU that --profile can simulate'),
    wanted: { kind: 'copy', source, sha256, size },
  };
}

function deviceFiles(): readonly string[] {
  return readdirSync(packaged('profiles', 'devices'))
    .filter((name) => name.endsWith('.json') && name !== 'device.schema.json')
    .sort();
}

function packaged(...parts: readonly string[]): string {
  return path.join(packageRoot(), ...parts);
}

function template(...parts: readonly string[]): string {
  const file = packaged(...parts);
  try {
    return readFileSync(file, 'utf8');
  } catch (cause) {
    throw missing(file, cause);
  }
}

function missing(file: string, cause?: unknown): VgpuError {
  return new VgpuError(`the host cannot be installed: ${file} is missing`, {
    kind: 'failed',
    operation: 'read the files of the host',
    path: file,
    remedy:
      readBuildInfo()?.packaged === 'deb'
        ? 'on Debian the daemon is a package of its own: apt install vgpu-hostd, which prints the next command'
        : 'build it (npm run build) or install vgpu-agent again; files of it are missing',
    cause,
  });
}

const header = 'Written by vgpu-agent host install. Taken away by: vgpu-agent host uninstall';

function defaultsText(device: HostDevice): string {
  return `# ${header}
# You may edit this file; systemctl restart vgpu-hostd applies it, and ends the sessions.
# cuda: the GPU of this machine. software: a simulated one, which says so.
VGPU_DEVICE=${device}
# More options of vgpu-hostd(8).
VGPU_OPTIONS=
`;
}

function deviceIn(text: string): HostDevice | null {
  const last = [...text.matchAll(/^\s*VGPU_DEVICE\s*=\s*"?([a-z]*)"?\s*$/gm)].at(-1)?.[1];
  return last === 'cuda' || last === 'software' ? last : null;
}

function confText({ memory, sessions }: GuestLimits): string {
  const limits = [
    ...(memory === null ? [] : [`memory=${memory}`]),
    ...(sessions === null ? [] : [`sessions=${sessions}`]),
  ];
  return `# ${header}
# You may edit this file: who may connect, and the limits of each guest (vgpu-hostd.conf(5)).
# vgpu-hostd --check-config reads it; systemctl reload vgpu-hostd applies it.
limits ${limits.join(' ')}
allow any
`;
}

function socketText(template: string, listen: readonly string[]): string {
  const lines = listen.map((address) => `ListenStream=${streamOf(address)}`).join('\n');
  return `# ${header}\n${template.replace(/^ListenStream=.*$/m, lines)}`;
}

function serviceText(template: string): string {
  return `# ${header}\n# Settings of your own go into a drop-in: systemctl edit vgpu-hostd.\n${template}`;
}

function listenIn(text: string): readonly string[] {
  return assignments([text], 'Socket', 'ListenStream').flatMap((stream) => {
    const port = /^vsock::(\d+)$/.exec(stream)?.[1];
    if (port !== undefined) return [`vsock:${port}`];
    if (stream.startsWith('/') || stream.startsWith('@')) return [`unix:${stream}`];
    return parseEndpoint(`tcp:${stream}`).kind === 'tcp' ? [`tcp:${stream}`] : [];
  });
}

function streamOf(address: string): string {
  return address.startsWith('vsock:')
    ? `vsock::${address.slice('vsock:'.length)}`
    : address.replace(/^(?:unix|tcp):/, '');
}
