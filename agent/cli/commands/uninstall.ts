/** `vgpu-agent uninstall`: restores the state before install. */
import { Command, Option } from 'commander';
import type { Plan } from '../../contracts/plan.js';
import type { RestartOutcome } from '../../install/apply/effects.js';
import { chooseAll, chooseOne } from '../../install/pipeline/choose.js';
import { planUninstall, uninstall } from '../../install/pipeline/uninstall.js';
import type { ReadyPlan, Workplace } from '../../install/pipeline/workplace.js';
import { ExitCode, VgpuError } from '../../lib/errors.js';
import { plural } from '../../lib/text.js';
import type { Profile } from '../../profile/types.js';
import { planQuestion, planText } from '../output/plan-text.js';
import {
  approved,
  type CommandContext,
  examples,
  type Outcome,
  profileHelp,
  type Run,
  requireRoot,
  unitHelp,
  unitName,
  withWorkplace,
} from './common.js';

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
  readonly unit?: string;
  readonly all?: true;
  readonly dryRun?: true;
  readonly yes?: true;
  readonly restart: boolean;
}

export function uninstallCommand(run: Run): Command {
  return new Command('uninstall')
    .description('remove what install added, and restore the former files byte for byte')
    .option('-p, --profile <name>', profileHelp)
    .option('-u, --unit <service>', unitHelp, unitName)
    .addOption(
      new Option('--all', 'every service that vgpu-agent gave the GPU').conflicts(['profile', 'unit']),
    )
    .option('-n, --dry-run', 'show what would change, and change nothing')
    .option('-y, --yes', 'do not ask')
    .option('--no-restart', 'do not restart the service')
    .addHelpText(
      'after',
      examples(
        ['sudo vgpu-agent uninstall', 'show what is removed and restored, and ask'],
        ['sudo vgpu-agent uninstall --unit ollama@1', 'only this service; the others keep the GPU'],
        ['sudo vgpu-agent uninstall --all --yes', 'in a script'],
      ),
    )
    .action((options: UninstallOptions) =>
      run((context) => uninstallOutcome(options, context), { stoppable: true }),
    );
}

async function uninstallOutcome(options: UninstallOptions, context: CommandContext): Promise<Outcome> {
  return withWorkplace(async (work) => {
    if (options.dryRun !== true) requireRoot(context, 'uninstall');
    if (options.all !== true) return await takeAway(work, await chooseOne(work, options), options, context);
    const profiles = await chooseAll(work, {});
    const outcomes: Outcome[] = [];
    for (const profile of profiles) {
      const outcome = await takeAway(work, profile, options, context);
      outcomes.push(outcome);
      if (outcome.exitCode !== ExitCode.done) break;
    }
    return inOne(outcomes);
  });
}

/** The last document tells how it is now; those of the others come with it. */
function inOne(outcomes: readonly Outcome[]): Outcome {
  const last = outcomes.at(-1);
  if (last === undefined)
    throw new VgpuError('nothing is installed, so there is nothing to remove', {
      kind: 'internal',
      operation: 'uninstall',
    });
  const before = outcomes.slice(0, -1).map((one) => one.document);
  return {
    exitCode: last.exitCode,
    document: before.length === 0 ? last.document : { ...last.document, before },
    text: (style) => outcomes.map((one) => one.text(style)).join('\n'),
  };
}

async function takeAway(
  work: Workplace,
  profile: Profile,
  options: UninstallOptions,
  context: CommandContext,
): Promise<Outcome> {
  const { emit } = context.talk;
  const { restart } = options;
  if (options.dryRun === true) {
    const plan = await planUninstall(work, { profile, restart }, emit);
    return {
      exitCode: ExitCode.done,
      document: documentOf('dry-run', plan, 0, { kind: 'not-planned' }),
      text: (style) => planText(plan, style, { full: context.verbose }),
    };
  }
  const result = await uninstall(
    work,
    {
      profile,
      restart,
      signal: context.signal,
      asks: options.yes !== true,
      approve: async (plan) => {
        emit({ kind: 'plan', plan });
        return approved(context, 'uninstall', options.yes === true, planQuestion('Uninstall', plan));
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
    text: (style) =>
      plan.changes.length === 0
        ? [planText(plan, style), ...nothingInstalled(plan)].join('\n')
        : `uninstalled (${plural(applied.changes, 'change')}); ${whatIsLeft(plan)}`,
  };
}

function nothingInstalled({ consumers, unit }: ReadyPlan): readonly string[] {
  return consumers.length === 0 ? [`nothing is installed for ${unit}`] : [];
}

function whatIsLeft({ consumers, unit, warnings }: ReadyPlan): string {
  const but = warnings.length === 0 ? '' : 'but for what the warnings name, ';
  if (consumers.length === 0) return `${but}everything is as it was before install`;
  const others = consumers.map((one) => one.unit).join(' and ');
  return `${but}${unit} is as it was before install; ${others} ${consumers.length === 1 ? 'keeps' : 'keep'} the GPU`;
}

function documentOf(
  outcome: UninstallDocument['outcome'],
  plan: Plan,
  changed: number,
  restart: RestartOutcome,
): UninstallDocument {
  return { schema: 1, command: 'uninstall', outcome, plan, changed, restart };
}
