/** The output of a container, as docker's daemon keeps it (log drivers json-file, local and journald). */
import type { IncomingMessage } from 'node:http';
import type { UnitFacts } from '../contracts/unit.js';
import * as http from '../lib/http.js';
import { member } from '../lib/own.js';
import { type ContainerUnit, containerOf } from './container-unit.js';
import { askDocker, containerPath, runningPid, socketOf } from './docker-socket.js';

export interface FollowedLog {
  readonly source: string;
  readonly bytes: AsyncIterable<Buffer>;
}

const lookEveryMs = 250;
const headerBytes = 8;
/** Docker cuts lines at 16 KiB; what is longer is no frame of its. */
const maxFrame = 1024 * 1024;

export interface DockerLogEffects {
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
  if (runningPid(document) === null) return null;
  const startedAt = String(member(member(document, 'State'), 'StartedAt') ?? '');
  return {
    socket,
    name,
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
  const response = path === null ? null : await answer(socket, path, signal);
  if (response === null) return;
  try {
    if (terminal) yield* bytesOf(response);
    else yield* unframed(bytesOf(response));
  } catch (error) {
    // The daemon was stopped, or we were.
    if (!signal.aborted && response.complete) throw error;
  } finally {
    response.destroy();
  }
}

async function* bytesOf(response: IncomingMessage): AsyncIterable<Buffer> {
  for await (const chunk of response) yield Buffer.from(chunk);
}

/** Null: it has no readable log (`--log-driver none`), or docker does not answer. */
function answer(socketPath: string, path: string, signal: AbortSignal): Promise<IncomingMessage | null> {
  return new Promise((resolve) => {
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
