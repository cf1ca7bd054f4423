/**
 * `vgpu-agent status`: what is installed, what has drifted, and where the service runs now. It waits for no change, but
 * looks for itself where vgpu-agent.service has no verdict yet.
 */
import { Command, Option } from 'commander';
import type { Verdict } from '../../contracts/verdict.js';
import type { StatusView } from '../../contracts/views.js';
import { chooseAll, chooseOne } from '../../install/pipeline/choose.js';
import { allInOne, statusView, unjudged, withVerdictOf } from '../../install/pipeline/status-view.js';
import type { Workplace } from '../../install/pipeline/workplace.js';
import { findConsumer } from '../../install/plan/consumers.js';
import { ExitCode, VgpuError } from '../../lib/errors.js';
import type { Profile } from '../../profile/types.js';
import { statusText } from '../output/status-text.js';
import { exitCodeForMode } from './common.js';
import { examples, profileHelp, unitHelp, unitName } from './options.js';
import { serviceStatus, watchStatus } from './status-service.js';
import type { CommandContext, Outcome, Run } from './types.js';

export interface StatusDocument extends StatusView {
  readonly schema: 1;
  readonly command: 'status';
}

/** The verdict is taken from what is there already; a consumer that has not spoken yet is `undetermined`. */
const consumerMs = 2_000;
/** The service is busy with a verdict of its own: on a machine where that takes long, ours takes long, too. */
const besideServiceMs = 10_000;

interface StatusOptions {
  readonly profile?: string;
  readonly unit?: string;
  readonly watch?: true;
  readonly fresh?: true;
}

export function statusCommand(run: Run): Command {
  return new Command('status')
    .description('show what is installed, what has drifted, and whether the service uses the GPU')
    .option('-p, --profile <name>', profileHelp)
    .option('-u, --unit <service>', unitHelp, unitName)
    .option('-w, --watch', "print a line now and at each event of the agent's service")
    .addOption(
      new Option('--fresh', "inspect the machine even if the agent's service runs").conflicts('watch'),
    )
    .addHelpText(
      'after',
      `\nThe exit code is the verdict if something is installed, else 0:\n0 GPU, 3 CPU, 4 undetermined, 5 degraded or restart-pending.\n${examples(
        ['sudo vgpu-agent status', 'with the verdict'],
        ['vgpu-agent status --watch', 'each event, line by line'],
        ['vgpu-agent status --json | jq .drift', 'what has changed since install'],
      )}`,
    )
    .action((options: StatusOptions) =>
      run((context) => status(options, context), { stoppable: options.watch === true }),
    );
}

async function status(options: StatusOptions, context: CommandContext): Promise<Outcome> {
  if (options.watch === true) return watchStatus(context, options);
  const told = options.fresh === true ? null : await serviceStatus(options);
  if (told !== null) {
    const known = context.isRoot ? await judgedAll(told, context) : told;
    return {
      exitCode: exitCodeOf(known),
      document: known,
      text: (style) => statusText(known, style),
    };
  }
  const { openWorkplace } = await import('../../install/pipeline/open-workplace.js');
  const { work, close } = openWorkplace();
  try {
    const [first, ...others] = await chooseAll(work, options);
    if (first === undefined)
      throw new VgpuError('no consumer to look at', { kind: 'internal', operation: 'status' });
    const views: [StatusView, ...StatusView[]] = [await look(work, first, context)];
    for (const profile of others) views.push(await look(work, profile, context));
    const view = allInOne(views);
    const document: StatusDocument = { schema: 1, command: 'status', ...view };
    return { exitCode: exitCodeOf(view), document, text: (style) => statusText(view, style) };
  } finally {
    close();
  }
}

/**
 * The service's document, with a verdict of our own about each running consumer that the service has not judged yet: it
 * judges a start seconds after it has settled, and on a busy machine a status comes before that.
 */
async function judgedAll(told: StatusDocument, context: CommandContext): Promise<StatusDocument> {
  const names = unjudged(told);
  if (names.length === 0) return told;
  const { openWorkplace } = await import('../../install/pipeline/open-workplace.js');
  const { work, close } = openWorkplace();
  try {
    let known = told;
    for (const unit of names) {
      const profile = await chooseOne(work, { unit });
      const { verdict } = await look(work, profile, context, besideServiceMs);
      known = { ...known, ...withVerdictOf(known, unit, verdict) };
    }
    return known;
  } finally {
    close();
  }
}

async function look(
  work: Workplace,
  profile: Profile,
  context: CommandContext,
  patienceMs = consumerMs,
): Promise<StatusView> {
  const { emit } = context.talk;
  emit({ kind: 'phase', phase: 'inspect', text: `inspecting this machine and ${profile.unit}` });
  const facts = await work.inspect(profile, null, { quick: true });
  emit({ kind: 'facts', facts });
  const { manifest } = facts;
  // A consumer that is not installed has no drift and no verdict.
  const installed = findConsumer(manifest, profile.unit) !== undefined ? manifest : null;
  let verdict: Verdict | null = null;
  // Only root can read other users' maps and the journal: a verdict without them would mislead.
  if (installed !== null && context.isRoot) {
    const request = { profile, facts, mark: null, timeoutMs: null, patienceMs, signal: context.signal };
    verdict = await work.confirm(request, emit);
  }
  const plan =
    installed === null
      ? null
      : work.planInstall(profile, facts, {
          endpoint: installed.endpoint,
          force: true,
          allowUnreachable: true,
          restart: false,
        });
  return statusView(profile, facts, plan, verdict);
}

/** With several consumers the worst verdict decides. */
function exitCodeOf(view: StatusView): ExitCode {
  if (view.installed === null) return ExitCode.done;
  const codes = view.consumers.map(({ verdict }) =>
    verdict === null ? ExitCode.undetermined : exitCodeForMode(verdict.mode),
  );
  // It works, but with former files: a person has to know that a restart waits.
  if (view.consumers.some(({ service }) => service?.state === 'restart-pending'))
    codes.push(ExitCode.degraded);
  const worst = [ExitCode.cpu, ExitCode.degraded, ExitCode.undetermined].find((code) => codes.includes(code));
  return worst ?? ExitCode.done;
}
