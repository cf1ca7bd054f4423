import type { IncomingMessage } from 'node:http';
import path from 'node:path';
import type { ComposedContainer, LoadedUnit, UnitFacts } from '../contracts/unit.js';
import * as http from '../lib/http.js';
import { member } from '../lib/json.js';
import { type ContainerUnit, containerOf, optionOf } from './container-unit.js';

const defaultSocket = '/run/docker.sock';
const limitMs = 2_000;
/** Even the answer for a container with hundreds of mounts is far smaller. */
const maxBytes = 4 * 1024 * 1024;

export async function dockerPid(container: ContainerUnit): Promise<number | null> {
  return (await runningNow(container))?.pid ?? null;
}

/** The names and IDs of containers that docker itself accepts (`RestrictedNameChars` of its sources). */
const containerName = /^[a-zA-Z0-9][a-zA-Z0-9_.-]{1,254}$/;

function containerPath(name: string, of: string): string | null {
  return containerName.test(name) ? `/containers/${name}/${of}` : null;
}

/** The document at that path; null: there is no path, docker's daemon is not there, or has none. */
async function askDocker(socket: string, path: string | null): Promise<unknown> {
  // A limit for the whole answer: single bytes would postpone the socket's time-out forever.
  const response = await answer(socket, path, AbortSignal.timeout(limitMs));
  const parts: Buffer[] = [];
  let size = 0;
  try {
    for await (const part of response === null ? [] : bytesOf(response)) {
      size += part.length;
      if (size > maxBytes) return null;
      parts.push(part);
    }
    return JSON.parse(Buffer.concat(parts).toString('utf8'));
  } catch {
    return null;
  } finally {
    response?.destroy();
  }
}

/** `docker --host unix:///run/x.sock run`; null: the daemon is on another machine. */
function socketOf({ options }: ContainerUnit): string | null {
  const host = optionOf(options, '--host') ?? optionOf(options, '-H');
  if (host === null) return defaultSocket;
  return host.startsWith('unix://') ? host.slice('unix://'.length) : null;
}

/** State.Pid of the answer (Docker Engine API, "Inspect a container"); 0 is one that does not run. */
function runningPid(document: unknown): number | null {
  const pid = member(member(document, 'State'), 'Pid');
  return typeof pid === 'number' && Number.isSafeInteger(pid) && pid > 0 ? pid : null;
}

// The containers of a compose file, as docker's daemon tells them. `docker compose` puts labels on those that it makes.

const label = 'com.docker.compose';
const listed = `/containers/json?filters=${encodeURIComponent(JSON.stringify({ label: [`${label}.project`] }))}`;
/** A compose file with more services than that is not followed whole. */
const maxContainers = 64;

/** The unit with the containers that its compose file has now; unchanged where it is no such unit, or docker does not tell. */
export async function withComposed(unit: LoadedUnit): Promise<LoadedUnit> {
  const container = containerOf(unit);
  const socket = container?.command === 'compose' ? socketOf(container) : null;
  if (container === null || socket === null) return unit;
  const all = await askDocker(socket, listed);
  if (!Array.isArray(all)) return unit;
  const names = all
    .filter((one: unknown) => isOf(unit, container, member(one, 'Labels')))
    .slice(0, maxContainers)
    .map(nameOf);
  const asked = names.map((name) => (name === null ? null : inspected(socket, name)));
  const composed = (await Promise.all(asked)).filter((one) => one !== null);
  return { ...unit, composed };
}

/** Is it of the unit's project: by its name, by the compose file, or by the directory where compose looks for one? */
function isOf(unit: LoadedUnit, { compose }: ContainerUnit, labels: unknown): boolean {
  if (compose === null) return false;
  const told = (name: string): string => String(member(labels, `${label}.${name}`) ?? '');
  if (compose.project !== null) return told('project') === compose.project;
  const directory = path.resolve('/', unit.workingDirectory ?? '', compose.directory ?? '');
  const [file] = compose.files;
  if (file === undefined) return told('project.working_dir') === directory;
  return told('project.config_files')
    .split(',')
    .includes(path.resolve('/', unit.workingDirectory ?? '', file));
}

