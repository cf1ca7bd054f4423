/** `vgpu-agent plan`: what install would change. Changes nothing, needs no root where it can read. */
import type { Command } from 'commander';
import { type Choice, chooseOne } from '../../install/pipeline/choose.js';
import { ExitCode } from '../../lib/errors.js';
import { planText } from '../output/plan-text.js';
import {
  type CommandContext,
  endpoint,
  examples,
  hostHelp,
  namedHosts,
  type Outcome,
  type Run,
  serviceCommand,
  unreachableHelp,
  withWorkplace,
} from './common.js';

interface PlanOptions extends Choice {
  readonly host?: readonly string[];
  readonly restart: boolean;
  readonly force?: true;
  readonly allowUnreachableHost?: true;
}

export function planCommand(run: Run): Command {
  return serviceCommand('plan', 'show what install would change')
    .option('--host <address>', hostHelp, endpoint)
    .option('--no-restart', 'plan without restarting the service')
    .option('--force', 'plan even if a real GPU works here')
    .option('--allow-unreachable-host', unreachableHelp)
    .addHelpText(
      'after',
      examples(
        ['vgpu-agent plan', 'for the usual profile'],
        ['vgpu-agent plan --verbose', 'each change with its reason, as a diff'],
        ['vgpu-agent plan --json | jq .plan.changes', 'for scripts'],
      ),
    )
    .action((options: PlanOptions) => run((context) => plan(options, context)));
}

async function plan(options: PlanOptions, context: CommandContext): Promise<Outcome> {
  return withWorkplace(async (work) => {
    const profile = await chooseOne(work, options);
    const { emit } = context.talk;
    emit({ kind: 'phase', phase: 'inspect', text: `inspecting this machine and ${profile.unit}` });
    const facts = await work.inspect(profile, namedHosts(options.host));
    emit({ kind: 'facts', facts });
    const made = work.planInstall(profile, facts, {
      endpoint: namedHosts(options.host),
      force: options.force === true,
      allowUnreachable: options.allowUnreachableHost === true,
      restart: options.restart,
    });
    return {
      exitCode: made.kind === 'refused' ? ExitCode.refused : ExitCode.done,
      document: { schema: 1, command: 'plan', plan: made },
      text: (style) => planText(made, style, { full: context.verbose }),
    };
  });
}
