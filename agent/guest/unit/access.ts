/**
 * Whether a process of the service's user could load a library. Asked before
 * LD_PRELOAD names it: the loader only prints a line about an entry that it
 * cannot use, once a process, and goes on without.
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import type { ElfFacts, MachineFacts } from '../../contracts/facts.js';
import type { LoadedUnit } from '../../contracts/unit.js';
import type { CommandRunner } from '../../lib/run-command.js';
import { runAs } from '../../lib/trust/run-as.js';
import { nativeElf } from '../elf.js';
import type { ContentCache } from '../files/content.js';
import { Root } from '../files/root.js';

export type LoadCheck =
  | { readonly kind: 'loadable' }
  /** Nothing is there, or a link on the way dangles or loops; `missing` is the path that does not exist. */
  | { readonly kind: 'missing'; readonly missing: string }
  | { readonly kind: 'not-a-library'; readonly reason: string }
  | { readonly kind: 'wrong-architecture'; readonly found: string; readonly wanted: string }
  /** `blockedAt`: the file, or the directory on the way that may not be entered. */
  | { readonly kind: 'unreadable'; readonly blockedAt: string }
  /** The loader maps code, which a file system mounted `noexec` forbids. */
  | { readonly kind: 'noexec'; readonly mount: string };

export interface AccessEffects {
  readonly runner: CommandRunner;
  readonly contents: ContentCache;
  readonly architecture: string;
}

const tryTimeoutMs = 5_000;

/**
 * Checks existence, ELF class and machine, permission of the file and of every directory on the way (really
 * tried as the user with setpriv, so that ACLs count; needs root unless it is our own user), and `noexec`.
 * `user` null tries as ourselves. Mount namespaces of the unit are not considered.
 */
export async function canLoad(
  effects: AccessEffects,
  user: ServiceUser | null,
  file: string,
): Promise<LoadCheck> {
  const root = new Root('/');
  const resolution = root.resolve(file);
  if (resolution.kind === 'absent') return { kind: 'missing', missing: file };
  if (resolution.kind === 'dangling') return { kind: 'missing', missing: resolution.missing };
  if (resolution.kind === 'loop') return { kind: 'missing', missing: file };
  if (resolution.kind === 'directory') return { kind: 'not-a-library', reason: 'it is a directory' };

  const content = await effects.contents.of(resolution.realPath, file);
  if (content === null) return { kind: 'not-a-library', reason: 'it is not a regular file' };
  if (content.elf.kind === 'problem') return { kind: 'not-a-library', reason: content.elf.reason };
  const mismatch = architectureProblem(content.elf.facts, effects.architecture);
  if (mismatch !== null) return mismatch;

  const blockedAt = await firstUnreadable(effects.runner, user, file, resolution.realPath);
  if (blockedAt !== null) return { kind: 'unreadable', blockedAt };
  const mount = noexecMount(readMountinfo(), resolution.realPath);
  return mount === null ? { kind: 'loadable' } : { kind: 'noexec', mount };
}

export function describeLoadCheck(file: string, user: ServiceUser | null, check: LoadCheck): string {
  const who = user === null ? 'we' : `the user ${JSON.stringify(user.name)}`;
  switch (check.kind) {
    case 'loadable':
      return `${file} can be loaded`;
    case 'missing':
      return check.missing === file
        ? `${file} does not exist`
        : `${file} leads to ${check.missing}, which does not exist`;
    case 'not-a-library':
      return `${file} is not a shared library: ${check.reason}`;
    case 'wrong-architecture':
      return `${file} is for ${check.found}, this machine loads ${check.wanted}`;
    case 'unreadable':
      return check.blockedAt === file
        ? `${who} may not read ${file}`
        : `${who} may not read ${file}: ${check.blockedAt} is closed to it`;
    case 'noexec':
      return `${file} lies on ${check.mount}, which is mounted noexec`;
  }
}

function architectureProblem(facts: ElfFacts, architecture: string): LoadCheck | null {
  if (facts.type !== 'dyn') {
    return { kind: 'not-a-library', reason: `its ELF type is ${facts.type}, not dyn` };
  }
  const wanted = nativeElf(architecture);
  if (wanted === null || (wanted.class === facts.class && wanted.machine === facts.machine)) return null;
  return {
    kind: 'wrong-architecture',
    found: `${facts.class}-bit ${facts.machine}`,
    wanted: `${wanted.class}-bit ${wanted.machine}`,
  };
}

