/** Docker's daemon, asked over its socket. */

import * as http from '../lib/http.js';
import { member } from '../lib/own.js';
import { type ContainerUnit, optionOf } from './container-unit.js';

const defaultSocket = '/run/docker.sock';
const limitMs = 2_000;
/** Even the answer for a container with hundreds of mounts is far smaller. */
const maxBytes = 4 * 1024 * 1024;

/** The container's first process; null: it does not run, or it is not known. */
export async function dockerPid(container: ContainerUnit): Promise<number | null> {
  const { name } = container;
  const socket = socketOf(container);
  if (name === null || socket === null) return null;
  return runningPid(await askDocker(socket, containerPath(name, 'json')));
}

/** The names and IDs of containers that docker itself accepts (`RestrictedNameChars` of its sources). */
const containerName = /^[a-zA-Z0-9][a-zA-Z0-9_.-]{1,254}$/;

/** The path of something of a container in docker's API; null: docker has no container of such a name. */
export function containerPath(name: string, of: string): string | null {
  return containerName.test(name) ? `/containers/${name}/${of}` : null;
}

/** The document at that path; null: there is no path, docker's daemon is not there, or has none. */
export async function askDocker(socket: string, path: string | null): Promise<unknown> {
  const body = path === null ? null : await get(socket, path);
  if (body === null) return null;
  try {
    return JSON.parse(body);
  } catch {
    return null;
  }
}

/** `docker --host unix:///run/x.sock run`; null: the daemon is on another machine. */
export function socketOf({ options }: ContainerUnit): string | null {
  const host = optionOf(options, '--host') ?? optionOf(options, '-H');
  if (host === null) return defaultSocket;
  return host.startsWith('unix://') ? host.slice('unix://'.length) : null;
}

/** State.Pid of the answer (Docker Engine API, "Inspect a container"); 0 is one that does not run. */
export function runningPid(document: unknown): number | null {
  const pid = member(member(document, 'State'), 'Pid');
  return typeof pid === 'number' && Number.isSafeInteger(pid) && pid > 0 ? pid : null;
}

/** The body of an answer 200; null for everything else. */
function get(socketPath: string, path: string): Promise<string | null> {
  return new Promise((resolve) => {
    const nothing = (): void => resolve(null);
    // A limit for the whole answer: a daemon that sends a byte now and then would postpone the socket's time-out
    // forever.
    const signal = AbortSignal.timeout(limitMs);
    const request = http.get({ socketPath, path, agent: false, signal }, (response) => {
      const parts: Buffer[] = [];
      let size = 0;
      response.on('error', nothing);
      response.on('data', (part: Buffer) => {
        size += part.length;
        if (size <= maxBytes) parts.push(part);
        else request.destroy();
      });
      response.on('close', nothing);
      response.on('end', () =>
        resolve(response.statusCode === 200 ? Buffer.concat(parts).toString('utf8') : null),
      );
    });
    request.on('error', nothing);
  });
}
