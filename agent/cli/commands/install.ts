import { type Command, Option } from 'commander';
import type { Verdict } from '../../contracts/verdict.js';
import { type Choice, chooseOne } from '../../install/pipeline/choose.js';
import { type InstallResult, inspectAndPlan, install } from '../../install/pipeline/install.js';
import { ExitCode } from '../../lib/errors.js';
import { plural } from '../../lib/text.js';
import { choiceOf } from '../../profile/instance.js';
import { planQuestion, planText } from '../output/plan-text.js';
import { verdictText } from '../output/verdict-text.js';
import {
  approval,
  type CommandContext,
  changeDocument,
  computeHelp,
  declined,
  dryRun,
  endpoint,
  examples,
  exitCodeForMode,
  hostHelp,
  namedHosts,
  type Outcome,
  type Run,
  requireRoot,
  seconds,
  serviceCommand,
  unreachableHelp,
  withWorkplace,
} from './common.js';

interface InstallOptions extends Choice {
  readonly host?: readonly string[];
  readonly dryRun?: true;
  readonly yes?: true;
  readonly rollbackOnFailure?: true;
  readonly restart: boolean;
  readonly timeout?: number;
  readonly force?: true;
  readonly allowUnreachableHost?: true;
  readonly compute?: true;
  readonly service?: boolean;
}

export function installCommand(run: Run): Command {
  return serviceCommand('install', 'give a service the GPU of the host, and verify it')
    .option('--host <address>', hostHelp, endpoint)
    .option('-n, --dry-run', 'show what would change, and change nothing')
    .option('-y, --yes', 'do not ask')
    .addOption(
      new Option(
        '--rollback-on-failure',
        "undo everything unless the verdict is GPU and, with --service, the agent's service starts",
      ).conflicts('restart'),
    )
    .option('--no-restart', 'do not restart the service (no verdict is given)')
    .addOption(
      new Option(
        '--timeout <seconds>',
        'wait at most this long for the verdict (default: that of the profile)',
      )
        .argParser(seconds)
        .conflicts('restart'),
    )
    .option('--service', "also install and enable the agent's service, which repairs drift")
    .option('--no-service', "remove the agent's service (default: leave it as it is)")
    .addOption(new Option('--compute', computeHelp).conflicts('restart'))
    .option('--force', 'continue even if a real GPU works here')
    .option('--allow-unreachable-host', unreachableHelp)
    .addHelpText(
      'after',
      examples(
        ['sudo vgpu-agent install', 'shows the plan, asks, installs, waits for the verdict'],
        [
          'sudo vgpu-agent install --yes --rollback-on-failure',
          'in a script: undo everything unless the verdict is GPU',
        ],
        ['sudo vgpu-agent install --host vsock:2:14833', 'the host over vsock'],
        [
          'sudo vgpu-agent install --no-restart --allow-unreachable-host --yes',
          'in an image, where no host answers yet',
        ],
        ['vgpu-agent install --dry-run', 'only show the plan'],
      ),
    )
    .action((options: InstallOptions) =>
      run((context) => installOutcome(options, context), { stoppable: true }),
    );
}

async function installOutcome(options: InstallOptions, context: CommandContext): Promise<Outcome> {
  return withWorkplace(async (work) => {
    const profile = await chooseOne(work, options);
    const isDry = options.dryRun === true;
    if (!isDry) requireRoot(context, 'install');
    const request = {
      profile,
      host: namedHosts(options.host),
      force: options.force === true,
      allowUnreachable: options.allowUnreachableHost === true,
      restart: options.restart,
      service: options.service ?? null,
    };
    const { emit } = context.talk;
    if (isDry) return dryRun('install', (await inspectAndPlan(work, request, emit)).plan, context, unjudged);
    const yes = options.yes === true;
    const result = await install(
      work,
      {
        ...request,
        rollbackOnFailure: options.rollbackOnFailure === true,
        timeoutMs: options.timeout === undefined ? null : options.timeout * 1000,
        compute: options.compute === true,
        signal: context.signal,
        ...approval(context, 'install', yes, (plan) => planQuestion('Change this', plan)),
      },
      emit,
    );
    return outcomeOf(result);
  });
}

const notRestarted = { kind: 'not-planned' } as const;
const unjudged = { restart: notRestarted, verdict: null };

function outcomeOf(result: InstallResult): Outcome {
  switch (result.kind) {
    case 'declined':
      return declined('install', result.plan, unjudged);
    case 'rolled-back': {
      // The verdict's next command does not apply, because the installation was undone.
      const { profile, endpoint: host, unit } = result.plan;
      const next = `sudo vgpu-agent install ${choiceOf({ name: profile, unit })} --host ${host}`;
      const verdict: Verdict = { ...result.verdict, next };
      const more = { restart: notRestarted, verdict };
      return {
        exitCode: ExitCode.rolledBack,
        document: changeDocument('install', 'rolled-back', result.plan, 0, more),
        text: (style) =>
          [
            verdictText({ ...verdict, next: null }, style),
            '',
            `everything was undone; ${unit} runs as before`,
            `after the repair: ${next}`,
          ].join('\n'),
      };
    }
    case 'done': {
      const { plan, applied, verdict } = result;
      const more = { restart: applied.restart, verdict };
      return {
        exitCode: verdict === null ? ExitCode.done : exitCodeForMode(verdict.mode),
        document: changeDocument('install', 'done', plan, applied.changes, more),
        text: (style) => {
          const installed = `installed (${plural(applied.changes, 'change')})`;
          // An empty plan is not shown, but its warnings are.
          const did = plan.changes.length === 0 ? planText(plan, style) : installed;
          if (verdict !== null) return `${verdictText(verdict, style)}\n\n${did}`;
          if (plan.changes.length === 0) return did;
          const later = `systemctl restart ${plan.unit} && vgpu-agent verify`;
          return `${did}; it applies from the next start of ${plan.unit}:\n  ${later}`;
        },
      };
    }
  }
}

// `vgpu-agent plan`: what install would change. Changes nothing, needs no root where it can read.

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