async function firstUnreadable(
  runner: CommandRunner,
  user: ServiceUser | null,
  file: string,
  realPath: string,
): Promise<string | null> {
  if (await testAs(runner, user, '-r', file)) return null;
  return culprit(runner, user, file, realPath);
}

async function culprit(
  runner: CommandRunner,
  user: ServiceUser | null,
  file: string,
  realPath: string,
): Promise<string> {
  for (const directory of [...parentsOf(file), ...parentsOf(realPath)]) {
    if (!(await testAs(runner, user, '-x', directory))) return directory;
  }
  return file;
}

function parentsOf(file: string): readonly string[] {
  const parents: string[] = [];
  for (let at = path.dirname(file); ; at = path.dirname(at)) {
    parents.unshift(at);
    if (at === '/') return parents;
  }
}

async function testAs(
  runner: CommandRunner,
  user: ServiceUser | null,
  operator: '-r' | '-x',
  file: string,
): Promise<boolean> {
  const command = ['test', operator, file];
  const own = user === null || user.uid === process.geteuid?.();
  const result = own
    ? await runner.run('test', command.slice(1), { timeoutMs: tryTimeoutMs })
    : await runAs(runner, user, 'test', command.slice(1), { timeoutMs: tryTimeoutMs });
  return result.code === 0;
}

export function noexecMount(mountinfo: string, file: string): string | null {
  let best: { point: string; noexec: boolean } | null = null;
  for (const line of mountinfo.split('\n')) {
    const fields = line.split(' ');
    const point = fields[4]?.replaceAll(/\\([0-7]{3})/g, (_whole, octal: string) =>
      String.fromCharCode(Number.parseInt(octal, 8)),
    );
    if (point === undefined) continue;
    const inside = point === '/' || file === point || file.startsWith(`${point}/`);
    // Later lines cover earlier ones at the same point.
    if (inside && (best === null || point.length >= best.point.length)) {
      best = { point, noexec: fields[5]?.split(',').includes('noexec') ?? false };
    }
  }
  return best?.noexec ? best.point : null;
}

function readMountinfo(): string {
  try {
    return readFileSync('/proc/self/mountinfo', 'utf8');
  } catch {
    return '';
  }
}

type ServiceUser = NonNullable<MachineFacts['serviceUser']>;

const lookUpTimeoutMs = 5_000;
/** The user "nobody": a dynamic user that is not allocated yet may read what every user may read. */
const overflowId = 65534;

/** Null: the unit names a user or group that does not exist (systemd: 217/USER, 216/GROUP). */
export async function resolveServiceUser(
  runner: CommandRunner,
  unit: Pick<LoadedUnit, 'user' | 'group' | 'dynamicUser'>,
): Promise<ServiceUser | null> {
  const name = unit.user === '' ? 'root' : unit.user;
  const [passwd, group, initial] = await Promise.all([
    name === 'root' ? rootEntry : getent(runner, 'passwd', name),
    unit.group === '' ? null : getent(runner, 'group', unit.group),
    getent(runner, 'initgroups', name),
  ]);
  if (passwd === null) {
    if (!unit.dynamicUser) return null;
    return { name, uid: overflowId, gid: overflowId, groups: [overflowId] };
  }
  const [found = name, , uid, primary] = passwd.split(':');
  const gid = unit.group === '' ? primary : group?.split(':')[2];
  if (uid === undefined || gid === undefined) return null;
  const supplementary = initial?.trim().split(/\s+/).slice(1) ?? [];
  const groups = [...new Set([gid, ...supplementary].map(Number))].filter(Number.isInteger);
  return { name: found, uid: Number(uid), gid: Number(gid), groups };
}

const rootEntry = 'root:x:0:0:root:/root:/bin/sh';

/** The first line, or null when there is no such entry. Names and numbers both work as keys. */
async function getent(runner: CommandRunner, database: string, key: string): Promise<string | null> {
  const result = await runner.run('getent', [database, '--', key], { timeoutMs: lookUpTimeoutMs });
  const [line] = result.stdout.toString('utf8').split('\n');
  return result.code === 0 && line !== undefined && line !== '' ? line : null;
}
