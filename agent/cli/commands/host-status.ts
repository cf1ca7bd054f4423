/** `vgpu-agent host status`: what is installed, whether it runs, and who is served. */
import { Command } from 'commander';
import type { HostView } from '../../contracts/views.js';
import { hostView } from '../../install/pipeline/host-view.js';
import { ExitCode } from '../../lib/errors.js';
import { hostStatusText } from '../output/host-status-text.js';
import { examples } from './options.js';
import type { CommandContext, Outcome, Run } from './types.js';

export interface HostStatusDocument extends HostView {
  readonly schema: 1;
  readonly command: 'host status';
}

export function hostStatusCommand(run: Run): Command {
  return new Command('status')
    .description('show what is installed, whether vgpu-hostd runs, and which guests it serves')
    .addHelpText(
      'after',
      `\nThe exit code: 0 nothing is installed, or all is well; 4 only root may ask the daemon;\n5 it does not answer, or files are not as they were installed.\n${examples(
        ['sudo vgpu-agent host status', 'with the sessions'],
        ['sudo vgpu-agent host status --json | jq .answer.daemon.sessions', 'for scripts'],
      )}`,
    )
    .action(() => run((context) => hostStatus(context)));
}

async function hostStatus(context: CommandContext): Promise<Outcome> {
  const { openHost } = await import('../../install/pipeline/open-host.js');
  const { work, close } = await openHost();
  try {
    const view = await hostView(work, context.isRoot);
    const document: HostStatusDocument = { schema: 1, command: 'host status', ...view };
    return { exitCode: exitCodeOf(view), document, text: (style) => hostStatusText(view, style) };
  } finally {
    close();
  }
}

function exitCodeOf({ installed, answer, drift }: HostView): ExitCode {
  if (installed === null) return ExitCode.done;
  if (drift.length > 0 || answer.kind === 'silent') return ExitCode.degraded;
  return answer.kind === 'not-asked' ? ExitCode.undetermined : ExitCode.done;
}
