/** A runner for a service without CAP_SETUID: what must run as another user is started by systemd. */
import type { CommandRunner } from '../lib/run-command.js';

/** The runner's own limit, where none is given. */
const longestMs = 30_000;

/**
 * `setpriv ... -- COMMAND` becomes a transient service that runs just that. It is not given `User=`: systemd takes no
 * number that no user database has, and that of a unit with DynamicUser= is in none without libnss-systemd.
 */
export function runElsewhere(runner: CommandRunner): CommandRunner {
  return {
    run(file, args, options) {
      if (file !== 'setpriv') return runner.run(file, args, options);
      // Ending systemd-run ends only our wait: systemd has to end what it runs.
      const seconds = Math.ceil((options?.timeoutMs ?? longestMs) / 1000);
      const limit = `--property=RuntimeMaxSec=${seconds}`;
      const service = ['--quiet', '--collect', '--wait', '--pipe', limit, '--', file, ...args];
      return runner.run('systemd-run', service, options);
    },
  };
}
