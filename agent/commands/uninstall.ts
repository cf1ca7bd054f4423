/** `vgpu-agent uninstall`: everything as it was before install. */
import { Command } from 'commander';
import type { RestartOutcome } from '../apply/types.js';
import { ExitCode } from '../errors.js';
import { nothingToDo, planText } from '../output/plan-text.js';
import { plural } from '../output/text.js';
import { planUninstall, uninstall } from '../pipeline/uninstall.js';
import type { Plan } from '../plan/types.js';
import { approved, chosenProfile, requireRoot } from './common.js';
import { examples, profileHelp } from './options.js';
import type { CommandContext, Outcome, Run } from './types.js';

export interface UninstallDocument {
  readonly schema: 1;
  readonly command: 'uninstall';
  readonly outcome: 'dry-run' | 'declined' | 'done';
  readonly plan: Plan;
  readonly changed: number;
  readonly restart: RestartOutcome;
}

interface UninstallOptions {
  readonly profile?: string;
  readonly dryRun?: true;
  readonly yes?: true;
  readonly restart: boolean;
}

export function uninstallCommand(run: Run): Command {
  return new Command('uninstall')
    .description('take everything back: what stood there before install comes back, byte for byte')
    .option('-p, --profile <name>', profileHelp)
    .option('-n, --dry-run', 'show what would be changed, change nothing')
    .option('-y, --yes', 'do not ask')
    .option('--no-restart', 'do not restart the service')
    .addHelpText(
      'after',
      examples(
        ['sudo vgpu-agent uninstall', 'shows what goes and what comes back, and asks'],
        ['sudo vgpu-agent uninstall --yes', 'in a script'],
      ),
    )
    .action((options: UninstallOptions) =>
      run((context) => uninstallOutcome(options, context), { stoppable: true }),
    );
}

async function uninstallOutcome(options: UninstallOptions, context: CommandContext): Promise<Outcome> {
  const { openWorkplace } = await import('../pipeline/open-workplace.js');
  const { work, close } = openWorkplace();
  try {
    const profile = await chosenProfile(work, options.profile);
    const { emit } = context.talk;
    const { restart } = options;
    if (options.dryRun === true) {
      const plan = await planUninstall(work, { profile, restart }, emit);
      return {
        exitCode: ExitCode.done,
        document: documentOf('dry-run', plan, 0, { kind: 'not-planned' }),
        text: (style) => planText(plan, style),
      };
    }
    requireRoot(context, 'uninstall');
    const result = await uninstall(
      work,
      {
        profile,
        restart,
        signal: context.signal,
        approve: async (plan) => {
          emit({ kind: 'plan', plan });
          const question = `Take this back${restart ? `, and restart ${plan.unit}` : ''}?`;
          return approved(context, 'uninstall', options.yes === true, question);
        },
      },
      emit,
    );
    if (result.kind === 'declined') {
      return {
        exitCode: ExitCode.interrupted,
        document: documentOf('declined', result.plan, 0, { kind: 'not-planned' }),
        text: () => 'nothing was changed',
      };
    }
    const { plan, applied } = result;
    return {
      exitCode: ExitCode.done,
      document: documentOf('done', plan, applied.changes, applied.restart),
      text: () =>
        plan.changes.length === 0
          ? nothingToDo
          : `uninstalled (${plural(applied.changes, 'change')}); ${
              plan.warnings.length === 0 ? '' : 'but for what the warnings name, '
            }everything is as it was before install`,
    };
  } finally {
    close();
  }
}

function documentOf(
  outcome: UninstallDocument['outcome'],
  plan: Plan,
  changed: number,
  restart: RestartOutcome,
): UninstallDocument {
  return { schema: 1, command: 'uninstall', outcome, plan, changed, restart };
}
