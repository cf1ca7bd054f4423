/** The subjects of the loader check: the unit's processes as they were started, and its next start. */
import { readFileSync, readlinkSync } from 'node:fs';
import path from 'node:path';
import type { MachineFacts } from '../../../contracts/facts.js';
import type { LoadedUnit } from '../../../contracts/unit.js';
import { Root } from '../../files/root.js';
import { environmentOf } from '../environ.js';
import { isSecure } from '../process-security.js';
import type { Starting } from './ask.js';

export interface Subject extends Omit<Starting, 'interpreter' | 'program'> {
  /** Null: the next start of the unit. */
  readonly pid: number | null;
  readonly name: string;
  readonly executable: string;
  /** The file system as it sees it. */
  readonly root: Root;
  /** AT_SECURE: set-user-ID, file capabilities. The loader then ignores the variables of the environment. */
  readonly secure: boolean;
  /** The same for two processes with the same library search. */
  readonly key: string;
}

/** The variables of the loader that decide which library it chooses. */
const loaderVariables = ['LD_LIBRARY_PATH', 'LD_PRELOAD'];
/** A service may have thousands of processes; the first ones are the oldest. */
const mostProcesses = 16;

export function subjectsOf(root: Root, facts: MachineFacts): readonly Subject[] {
  const { unit, processes } = facts;
  if (unit.kind !== 'loaded') return [];
  const live = processes
    .slice(0, mostProcesses)
    .map(({ pid, name, executable }) => liveProcess(facts, unit, pid, name, executable));
  return [...live, nextStart(root, facts, unit)].filter((one) => one !== null);
}

/** The program that systemd would start now. */
function nextStart(root: Root, facts: MachineFacts, unit: LoadedUnit): Subject | null {
  const [executable] = unit.execStart;
  if (executable === undefined || !executable.startsWith('/')) return null;
  // Rights that the program gains at this exec, it gains again at the next one.
  const secure = facts.processes.some((one) => one.executable === executable && isSecure(one.pid) === true);
  const { rootDirectory } = unit.sandbox;
  const whole = { environment: unit.environment, environmentFiles: unit.environmentFiles };
  return {
    ...(secure ? { environment: {}, environmentFiles: [] } : whole),
    pid: null,
    name: path.basename(executable),
    executable,
    root: rootDirectory === '' ? root : new Root(root.prefix + rootDirectory),
    secure,
    unit,
    directory: '/',
    user: null,
    key: 'next start',
  };
}

/** Null when it has ended, is closed to us, or lives in a file system of its own, where the unit's loader is not its. */
function liveProcess(
  { serviceUser }: MachineFacts,
  unit: LoadedUnit,
  pid: number,
  name: string,
  executable: string | null,
): Subject | null {
  if (executable === null) return null;
  try {
    const proc = `/proc/${pid}`;
    if (unit.mainPid !== 0 && mountsOf(pid) !== mountsOf(unit.mainPid)) return null;
    const status = readFileSync(`${proc}/status`, 'utf8');
    const uid = Number(/^Uid:\t\d+\t(\d+)/m.exec(status)?.[1]);
    const gid = Number(/^Gid:\t\d+\t(\d+)/m.exec(status)?.[1]);
    const groups = /^Groups:\t(.*)$/m.exec(status)?.[1]?.trim().split(/\s+/).filter(Boolean).map(Number);
    const secure = isSecure(pid);
    if (!Number.isInteger(uid) || !Number.isInteger(gid) || secure === null) return null;
    const started = environmentOf(readFileSync(`${proc}/environ`));
    const environment = secure
      ? {}
      : Object.fromEntries(
          Object.entries(started).filter(([variable]) => loaderVariables.includes(variable)),
        );
    const directory = readlinkSync(`${proc}/cwd`);
    const user = uid === serviceUser?.uid ? null : { uid, gid, groups: groups ?? [] };
    return {
      pid,
      name,
      executable,
      root: new Root(`${proc}/root`),
      secure,
      unit,
      environment,
      environmentFiles: [],
      directory,
      user,
      key: JSON.stringify([executable, environment, directory, user, secure]),
    };
  } catch {
    return null;
  }
}

function mountsOf(pid: number): string {
  return readlinkSync(`/proc/${pid}/ns/mnt`);
}
