/** The user that a unit runs as, resolved through NSS (getent), so that LDAP and systemd users count. */

import type { MachineFacts } from '../../contracts/facts.js';
import type { LoadedUnit } from '../../contracts/unit.js';
import type { CommandRunner } from '../../lib/run-command.js';

export type ServiceUser = NonNullable<MachineFacts['serviceUser']>;

const lookUpTimeoutMs = 5_000;
/** The user "nobody": a dynamic user that is not allocated yet may read what every user may read. */
const overflowId = 65534;

/**
 * User=, Group= and the supplementary groups. No User= is root. Null when the unit names a user or group
 * that does not exist; systemd then fails the start with 217/USER or 216/GROUP.
 */
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
