import { type Command, Option } from 'commander';
import type { ReadyPlan } from '../../contracts/plan.js';
import { type Choice, chooseAll, chooseOne } from '../../install/pipeline/choose.js';
import { planUninstall, uninstall } from '../../install/pipeline/install.js';
import type { Workplace } from '../../install/pipeline/workplace.js';
import { ExitCode, VgpuError } from '../../lib/errors.js';
import { plural } from '../../lib/text.js';
import type { Profile } from '../../profile/types.js';
import { planQuestion, planText } from '../output/plan-text.js';
import {
  approval,
  type CommandContext,
  changeDocument,
  declined,
  dryRun,
  examples,
  type Outcome,
  type Run,
  requireRoot,
  serviceCommand,
  withWorkplace,
} from './common.js';

interface UninstallOptions extends Choice {
  readonly all?: true;
  readonly dryRun?: true;
  readonly yes?: true;
  readonly restart: boolean;
}

export function uninstallCommand(run: Run): Command {
  return serviceCommand('uninstall', 'remove what install added, and restore the former files byte for byte')
    .addOption(
      new Option('--all', 'every service that uses the GPU through vgpu-agent').conflicts([
        'profile',
        'unit',
      ]),
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

const notRestarted = { restart: { kind: 'not-planned' } };

async function takeAway(
  work: Workplace,
  profile: Profile,
  { restart, dryRun: isDry, yes }: UninstallOptions,
  context: CommandContext,
): Promise<Outcome> {
  const { signal, talk } = context;
  if (isDry === true) {
    const plan = await planUninstall(work, { profile, restart }, talk.emit);
    return dryRun('uninstall', plan, context, notRestarted);
  }
  const ask = approval(context, 'uninstall', yes === true, (plan) => planQuestion('Uninstall', plan));
  const result = await uninstall(work, { profile, restart, signal, ...ask }, talk.emit);
  if (result.kind === 'declined') return declined('uninstall', result.plan, notRestarted);
  const { plan, applied } = result;
  return {
    exitCode: ExitCode.done,
    document: changeDocument('uninstall', 'done', plan, applied.changes, { restart: applied.restart }),
    text: (style) => {
      if (plan.changes.length > 0)
        return `uninstalled (${plural(applied.changes, 'change')}); ${whatIsLeft(plan)}`;
      const nothing = plan.consumers.length === 0 ? `\nnothing is installed for ${plan.unit}` : '';
      return planText(plan, style) + nothing;
    },
  };
}

function whatIsLeft({ consumers, unit, warnings }: ReadyPlan): string {
  const but = warnings.length === 0 ? '' : 'except for what the warnings name, ';
  if (consumers.length === 0) return `${but}everything is as it was before install`;
  const others = consumers.map((one) => one.unit).join(' and ');
  return `${but}${unit} is as it was before install; ${others} ${consumers.length === 1 ? 'keeps' : 'keep'} the GPU`;
}
