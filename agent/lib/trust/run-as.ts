/**
 * Runs a program with the rights of the service's user and no others: no capability, none to gain, no session of the
 * caller. Whatever a file of that user makes it do, that user could have done without root.
 */
import type { CommandOptions, CommandResult, CommandRunner } from '../run-command.js';

interface RunUser {
  readonly uid: number;
  readonly gid: number;
  readonly groups: readonly number[];
}

/** setpriv(1)'s arguments that turn into `user`; the program follows them. */
function asUser({ uid, gid, groups }: RunUser): readonly string[] {
  return [
    `--reuid=${uid}`,
    `--regid=${gid}`,
    groups.length === 0 ? '--clear-groups' : `--groups=${groups.join(',')}`,
    '--inh-caps=-all',
    '--no-new-privs',
    '--',
  ];
}

/** setpriv(1)'s arguments that run the program as `user`; where that is the caller, without the power to gain more. */
export function setprivFor(user: RunUser, file: string, args: readonly string[]): readonly string[] {
  const own = user.uid === process.geteuid?.();
  return [...(own ? ['--no-new-privs', '--'] : asUser(user)), file, ...args];
}

/**
 * As `CommandRunner.run`, as `user`. Where `user` is root or the caller, only the power to gain more is taken away: then
 * the program must be one that root alone could have made (`changeableByOthers`).
 */
export function runAs(
  runner: CommandRunner,
  user: RunUser,
  file: string,
  args: readonly string[],
  options: CommandOptions = {},
): Promise<CommandResult> {
  return runner.run('setpriv', setprivFor(user, file, args), options);
}
