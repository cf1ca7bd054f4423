/** `vgpu-agent daemon`: the service, as its unit starts it. */
import { Command } from 'commander';
import { ExitCode } from '../errors.js';
import { requireRoot } from './common.js';
import { examples } from './options.js';
import type { CommandContext, Outcome, Run } from './types.js';

export function daemonCommand(run: Run): Command {
  return new Command('daemon')
    .description('keep an installation true: the service, which systemd starts (vgpu-agent.service)')
    .addHelpText(
      'after',
      `\nIt tells what it does in the journal: vgpu-agent logs.\n${examples(
        ['sudo vgpu-agent install --service', 'installs and enables the service'],
        ['systemctl reload vgpu-agent', 'reads /etc/vgpu-agent/agent.json again'],
      )}`,
    )
    .action(() => run(daemon));
}

async function daemon(context: CommandContext): Promise<Outcome> {
  requireRoot(context, 'daemon');
  const { runService } = await import('../daemon/run.js');
  const stop = new AbortController();
  for (const name of ['SIGTERM', 'SIGINT'] as const) process.on(name, () => stop.abort());
  await runService({
    env: process.env,
    signal: stop.signal,
    onReload: (listener) => process.on('SIGHUP', listener),
    line: context.say,
  });
  // A child that does not end, or a lock that is still waited for, must not hold up the stop.
  setTimeout(() => process.exit(), 50).unref();
  return { exitCode: ExitCode.done, document: { schema: 1, command: 'daemon' }, text: () => '' };
}
