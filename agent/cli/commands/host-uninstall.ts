/** `vgpu-agent host uninstall`: everything as it was before host install, byte for byte. */
import { Command } from 'commander';
import type { Plan } from '../../contracts/plan.js';
import { asItIs, changeHost, planHost } from '../../install/pipeline/serving-host.js';
import { ExitCode } from '../../lib/errors.js';
import { plural } from '../../lib/text.js';
import { planText } from '../output/plan-text.js';
import { approved, requireRoot } from './common.js';
import { examples } from './options.js';
import type { CommandContext, Outcome, Run } from './types.js';

export interface HostUninstallDocument {
  readonly schema: 1;
  readonly command: 'host uninstall';
  readonly outcome: 'dry-run' | 'declined' | 'done';
  readonly plan: Plan;
  readonly changed: number;
}

interface HostUninstallOptions {
  readonly dryRun?: true;
  readonly yes?: true;
  readonly endSessions?: true;
}

export function hostUninstallCommand(run: Run): Command {
  return new Command('uninstall')
    .description('remove what host install added, and restore the former files byte for byte')
    .option('-n, --dry-run', 'show what would change, and change nothing')
    .option('-y, --yes', 'do not ask')
    .option('--end-sessions', 'continue even while guests are served; their sessions end')
    .addHelpText(
      'after',
      examples(
        ['sudo vgpu-agent host uninstall', 'show what is removed and restored, and ask'],
        ['sudo vgpu-agent host uninstall --yes --end-sessions', 'also end the sessions'],
      ),
    )
    .action((options: HostUninstallOptions) =>
      run((context) => hostUninstall(options, context), { stoppable: true }),
    );
}

async function hostUninstall(options: HostUninstallOptions, context: CommandContext): Promise<Outcome> {
  const dryRun = options.dryRun === true;
  if (!dryRun) requireRoot(context, 'host uninstall');
  const { openHost } = await import('../../install/pipeline/open-host.js');
  const { work, close } = await openHost();
  try {
    const { emit } = context.talk;
    const request = { ...asItIs, endSessions: options.endSessions === true };
    if (dryRun) {
      const plan = await planHost(work, 'uninstall', request, emit);
      return {
        ...outcomeOf(ExitCode.done, 'dry-run', plan, 0),
        text: (style) => planText(plan, style, { full: context.verbose }),
      };
    }
    const result = await changeHost(
      work,
      {
        intent: 'uninstall',
        request,
        signal: context.signal,
        asks: options.yes !== true,
        approve: async (plan) => {
          emit({ kind: 'plan', plan });
          return approved(
            context,
            'host uninstall',
            options.yes === true,
            'Remove it and restore what was here before?',
          );
        },
      },
      emit,
    );
    return result.kind === 'declined'
      ? outcomeOf(ExitCode.interrupted, 'declined', result.plan, 0)
      : outcomeOf(ExitCode.done, 'done', result.plan, result.applied.changes);
  } finally {
    close();
  }
}

function outcomeOf(
  exitCode: ExitCode,
  outcome: HostUninstallDocument['outcome'],
  plan: Plan,
  changed: number,
): Outcome {
  const document: HostUninstallDocument = { schema: 1, command: 'host uninstall', outcome, plan, changed };
  return {
    exitCode,
    document,
    text: (style) => {
      if (outcome === 'declined') return 'nothing was changed';
      if (plan.kind === 'refused' || plan.changes.length === 0) return planText(plan, style);
      const but = plan.warnings.length === 0 ? '' : 'but for what the warnings name, ';
      return `uninstalled (${plural(changed, 'change')}); ${but}everything is as it was before host install`;
    },
  };
}
