/** A runner for a service without CAP_SETUID: what must run as another user is started by systemd. */
import type { CommandRunner } from '../run-command.js';

/** `setpriv --reuid=U --regid=G --groups=... -- COMMAND` becomes a transient service of that user; the rest is run as it is. */
export function runElsewhere(runner: CommandRunner): CommandRunner {
  return {
    run(file, args, options) {
      const end = args.indexOf('--');
      if (file !== 'setpriv' || end < 0) return runner.run(file, args, options);
      const value = (name: string): string =>
        args.find((arg) => arg.startsWith(`--${name}=`))?.slice(name.length + 3) ?? '';
      const properties = [
        `User=${value('reuid')}`,
        `Group=${value('regid')}`,
        `SupplementaryGroups=${value('groups').replaceAll(',', ' ')}`,
      ];
      const settings = properties.flatMap((property) => ['--property', property]);
      const command = args.slice(end + 1);
      return runner.run(
        'systemd-run',
        ['--quiet', '--collect', '--wait', '--pipe', ...settings, '--', ...command],
        options,
      );
    },
  };
}
