/** `vgpu-agent status`: what is installed, what has drifted, and where the service runs now. Waits for nothing. */
import { Command } from 'commander';
import type { Verdict } from '../confirm/types.js';
import { ExitCode } from '../errors.js';
import { type StatusView, statusText } from '../output/status-text.js';
import { statusView } from '../pipeline/status-view.js';
import { chosenProfile, exitCodeForMode } from './common.js';
import { examples, profileHelp } from './options.js';
import { serviceStatus, watchStatus } from './status-service.js';
import type { CommandContext, Outcome, Run } from './types.js';

export interface StatusDocument extends StatusView {
  readonly schema: 1;
  readonly command: 'status';
}

/** The verdict is taken from what is there already; a consumer that has not spoken yet is `undetermined`. */
const verdictTimeoutMs = 2_000;

interface StatusOptions {
  readonly profile?: string;
  readonly watch?: true;
  readonly fresh?: true;
}

export function statusCommand(run: Run): Command {
  return new Command('status')
    .description('what is installed, what has drifted from it, and where the service runs now')
    .option('-p, --profile <name>', profileHelp)
    .option('-w, --watch', 'a line now and whenever the service tells of something')
    .option('--fresh', 'look at the machine, even where the service runs and knows')
    .addHelpText(
      'after',
      `\nThe exit code is the verdict if something is installed, else 0:\n0 GPU, 3 CPU, 4 undetermined, 5 degraded.\n${examples(
        ['sudo vgpu-agent status', 'with the verdict'],
        ['vgpu-agent status --watch', 'what the service tells, line by line'],
        ['vgpu-agent status --json | jq .drift', 'what no longer is as it was installed'],
      )}`,
    )
    .action((options: StatusOptions) =>
      run((context) => status(options, context), { stoppable: options.watch === true }),
    );
}

async function status(options: StatusOptions, context: CommandContext): Promise<Outcome> {
  if (options.watch === true) return watchStatus(context);
  const known = options.fresh === true ? null : await serviceStatus(options.profile);
  if (known !== null) {
    return {
      exitCode: exitCodeOf(known),
      document: known,
      text: (style) => statusText(known, style),
    };
  }
  const { openWorkplace } = await import('../pipeline/open-workplace.js');
  const { work, close } = openWorkplace();
  try {
    const profile = await chosenProfile(work, options.profile);
    const { emit } = context.talk;
    emit({ kind: 'phase', phase: 'inspect', text: `looking at this machine and ${profile.unit}` });
    const facts = await work.inspect(profile, null, { quick: true });
    emit({ kind: 'facts', facts });
    const { manifest } = facts;
    let verdict: Verdict | null = null;
    // Other users' maps and the journal are closed to anybody else: a verdict without them would mislead.
    if (manifest !== null && context.isRoot) {
      const request = { profile, facts, mark: null, timeoutMs: verdictTimeoutMs, signal: context.signal };
      verdict = await work.confirm(request, emit);
    }
    const plan =
      manifest === null
        ? null
        : work.planInstall(profile, facts, { endpoint: manifest.endpoint, force: true, restart: false });
    const view = statusView(facts, plan, verdict);
    const document: StatusDocument = { schema: 1, command: 'status', ...view };
    return { exitCode: exitCodeOf(view), document, text: (style) => statusText(view, style) };
  } finally {
    close();
  }
}

function exitCodeOf(view: StatusView): ExitCode {
  if (view.installed === null) return ExitCode.done;
  return view.verdict === null ? ExitCode.undetermined : exitCodeForMode(view.verdict.mode);
}
