/** The containers of a compose file, as docker's daemon tells them. `docker compose` puts labels on those that it makes. */
import path from 'node:path';
import type { ComposedContainer, LoadedUnit } from '../contracts/unit.js';
import { member } from '../lib/own.js';
import { type ContainerUnit, containerOf } from './container-unit.js';
import { askDocker, containerPath, runningPid, socketOf } from './docker-socket.js';

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

/** Null: it does not run any more. */
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