function nameOf(container: unknown): string | null {
  const names = member(container, 'Names');
  const [name] = Array.isArray(names) ? names : [];
  return typeof name === 'string' ? name.replace(/^\//, '') : null;
}

async function inspected(socket: string, name: string): Promise<ComposedContainer | null> {
  const document = await askDocker(socket, containerPath(name, 'json'));
  const pid = runningPid(document);
  return pid === null ? null : { name, pid, devices: devicesOf(member(document, 'HostConfig')) };
}

/** HostConfig.DeviceRequests (Docker Engine API): `{"Driver":"cdi","DeviceIDs":["vgpu.org/gpu=all"]}`. */
function devicesOf(config: unknown): readonly string[] {
  const requests = member(config, 'DeviceRequests');
  return (Array.isArray(requests) ? requests : []).flatMap((request: unknown) => {
    const ids = member(request, 'DeviceIDs');
    return member(request, 'Driver') === 'cdi' && Array.isArray(ids) ? ids.map(String) : [];
  });
}

// The output of a container, as docker's daemon keeps it (log drivers json-file, local and journald).

interface FollowedLog {
  readonly source: string;
  readonly bytes: AsyncIterable<Buffer>;
}

const lookEveryMs = 250;
const headerBytes = 8;
/** Docker cuts lines at 16 KiB; what is longer is no frame of its. */
const maxFrame = 1024 * 1024;

interface DockerLogEffects {
  unit(): Promise<UnitFacts>;
  sleep(milliseconds: number, signal: AbortSignal): Promise<void>;
}

/** The logs of the unit's container, one container after the other; nothing where the unit waits for its container. */
export async function* dockerLogs(
  effects: DockerLogEffects,
  signal: AbortSignal,
): AsyncIterable<FollowedLog> {
  let last = '';
  while (!signal.aborted) {
    const unit = await effects.unit().catch(() => null);
    const container = unit?.kind === 'loaded' ? containerOf(unit) : null;
    if (unit !== null && (container?.engine !== 'docker' || !container.detached)) return;
    // While the unit starts, the container may be the one that a former start left.
    const running =
      unit?.kind === 'loaded' && unit.activeState === 'active' && container !== null
        ? await runningNow(container)
        : null;
    if (running !== null && running.key !== last) {
      last = running.key;
      yield { source: `docker logs ${running.name}`, bytes: followed(running, signal) };
    } else await effects.sleep(lookEveryMs, signal);
  }
}

interface Running {
  readonly socket: string;
  readonly name: string;
  readonly pid: number;
  /** Differs from one start of a container to the next. */
  readonly key: string;
  readonly since: string;
  /** Its output comes as it is, without frames. */
  readonly terminal: boolean;
}

async function runningNow(container: ContainerUnit): Promise<Running | null> {
  const { name } = container;
  const socket = socketOf(container);
  if (name === null || socket === null) return null;
  const document = await askDocker(socket, containerPath(name, 'json'));
  const pid = runningPid(document);
  if (pid === null) return null;
  const startedAt = String(member(member(document, 'State'), 'StartedAt') ?? '');
  return {
    socket,
    name,
    pid,
    key: `${String(member(document, 'Id'))} ${startedAt}`,
    since: seconds(startedAt),
    terminal: member(member(document, 'Config'), 'Tty') === true,
  };
}

/** `since` takes seconds with a fraction; what a container said in an earlier start does not count. */
function seconds(time: string): string {
  const fraction = /\.(\d{1,9})/.exec(time)?.[1] ?? '0';
  const whole = Math.floor(Date.parse(time) / 1000);
  return Number.isNaN(whole) ? '0' : `${whole}.${fraction}`;
}

async function* followed(
  { socket, name, since, terminal }: Running,
  signal: AbortSignal,
): AsyncIterable<Buffer> {
  const path = containerPath(name, `logs?follow=1&stdout=1&stderr=1&since=${since}`);
  const response = await answer(socket, path, signal);
  if (response === null) return;
  try {
    if (terminal) yield* bytesOf(response);
    else yield* unframed(bytesOf(response));
  } catch (error) {
    if (!signal.aborted && response.complete) throw error;
  } finally {
    response.destroy();
  }
}

async function* bytesOf(response: IncomingMessage): AsyncIterable<Buffer> {
  for await (const chunk of response) yield Buffer.from(chunk);
}

/** Null: it has no readable log (`--log-driver none`), or docker does not answer. */
function answer(
  socketPath: string,
  path: string | null,
  signal: AbortSignal,
): Promise<IncomingMessage | null> {
  return new Promise((resolve) => {
    if (path === null) return resolve(null);
    const request = http.get({ socketPath, path, agent: false, signal }, (response) => {
      if (response.statusCode === 200) resolve(response);
      else {
        response.destroy();
        resolve(null);
      }
    });
    request.on('error', () => resolve(null));
  });
}

/** Payloads of docker's frames: stream (1 byte), three zeros, length (4 bytes, big endian). */
export async function* unframed(stream: AsyncIterable<Buffer>): AsyncIterable<Buffer> {
  let held = Buffer.alloc(0);
  for await (const chunk of stream) {
    held = Buffer.concat([held, chunk]);
    while (held.length >= headerBytes) {
      const length = held.readUInt32BE(4);
      if (length > maxFrame) return;
      if (held.length < headerBytes + length) break;
      if (length > 0) yield held.subarray(headerBytes, headerBytes + length);
      held = held.subarray(headerBytes + length);
    }
  }
}
