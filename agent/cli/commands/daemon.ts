/** `vgpu-agent daemon`: the service, as its unit starts it. */
import { Command } from 'commander';
import { ExitCode } from '../../lib/errors.js';
import { requireRoot } from './common.js';
import { examples } from './options.js';
import type { CommandContext, Outcome, Run } from './types.js';

export function daemonCommand(run: Run): Command {
  return new Command('daemon')
    .description("run the agent's service, which repairs drift (systemd starts it)")
    .addHelpText(
      'after',
      `\nIt logs to the journal; vgpu-agent logs shows it.\n${examples(
        ['sudo vgpu-agent install --service', 'installs and enables the service'],
        ['systemctl reload vgpu-agent', 'reads /etc/vgpu-agent/agent.json again'],
      )}`,
    )
    .action(() => run(daemon));
}

async function daemon(context: CommandContext): Promise<Outcome> {
  requireRoot(context, 'daemon');
  const { serve } = await import('../../service/serve.js');
  await serve(context.say);
  return { exitCode: ExitCode.done, document: { schema: 1, command: 'daemon' }, text: () => '' };
}
